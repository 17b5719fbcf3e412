"""Diagnostics of signals, calibrators, stops and selectors."""

from suffice.diagnose.diagnosis import Diagnosis, Part, diagnose

__all__ = ["Diagnosis", "Part", "diagnose"]
