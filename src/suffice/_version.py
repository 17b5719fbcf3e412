"""The version of every distribution; `scripts/version.py` sets it everywhere."""

__version__ = "1.0.0rc1"
