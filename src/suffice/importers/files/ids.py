"""Reduce ids of questions to plain forms, and find ids that differ only in spaces, leading zeros or case."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.files.records import Record
from suffice.importers.words.choices import of_columns
from suffice.importers.words.likeness import is_by_chance
from suffice.policy.metrics import normalize_answer

ALIKE, ANY_CASE = "alike", "any-case"
"""Ends of ``COLUMN:FORM`` in the option that names the ids of questions."""


def plain_id(value: Any, form: str = ALIKE) -> str:
    """Return an id without surrounding spaces and leading zeros, and in lower case if `form` is `ANY_CASE`.

    >>> [plain_id(own) for own in (" q1 ", "q007", 7, 7.0, "1.05")], plain_id("Q1", ANY_CASE)
    (['q1', 'q7', '7', '7', '1.05'], 'q1')
    """
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", plain_text(value).strip())
    return text.lower() if form == ANY_CASE else text


def plain_text(value: Any) -> str:
    """Return an id as text, such as 7 for the float 7.0."""
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


def alike_pairs(ids: Iterable[str], form: str = ALIKE) -> list[tuple[str, str]]:
    """Return pairs of different ids that have the same plain form.

    >>> alike_pairs(["7", "8", "007"])
    [('7', '007')]
    """
    first: dict[str, str] = {}
    pairs = ((first.setdefault(plain_id(own, form), own), own) for own in ids)
    return [(one, other) for one, other in pairs if one != other]


_ENOUGH, _OFTEN = 5, 0.1
"""The fewest ids, and the smallest share of them, whose case shows that it means nothing: random ids differ in case by chance."""


def refuse_alike_ids(rows: Sequence[Record], key: str, question: str, golds: str) -> None:
    """Raise if ids differ only in spaces, leading zeros or case, unless their questions or gold answers differ.

    Args:
        rows: All rows, with ids.
        key: The column of ids.
        question: The column of questions; "" if there is none.
        golds: The column of gold answers; "" if there is none.
    """
    facts: dict[str, tuple[str, str]] = {}
    for row in rows:
        value = row.values.get(key)
        if value is not None:
            said = normalize_answer(str(row.values.get(question) or "")), str(row.values.get(golds) or "")
            before = facts.get(own := plain_text(value), ("", ""))
            facts[own] = before[0] or said[0], before[1] or said[1]
    if any(" " in own.strip() for own in facts):
        return  # texts and not ids
    for form, least in ((ALIKE, 1), (ANY_CASE, max(_ENOUGH, _OFTEN * len(facts)))):
        pairs = [pair for pair in alike_pairs(facts, form) if not _differ(facts[pair[0]], facts[pair[1]])]
        if len(pairs) >= least:
            what = "spaces or leading zeros" if form == ALIKE else "case, spaces or leading zeros"
            one, other = pairs[0]
            raise UnsettledError(
                f"{counted(len(pairs), 'pair')} of ids in {key!r} differ in {what} alone, such as {one!r:.40} and {other!r:.40}: do they "
                "name one question each?",
                "columns",
                (joined := of_columns({"question_id": f"{key}:{form}"}, "they do, and their rows belong together"))
                | of_columns({"question_id": key}, "each is a question of its own"),
                next(iter(joined))
                if form == ALIKE and _are_same([(facts[one], facts[other]) for one, other in pairs])
                else "",
            )


def _are_same(pairs: Sequence[tuple[tuple[str, str], tuple[str, str]]]) -> bool:
    """Return whether the ids of each pair have equal questions or, if these are missing, equal gold answers.

    Return False if both are missing, or if the equal texts are so frequent that chance explains them.
    """
    known = [next((two for two in zip(*pair, strict=True) if all(two)), ("", "")) for pair in pairs]
    are_same = all(one and one == other for one, other in known)
    return are_same and not is_by_chance(Counter(one for one, _ in known), len(known))


def _differ(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether two ids have different questions or, if these are missing, different gold answers."""
    known = [pair for pair in zip(one, other, strict=True) if all(pair)]
    return bool(known) and known[0][0] != known[0][1]
