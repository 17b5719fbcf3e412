"""Records such as "Single, 2026-05-23, 6 nights", which are only right if all of their fields are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from suffice.policy.metrics import f1
from suffice.policy.normalizers import fields_of

_NEARLY_ALL, _FEW = 0.95, 0.01
_WORDS = 4
"""The most words of a field."""

_LABELS, _EACH = 20, 4
"""The most labels of a field, and the fewest records for each, on average."""


def reason_of_records(golds: Collection[str], pairs: Collection[tuple[str, str]]) -> str:
    """Return the reason to compare answers as 'mixed', if the gold answers are records; else "".

    F1 would count a record with one wrong field as nearly right.

    Gold answers are records if they have the same number of fields and meet one of two conditions: some field nearly
    always contains a number, or each field has a few labels that occur in no other field.  Texts with fields that are
    not records are lists or prose, where a partly right answer counts.

    >>> golds = ["Oslo, 3 May, 2 guests", "Rome, 4 May, 1 guest"]
    >>> reason_of_records(golds, [("Oslo, 3 May, 1 guest", golds[0])]).partition(": ")[0]
    "since gold answers are records of 3 fields, such as 'Oslo, 3 May, 2 guests'"
    >>> reason_of_records(["red, blue and green"], [("red, blue", "red, blue and green")])
    ''
    """
    split = [*map(fields_of, golds)]
    n, often = Counter(map(len, split)).most_common(1)[0]
    records = [fields for fields in split if len(fields) == n]
    short = sum(len(field.split()) <= _WORDS for fields in records for field in fields)
    if not n or often < _NEARLY_ALL * len(split) or short < _NEARLY_ALL * n * often:
        return ""
    columns = [*zip(*records, strict=True)]
    if not any(map(_has_numbers, columns)) and not _are_labels(columns):
        return ""
    halves = sum(
        first != second and n == len(fields_of(first)) and 0 < f1(first, [second]) < 1 for first, second in pairs
    )
    if halves <= _FEW * len(pairs):
        return ""
    example = next(gold for gold, fields in zip(golds, split, strict=True) if len(fields) == n)
    return (
        f"since gold answers are records of {n} fields, such as {example!r:.60}: an answer is right if all fields are, "
        "where F1 would count most of a point for one with another field"
    )


def _has_numbers(column: Sequence[str]) -> bool:
    return sum(any(map(str.isdigit, field)) for field in column) >= _NEARLY_ALL * len(column)


def _are_labels(columns: Sequence[Sequence[str]]) -> bool:
    """Return True if each field has only a few different values, and no value occurs in two fields.

    In lists that are not records, the same words occur at different places.
    """
    labels = [{*map(str.lower, column)} for column in columns]
    are_few = all(len(own) <= _LABELS and _EACH * len(own) <= len(columns[0]) for own in labels)
    return are_few and sum(map(len, labels)) == len(set().union(*labels))
