"""Read records in Python syntax (single quotes, None, True) where JSON is expected, without executing code."""

from __future__ import annotations

import ast
import math
from contextlib import suppress
from datetime import date, time, timedelta
from decimal import Decimal
from typing import Any

from suffice.common.json_text import load_json
from suffice.common.syntax import parse_expression

_LONGEST = 1 << 22
"""Most characters of a literal: its syntax tree takes some hundred times as much memory."""

_NAMES = {"nan": math.nan, "inf": math.inf, "null": None, "true": True, "false": False}


def load_record(text: str) -> Any:
    """Parse JSON or a Python literal; values of the literal are converted to JSON types.

    >>> load_record("{'id': 1, 'answers': ('Oslo', None), 'score': nan}")
    {'id': 1, 'answers': ['Oslo', None], 'score': nan}
    """
    try:
        return load_json(text)
    except ValueError:
        if text.lstrip()[:1] not in ("{", "[") or "'" not in text or len(text) > _LONGEST:
            raise
        with suppress(ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            return as_json(ast.literal_eval(_Constants().visit(parse_expression(text.strip()))))
        raise


class _Constants(ast.NodeTransformer):
    """Replaces names that Python does not define, such as nan, null and true, by their values."""

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Constant(_NAMES[node.id]), node) if node.id in _NAMES else node


def as_json(value: Any) -> Any:
    """Convert a value of Python or of a parquet file to JSON types.

    Times become ISO 8601, time differences seconds, decimals numbers, and bytes text.
    """
    if isinstance(value, dict):
        return {str(name): as_json(item) for name, item in value.items()}
    if isinstance(value, list | tuple | set):
        return [*map(as_json, sorted(value, key=str) if isinstance(value, set) else value)]
    if isinstance(value, bytes):
        return value.decode("utf-8", "replace")
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, timedelta):
        return value.total_seconds()
    return value.isoformat() if isinstance(value, date | time) else value


def tagged_texts(value: Any) -> tuple[list[str], list[str]] | None:
    """Return two lists for the tagged references that HELM writes: all texts, and the texts tagged as correct; None for other values.

    >>> tagged_texts([{"output": {"text": "Oslo"}, "tags": ["correct"]}, {"output": {"text": "Lima"}, "tags": []}])
    (['Oslo', 'Lima'], ['Oslo'])
    """
    if not isinstance(value, list) or not all(
        isinstance(item, dict) and {"output", "tags"} <= item.keys() for item in value
    ):
        return None
    outputs = [item["output"] for item in value]
    texts = [str(own.get("text", "") if isinstance(own, dict) else own) for own in outputs]
    return texts, [text for text, item in zip(texts, value, strict=True) if "correct" in (item["tags"] or ())]
