"""Ids that differ in spaces, leading zeros or case alone, so that one question may have several, as 7 and 007."""

from __future__ import annotations

from collections.abc import Sequence

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.choices import of_columns
from suffice.importers.id_forms import ALIKE, ANY_CASE, alike_pairs, plain_text
from suffice.importers.records import Record
from suffice.policy.metrics import normalize_answer

_ENOUGH, _OFTEN = 5, 0.1
"""The fewest ids, and the smallest share of them, whose case shows that it means nothing: random ids differ in case by chance."""


def refuse_alike_ids(rows: Sequence[Record], key: str, question: str, golds: str) -> None:
    """Raise if ids differ in spaces, leading zeros or case alone, unless their questions or gold answers differ.

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
        return  # texts, not ids
    for form, least in ((ALIKE, 1), (ANY_CASE, max(_ENOUGH, _OFTEN * len(facts)))):
        pairs = [pair for pair in alike_pairs(facts, form) if not _differ(facts[pair[0]], facts[pair[1]])]
        if len(pairs) >= least:
            what = "spaces or leading zeros" if form == ALIKE else "case, spaces or leading zeros"
            one, other = pairs[0]
            raise UnsettledError(
                f"{counted(len(pairs), 'pair')} of ids in {key!r} differ in {what} alone, such as {one!r:.40} and {other!r:.40}: do they "
                "name one question each?",
                "columns",
                of_columns({"question_id": f"{key}:{form}"}, "they do, and their rows belong together")
                | of_columns({"question_id": key}, "each is a question of its own"),
            )


def _differ(one: tuple[str, str], other: tuple[str, str]) -> bool:
    """Return whether the questions of two ids differ, or else their gold answers."""
    known = [pair for pair in zip(one, other, strict=True) if all(pair)]
    return bool(known) and known[0][0] != known[0][1]
