"""Mathematical expressions: a parser in its own process gives all expressions of the same meaning one key."""

from suffice.policy.expressions.client import expression_key, is_available, looks_mathematical

__all__ = ["expression_key", "is_available", "looks_mathematical"]
