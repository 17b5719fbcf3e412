"""The tolerance within which figures count as equal."""

ROUNDING = 1e-12
"""Largest difference between figures of size 1 that differ only by rounding, as sums in another order do."""
