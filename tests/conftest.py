"""Fixtures that every test may ask for."""

from tests.tiny import tiny_model

__all__ = ["tiny_model"]
