"""Parse Python syntax in one thread at a time.

Before 3.11.8, Python fails with "AST constructor recursion depth mismatch" if two threads parse at once and garbage is collected
meanwhile (https://github.com/python/cpython/issues/106905).
"""

from __future__ import annotations

import ast
import io
import re
import threading
import tokenize
from itertools import pairwise
from typing import Any

from suffice.common.json_text import load_json

_READING = threading.RLock()
_NEIGHBOURS = re.compile(r"""['"]\s*['"]""")
"""Texts that follow each other without a comma, or something else that needs a closer look."""


def parse_expression(text: str) -> ast.expr:
    """Return the syntax tree of an expression.

    Raises:
        SyntaxError: The text is not an expression; ValueError, RecursionError and MemoryError as by `ast.parse`.
    """
    with _READING:
        return ast.parse(text, mode="eval").body


def literal_of(text: str) -> Any:
    """Return the value of a Python literal.

    Raises:
        ValueError: The text is not a literal; SyntaxError, TypeError, RecursionError and MemoryError as by
            `ast.literal_eval`.
    """
    with _READING:
        return ast.literal_eval(text)


def literal(value: Any) -> Any:
    """Parse a list or object that a table spells as text in JSON, Python or NumPy; return other values unchanged.

    >>> literal('["Oslo"]'), literal("['Oslo', 'Lima']"), literal("['Oslo' 'Lima']"), literal("[0, 1)")
    (['Oslo'], ['Oslo', 'Lima'], ['Oslo', 'Lima'], '[0, 1)')
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    for read in (load_json, _python_value):
        try:
            found = read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError, tokenize.TokenError):
            continue
        return found if isinstance(found, list | dict) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python literal, or of a NumPy array of texts, which has no commas.

    Raises:
        ValueError: The text is neither; Python would join texts that follow each other without a comma.
        SyntaxError: The text is not Python.
    """
    if not _NEIGHBOURS.search(text):
        return literal_of(text)
    tokens = [t for t in tokenize.generate_tokens(io.StringIO(text).readline) if t.string.strip()]
    first, *inner, last = tokens if len(tokens) > 1 else [*tokens, *tokens]
    if inner and (first.string, last.string) == ("[", "]") and all(t.type == tokenize.STRING for t in inner):
        return [literal_of(t.string) for t in inner]
    if any(a.type == b.type == tokenize.STRING for a, b in pairwise(tokens)):
        raise ValueError("texts follow each other without a comma")
    return literal_of(text)
