"""The version of every distribution; `scripts/version.py` sets it everywhere."""

__version__ = "0.5.0"
