"""Rows that share the round number of an answer but are of another kind, such as searches: they are steps of that round."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from suffice.common.tables import counted, cut_list
from suffice.importers.columns.grid import whole_number
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, places_of
from suffice.importers.rows.left_out import CALL_KINDS, model_calls, named_questions
from suffice.importers.shapes.shape import ANY
from suffice.importers.words.choices import of_rows
from suffice.importers.words.names import MOST_SPEAKERS, last_name

_JUDGING = re.compile(r"judg|eval|grad|scor|rating|review|label")
"""In the names of rows that say how good an answer is; see `with_scores`."""


_KINDS = frozenset({*CALL_KINDS, "stage", "task_name", "step_name", "tool", "tool_name", "call", "op"})


class AnsweringRows(NamedTuple):
    """A split of rows into answers and steps of the answers' rounds.

    Attributes:
        where: The filter that keeps the answers.
        owners: For each step, the answer to whose round it belongs; both are given by `Record.where`.
        note: Describes this reading.
    """

    where: dict[str, str]
    owners: dict[str, str]
    note: str

    def in_front(self, rows: Sequence[Record]) -> list[Record]:
        """Move each step before its answer, so that the answer is charged for it."""
        places = {row.where: place for place, row in enumerate(rows)}
        order = [(places[self.owners.get(row.where, row.where)], row.where not in self.owners) for row in rows]
        return [rows[place] for place in sorted(range(len(rows)), key=order.__getitem__)]


def answering_rows(
    rows: Sequence[Record], columns: Mapping[str, str], said: Collection[str] = ()
) -> AnsweringRows | None:
    """Split rows into answers and steps of the answers' rounds.

    None unless rows without an answer share the round numbers of answers, and a column shows that they are not of the answers' kind.

    Args:
        rows: The rows, whose rounds a column counts.
        columns: The meaning of their columns.
        said: Columns with which the user selects rows or distinguishes runs.
    """
    number, answer = columns.get("round", ""), columns.get("answer", "")
    has_answer = [row.values.get(answer) not in (None, "") for row in rows]
    if not answer or all(has_answer):
        return None
    questions = named_questions(TableColumns(rows), columns)
    if not any(questions):
        return None
    owners: dict[int, int] = {}
    numbers = [_number(row.values.get(number)) for row in rows]
    for own in places_of(zip(questions, numbers, strict=True)).values():
        answers = [place for place in own if has_answer[place]]
        owners.update({place: answers[0] for place in own if answers and not has_answer[place]})
    used = {*said, *columns.values()}
    for name in [name for name in column_names(rows) if last_name(name) in _KINDS and name not in used]:
        kinds = [row.values.get(name) or None for row in rows]
        if not all(kind is None or isinstance(kind, str) for kind in kinds):
            continue
        answering = {kind for kind, own in zip(kinds, has_answer, strict=True) if own}
        calling = {kinds[place] for place in owners}
        is_told = None not in calling and answering.isdisjoint(calling) and len(answering | calling) <= MOST_SPEAKERS
        if calling and is_told and not all(_JUDGING.search(str(kind).lower()) for kind in calling):
            only = next(iter(answering)) if len(answering) == 1 else None
            where = {name: only} if isinstance(only, str) else {answer: ANY}
            calls = model_calls(rows, has_answer, where)
            option = next(iter(of_rows(*next(iter(where.items())), "")))
            return AnsweringRows(
                where,
                {rows[call].where: rows[place].where for call, place in owners.items()},
                f"{counted(len(owners), 'row')} whose {name!r} is {cut_list(sorted(map(repr, calling)))} have no answer and share the round of one: "
                f"they are {_what(len(owners), sum(calls[place] for place in owners))} ({option})",
            )
    return None


def _what(n: int, calls: int) -> str:
    """Describe `n` rows without an answer that are steps of other rows' rounds, of which `calls` are model calls."""
    if calls == n:
        return "calls of that round"
    return f"steps of that round, {f'{calls:,} of them' if calls else 'none of them'} calls of a model"


def _number(value: object) -> object:
    """Return a round number as an integer, even if it is written as text; return other values as text."""
    number = whole_number(str(value))
    return str(value) if number is None else number
