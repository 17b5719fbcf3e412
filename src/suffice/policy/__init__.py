"""Deciding one question: rounds, signals, rules, selectors, calibration and the live session.

Rounds enter; a `Decision` leaves, with its reason and the signals that led to it.  The same rule object decides live and replays a
recording.  Needs numpy alone.
"""
