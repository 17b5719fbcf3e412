"""Find the round that a loop returned, if it is not the last: from a mark in its row, or from the returned text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.common.tables import counted
from suffice.importers.columns.grid import whole_number
from suffice.importers.columns.table_columns import ColumnMap
from suffice.importers.files.records import Record, places_of, with_column
from suffice.importers.rounds.own_columns import is_false
from suffice.importers.shapes.shape import Shape
from suffice.recordings.runs import value_text
from suffice.recordings.schema import RETURNED

_MARK = "returned (1 or 0)"
_NEARLY_ALL, _TWO = 0.98, 2


def mark_returned(shape: Shape, ids: Sequence[Hashable], plan: ColumnMap) -> Shape:
    """Add a column with 1 for returned rounds and 0 for others, if the user names the column that shows the returned round.

    If the marked last rows of nearly all questions only repeat an earlier answer, they were no calls.  They are left out, and the
    earlier rows are marked.

    Args:
        shape: The rows.
        ids: The question of each row.
        plan: The meaning of the columns; a note on rows that are left out is added to it.
    """
    theirs, answer = plan.columns.get(RETURNED, ""), plan.columns.get("answer", "")
    values = [row.values.get(theirs) for row in shape.rows]
    if not theirs or all(value is None for value in values):
        return shape
    mark = _mark_of(values)
    said = [str(row.values.get(answer)).strip() for row in shape.rows]
    marks = [
        value_text(value) == mark if mark else str(value).strip() == text
        for value, text in zip(values, said, strict=True)
    ]
    groups = [_in_order(shape.rows, own, plan.columns) for own in places_of(ids).values()]
    left_out = {own[-1] for own in groups if mark and marks[own[-1]] and said[own[-1]] in {said[i] for i in own[:-1]}}
    left_out = left_out if len(left_out) >= _NEARLY_ALL * len(groups) else set()
    for own in groups:
        for i in own[:-1]:
            marks[i] = marks[i] or (own[-1] in left_out and said[i] == said[own[-1]])
    if left_out:
        plan.notes.append(
            f"{counted(len(left_out), 'last row')} that repeat the answer of an earlier round left out: {theirs!r} marks what was returned"
        )
    plan.columns[RETURNED] = _MARK
    rows = with_column(shape.rows, _MARK, map(float, marks))
    return replace(shape, rows=[row for place, row in enumerate(rows) if place not in left_out])


def _mark_of(values: Sequence[Any]) -> str:
    """Return the value that marks a returned row; "" if the column has the text of the returned answer instead."""
    texts = Counter(text for value in values if (text := value_text(value)) is not None)
    marks = [text for text in texts if not is_false(text)]
    if len(marks) == 1:
        return marks[0]
    return min(texts, key=lambda text: texts[text]) if len(texts) <= _TWO else ""


def _in_order(rows: Sequence[Record], places: Sequence[int], columns: Mapping[str, str]) -> list[int]:
    """Return the places of a question's rows in the order of its rounds, or of the file if no column counts them."""
    number = columns.get("round", "")
    numbers = {place: whole_number(str(rows[place].values.get(number))) for place in places}
    return [*places] if None in numbers.values() else sorted(places, key=lambda place: numbers[place] or 0)
