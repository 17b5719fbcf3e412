"""Plain forms of ids: without spaces and leading zeros, and perhaps without case."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

ALIKE, ANY_CASE = "alike", "any-case"
"""Ends of ``COLUMN:FORM`` in the option that names the ids of questions."""


def plain_id(value: Any, form: str = ALIKE) -> str:
    """Return an id without spaces around it and leading zeros, and in lower case for `ANY_CASE`.

    >>> [plain_id(own) for own in (" q1 ", "q007", 7, 7.0, "1.05")], plain_id("Q1", ANY_CASE)
    (['q1', 'q7', '7', '7', '1.05'], 'q1')
    """
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", plain_text(value).strip())
    return text.lower() if form == ANY_CASE else text


def plain_text(value: Any) -> str:
    """Return an id as text, a whole number as such."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def alike_pairs(ids: Iterable[str], form: str = ALIKE) -> list[tuple[str, str]]:
    """Return pairs of different ids that have the same plain form.

    >>> alike_pairs(["7", "8", "007"])
    [('7', '007')]
    """
    first: dict[str, str] = {}
    pairs = ((first.setdefault(plain_id(own, form), own), own) for own in ids)
    return [(one, other) for one, other in pairs if one != other]
