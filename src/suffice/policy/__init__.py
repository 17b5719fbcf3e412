"""Decisions on one question: rounds, signals, rules, selectors, calibration and the live session.

A policy turns rounds into a `Decision`, with the reason and the signals that led to it. The same rule object decides
live and replays a recording. This package needs numpy only.
"""
