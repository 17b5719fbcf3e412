"""Fill the empty cells of merged cells, and refuse a second header row.

A spreadsheet saves the value of merged cells only in their first row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.common.tables import cut_list
from suffice.errors import DataError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names
from suffice.importers.words.names import ANSWERS, WEAK_REPLIES, last_name

_ENOUGH = 10
"""The fewest rows that show what a column holds."""

_WORD = re.compile(r"[^\W\d_]{2}")
_LEAST = 2
"""The fewest merged columns, and the fewest merged cells of each."""


def refuse_second_header(records: Sequence[Record]) -> None:
    """Raise if the first row has only words, although some of its columns have numbers in all other rows."""
    first, *others = records
    words = {name: value for name, value in first.values.items() if value not in (None, "")}
    if len(others) < _ENOUGH or not all(isinstance(value, str) and _WORD.search(value) for value in words.values()):
        return
    table, own = TableColumns(others), TableColumns([first])
    for name, word in words.items():
        if own.not_a_number(name) and None not in table.column(name) and table.numbers(name) is not None:
            raise DataError(
                f"{first.where}: {name!r:.40} is {word!r:.40} here, and a number in all other rows, so this row may be a second line of names or "
                "units: delete it, and import the file again; a row of a call that failed needs an empty field instead"
            )


def filled_down(records: Sequence[Record], columns: Mapping[str, str] | None = None) -> tuple[list[Record], list[str]]:
    """Fill the empty cells of merged columns; return the records, and notes (empty if no cells were merged).

    If the user names the columns of question and run, the question may be missing in some rows; every row must have a run, and
    rows without the question must have an answer.  All columns that are empty in the rows without the question are then filled from
    the previous row of the run.

    Otherwise, the first column has merged cells if its first cell is filled, it has empty cells but no value twice, and some column
    has no empty cells.  The first column, and those that are empty in the same rows, are filled from the row above.  If the last row
    lacks a value in the second column, it has totals and is left out.
    """
    names = column_names(records)
    text, run = ((columns or {}).get(ours) for ours in ("question_id", "run"))
    if text and run and text != run and {text, run} <= {*names} and not all(_is_filled(row, text) for row in records):
        return _filled_within(records, names, text, run, (columns or {}).get("answer", ""))
    if len(names) <= _LEAST or any(row.values.keys() != records[0].values.keys() for row in records):  # JSON records
        return [*records], []
    has_total = _is_filled(records[-1], names[0]) and not _is_filled(records[-1], names[1])
    rows = [*records[:-1]] if has_total else [*records]
    filled = {name: tuple(_is_filled(row, name) for row in rows) for name in names}
    first = filled[names[0]]
    merged = [name for name in names if filled[name] == first]
    ids = [str(row.values[names[0]]) for row, is_first in zip(rows, first, strict=True) if is_first]
    has_gaps = len(ids) + _LEAST <= len(rows) and first[0] and len({*ids}) == len(ids) >= _LEAST
    if not has_gaps or len(merged) < _LEAST or not any(all(filled[name]) for name in names if name not in merged):
        return [*records], []
    result, above = [], dict[str, Any]()
    for row, is_first in zip(rows, first, strict=True):
        above = {name: row.values[name] for name in merged} if is_first else above
        result.append(row.having(above))
    shown = cut_list(map(repr, merged))
    notes = [f"{shown}: empty cells are read as the one above, as in a sheet with merged cells"]
    total = records[-1].values.get(names[0])
    return result, [*notes, *([f"the last row, {total!r:.40}, is left out: it has totals"] if has_total else [])]


def _filled_within(
    records: Sequence[Record], names: Sequence[str], text: str, run: str, answer: str
) -> tuple[list[Record], list[str]]:
    """Fill a column, and others that are empty in the same rows, from the previous row of the same run.

    Nothing is filled if some of the rows to fill have no answer, as after a failed call, or if any row has no run.
    """
    empty = [row for row in records if not _is_filled(row, text)]
    usual = ([name for name in names if last_name(name) in words] for words in (ANSWERS, WEAK_REPLIES))
    answers = [answer] if answer else next(filter(None, usual), [])
    has_answers = any(all(_is_filled(row, name) for row in empty) for name in answers)
    if not has_answers or not all(_is_filled(row, run) for row in records):
        return [*records], []
    merged = [name for name in names if name not in answers and not any(_is_filled(row, name) for row in empty)]
    above: dict[str, dict[str, Any]] = {}
    result = []
    for row in records:
        own = str(row.values.get(run))
        if _is_filled(row, text):
            above[own] = {name: row.values.get(name) for name in merged}
        result.append(row.having(above.get(own, {})))
    return result, [f"{cut_list(map(repr, merged))}: empty cells are read as the one above of the same {run!r}"]


def _is_filled(row: Record, name: str) -> bool:
    return row.values.get(name) not in (None, "")
