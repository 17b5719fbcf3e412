"""Mathematical expressions: one key for all that mean the same, by a parser that runs in a process of its own."""

from suffice.policy.expressions.client import expression_key, is_available, looks_mathematical

__all__ = ["expression_key", "is_available", "looks_mathematical"]
