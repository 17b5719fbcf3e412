"""Columns with the answer that a log has parsed from the reply beside them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from suffice.importers.names import last_name

_PARSED = re.compile(
    r"(?:parsed|extracted)(?:_\w+)?|\w+_(?:parsed|extracted)|pred_(?:letter|choice|option|label|class|text)|predicted_(?:letter|choice|option)"
)
_MAY_BE = re.compile(
    r"final|choice|letter|option|selected|chosen|picked|value|(?:final|model|chosen|selected)_(?:choice|letter|option|value)"
)

_MOSTLY, _HALF = 0.8, 0.5


def is_parsed_name(name: str) -> bool:
    """Return whether a column's name says that it was parsed from a reply.

    >>> is_parsed_name("parsed"), is_parsed_name("extracted_answer"), is_parsed_name("choice")
    (True, True, False)
    """
    return _PARSED.fullmatch(last_name(name)) is not None


def may_be_parsed_name(name: str) -> bool:
    """Return whether a column of this name may have what was parsed from a reply, or something else."""
    return is_parsed_name(name) or _MAY_BE.fullmatch(last_name(name)) is not None


def are_in_replies(values: Sequence[Any], replies: Sequence[Any]) -> bool:
    """Return whether the values of at least half of the rows are words of their replies, in nearly all rows that have both.

    >>> are_in_replies(["A", "B"], ["The answer is (A).", "b"]), are_in_replies([True, False], ["True", "False"])
    (True, False)
    """
    pairs = [
        (str(own).strip().lower(), str(reply).lower())
        for own, reply in zip(values, replies, strict=True)
        if own not in (None, "") and reply not in (None, "") and not isinstance(own, bool)
    ]
    found = sum(re.search(rf"(?<!\w){re.escape(own)}(?!\w)", reply) is not None for own, reply in pairs)
    return len({own for own, _ in pairs}) > 1 and len(pairs) >= _HALF * len(values) and found >= _MOSTLY * len(pairs)
