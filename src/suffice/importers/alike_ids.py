"""Ids that differ in spaces, leading zeros or case alone, so that one question may have several, as 7 and 007."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.choices import of_columns
from suffice.importers.id_forms import ALIKE, ANY_CASE, alike_pairs, plain_id, plain_text
from suffice.importers.records import Record
from suffice.importers.shape import Shape, column_names
from suffice.importers.stages import changed_by
from suffice.policy.metrics import normalize_answer

_ENOUGH, _OFTEN = 5, 0.1
"""The fewest ids, and the smallest share of them, whose case shows that it means nothing: random ids differ in case by chance."""


def with_plain_ids(shape: Shape, columns: dict[str, str]) -> Shape:
    """Return rows with a column of plain ids, which is then named in `columns`, if the user asks for it."""
    theirs = columns.get("question_id", "")
    names = {*column_names(shape.rows)}
    name, _, form = theirs.rpartition(":")
    if theirs in names or name not in names or form not in (ALIKE, ANY_CASE):
        return shape
    columns["question_id"] = own = f"{name} ({form})"
    outer = shape.outer | ({own} if name in shape.outer else set())
    return replace(changed_by(shape, partial(_plain, name=name, own=own, form=form), {}), outer=outer)


def _plain(rows: Sequence[Record], name: str, own: str, form: str) -> list[Record]:
    cells = [None if (value := row.values.get(name)) is None else plain_id(value, form) for row in rows]
    return [replace(row, values={**row.values, own: cell}) for row, cell in zip(rows, cells, strict=True)]


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
