"""Keep the rows that `--where` selects, and drop the columns of runs that the user ignores."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from suffice.common.tables import cut_list
from suffice.errors import NotFoundError
from suffice.importers.columns.grid import list_text
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names
from suffice.importers.rows.left_out import charged, names_loops, questions_of
from suffice.importers.rows.outside import rows_outside
from suffice.importers.rows.runs import FILE
from suffice.importers.rows.speakers import are_turns, numbered_again
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.words.names import last_name
from suffice.recordings.runs import LOOP_NAMES, RUN_FILE, value_text

_LONG, _SHOWN = 40, 5


def chosen_rows(
    shape: Shape,
    ignored: Collection[str],
    where: Mapping[str, str],
    said: Mapping[str, str],
    left_out: Mapping[str, str],
) -> tuple[Shape, list[str], str]:
    """Keep the rows that have the values in `where` and belong to the loop; drop ignored columns of runs.

    Also return notes on the rows that are left out, and a question about their cost; "" if there is no question.  See `charged`
    and `rows_outside`.

    Raises:
        NotFoundError: No row has these values.
    """
    gone = {name for name in column_names(shape.rows) if {name, last_name(name)} & {*ignored} & LOOP_NAMES}
    loops = {name: value for name, value in where.items() if names_loops(name)}
    questions = questions_of(TableColumns(shape.rows), shape, said) if loops else ()
    loops = {name: value for name, value in loops.items() if not are_turns(shape.rows, name, questions)}
    inside = [row for row in shape.rows if _has_all(row, loops)]
    kept_rows = [_has_all(row, where) for row in inside]
    rest = {name: value for name, value in where.items() if name not in loops}
    outside = rows_outside(replace(shape, rows=inside), kept_rows, rest, said, left_out)
    rows, notes, doubt = charged(replace(shape, rows=inside), kept_rows, rest, said, outside.rows)
    if where and not rows:
        name = next(
            (name for name in where if not any(_has(row, name, where[name]) for row in shape.rows)), next(iter(where))
        )
        values = Counter(text for row in shape.rows if (text := _text_of(row, name)) is not None)
        there = ", ".join(f"{value[:_LONG]!r} ({n:,})" for value, n in values.most_common(_SHOWN))
        raise NotFoundError(
            f"no row has the {name} {where[name]!r:.80}; "
            + (f"there are: {there}" if there else f"there is no such column, but {cut_list(column_names(shape.rows))}")
        )

    def kept(rows: Sequence[Record]) -> list[Record]:
        if not gone:
            return [*rows]
        return [replace(row, values={n: v for n, v in row.values.items() if n not in gone}) for row in rows]

    def read(records: Sequence[Record]) -> tuple[list[Record], int]:
        rows, skipped = shape.read(records)
        return kept(rows), skipped

    shape = (
        replace(shape, rows=kept(rows), outer=shape.outer - gone, read=read) if gone or where or outside.rows else shape
    )
    return numbered_again(shape, {**where, **dict.fromkeys(outside.names, "")}), [*outside.notes, *notes], doubt


def _has_all(row: Record, where: Mapping[str, str]) -> bool:
    return all(_has(row, name, value) for name, value in where.items())


def _has(row: Record, name: str, value: str) -> bool:
    own, text = row.values.get(name), _text_of(row, name)
    if value in (ANY, ""):
        return bool(text) == (value == ANY)
    if isinstance(own, bool):  # in a recording, it is 1 or 0
        return value.lower() in (str(own).lower(), f"{own:d}")
    if isinstance(own, list | dict):  # in a recording, it is JSON
        return value in (text, list_text(own))
    return text is not None and text == (value_text(_float(value)) if isinstance(own, int | float) else value)


def _text_of(row: Record, name: str) -> str | None:
    return row.file if name in (FILE, RUN_FILE) and name not in row.values else value_text(row.values.get(name))


def _float(text: str) -> object:
    try:
        return float(text)
    except ValueError:
        return text
