"""Mathematical expressions: one key for all expressions of the same meaning, from a parser in its own process."""

from suffice.policy.expressions.client import expression_key, is_available, looks_mathematical

__all__ = ["expression_key", "is_available", "looks_mathematical"]
