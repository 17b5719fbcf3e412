"""Deciding one question: rounds, signals, rules, selectors, calibration and the live session.

From rounds it computes a `Decision`, with its reason and the signals that led to it.  The same rule object decides live
and replays a recording.  It needs numpy only.
"""
