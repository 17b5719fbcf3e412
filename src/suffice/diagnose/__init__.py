"""Diagnostics of signals, calibrators, stops and selectors."""
