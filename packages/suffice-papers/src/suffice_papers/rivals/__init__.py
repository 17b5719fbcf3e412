"""Rivals: gates, and methods that decide when to retrieve, measured on a small world that a tiny model partly knows."""

from suffice_papers.rivals.stop_values import RoundValues, StopValues, learn_stop

__all__ = ["RoundValues", "StopValues", "learn_stop"]
