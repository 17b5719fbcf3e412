"""Parse Python syntax in one thread at a time.

Before 3.11.8, Python fails with "AST constructor recursion depth mismatch" if two threads parse at once and garbage is collected
meanwhile (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import threading
from typing import Any

_READING = threading.RLock()


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        SyntaxError: The text is not an expression.
        ValueError, RecursionError, MemoryError: See `ast.parse`.
    """
    with _READING:
        return ast.parse(text, mode="eval").body


def literal_of(text: str) -> Any:
    """Return the value of a Python literal.

    Raises:
        ValueError: The text is not a literal.
        SyntaxError, TypeError, RecursionError, MemoryError: See `ast.literal_eval`.
    """
    with _READING:
        return ast.literal_eval(text)
