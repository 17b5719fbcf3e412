"""Read numbers as the user says: scores scaled to [0, 1] from a range or from words, and numbers with separators."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from suffice.errors import DataError
from suffice.importers.cost_guesses import COST_NAMES
from suffice.importers.cost_names import SECONDS
from suffice.importers.grid import cell_number, is_cost
from suffice.importers.names import MONEY, TOTAL_TOKENS, counts_tokens, last_name
from suffice.importers.number_forms import DECIMAL_COMMA, EACH, FORMS, THOUSANDS, points_separate
from suffice.importers.records import Record
from suffice.importers.shape import Shape, column_names
from suffice.importers.stages import changed_by
from suffice.importers.table_columns import TableColumns

_RANGE = re.compile(r"(-?\d+(?:\.\d+)?)\.\.(-?\d+(?:\.\d+)?)")
_NUMBER = re.compile(r"(-?\d+(?:[.,]\d+)?)\s*%?")


def scaled_metrics(shape: Shape, metrics: Mapping[str, str]) -> tuple[Shape, dict[str, str]]:
    """Return rows with a further column for each metric that is given as ``COLUMN:WORST..BEST``, ``COLUMN:WORST,...,BEST`` or ``COLUMN/TOTAL``.

    Words that are not listed count as unknown, and so does a share of a total of 0.  The metrics are returned with the names of these columns.

    Raises:
        DataError: A number is outside the range.
    """
    result, names = dict(metrics), {*column_names(shape.rows)}
    for ours, theirs in metrics.items():
        name, _, how = theirs.rpartition(":")
        part, slash, total = theirs.partition("/")
        if theirs in names or not (name in names or (slash and {part, total} <= names)):
            continue
        if name not in names:
            name, change = part, partial(_shared, name=part, total=total, own=theirs)
            result[ours] = own = theirs
        else:
            result[ours] = own = f"{name} ({how})"
            change = partial(_scaled, name=name, own=own, how=how)
        outer = shape.outer | ({own} if name in shape.outer else set())
        shape = changed_by(shape, change, {})
        shape = replace(shape, outer=outer)
    return shape, result


def _scaled(rows: Sequence[Record], name: str, own: str, how: str) -> list[Record]:
    match = _RANGE.fullmatch(how)
    words = [word.strip() for word in how.split(",")]
    if (match is None and len({*words}) < len(("worst", "best"))) or (match is not None and match[1] == match[2]):
        raise DataError(
            f"{how!r} is no scale of {name!r}: give a range from the worst to the best (1..5, or 6..1 if 1 is best), or words (bad,good)"
        )
    places = {word: place / max(1, len(words) - 1) for place, word in enumerate(words)}
    result = []
    for row in rows:
        value = row.values.get(name)
        score = places.get(str(value).strip()) if match is None else _place(value, match, f"{row.where}: {name}")
        result.append(replace(row, values={**row.values, own: score}))
    return result


def _shared(rows: Sequence[Record], name: str, total: str, own: str) -> list[Record]:
    result = []
    for row in rows:
        part, whole = (cell_number(row.values.get(column), column, row.where) for column in (name, total))
        if part < 0 or part > whole:
            raise DataError(f"{row.where}: {name} is {part:g}, and {total} is {whole:g}: expected a part of a total")
        known = whole > 0 and not math.isnan(part)
        result.append(replace(row, values={**row.values, own: part / whole if known else None}))
    return result


def _place(value: Any, scale: re.Match[str], where: str) -> float | None:
    """Return the place of a number in a range, from 0 to 1; None for an empty cell."""
    if value is None or str(value).strip() == "":
        return None
    worst, best = float(scale[1]), float(scale[2])
    match = _NUMBER.fullmatch(str(value).strip())
    place = (float(match[1].replace(",", ".")) - worst) / (best - worst) if match else -1.0
    if not 0 <= place <= 1:
        raise DataError(f"{where} is {value!r:.40}, and the scale is {scale[0]}: give a range that has all numbers")
    return place


def with_forms(shape: Shape, columns: dict[str, str]) -> Shape:
    """Return rows with a further column for each option ``COLUMN:FORM``, which is then named in `columns`."""
    names = {*column_names(shape.rows)}
    for ours, theirs in columns.items():
        name, _, form = theirs.rpartition(":")
        if theirs in names or name not in names or form not in FORMS:
            continue
        columns[ours] = own = form_name(name, form)
        outer = shape.outer | ({own} if name in shape.outer else set())
        shape = replace(changed_by(shape, partial(_rewritten, name=name, own=own, read=_READ[form]), {}), outer=outer)
    return shape


def with_whole_thousands(shape: Shape, columns: Mapping[str, str]) -> tuple[Shape, list[str]]:
    """Return rows in which 1.234 in a column of costs is 1234 where a point separates thousands, and notes that say so.

    Args:
        shape: The rows.
        columns: The columns that the user names.
    """
    table, notes = TableColumns(shape.rows), []
    said = {theirs: ours for ours, theirs in columns.items() if is_cost(ours) or ours == "spend"}
    names = [name for name in table.names if name in said or is_cost(name) or _costs(name)]
    for name in [name for name in names if not name.endswith(tuple(f" ({form})" for form in FORMS))]:
        ours = said.get(name, "")
        of_parts = last_name(name) in SECONDS or _is_money(name) or ours == "spend" or ours.endswith(".seconds")
        values, whole = table.column(name), not of_parts
        if example := points_separate(values, whole=whole):
            shape = changed_by(shape, partial(_rewritten, name=name, own=name, read=_with_point), {})
            notes.append(f"{example} in {name!r} is read as {example.replace('.', '')}: its point separates thousands")
        elif whole and (part := _fraction(values)) is not None:
            notes.append(
                f"{name!r} has {part:g}, and a count has no fraction: if points separate thousands, write whole numbers into the log"
            )
    return shape, notes


def _costs(name: str) -> bool:
    return last_name(name) in (*COST_NAMES, *TOTAL_TOKENS) or _is_money(name) or counts_tokens(name, ())


def _is_money(name: str) -> bool:
    return last_name(name) in MONEY


def _fraction(values: Sequence[Any]) -> float | None:
    """Return the first number that has a fraction; None without one."""
    numbers = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    return next((value for value in numbers if not value.is_integer()), None)


def form_name(name: str, form: str) -> str:
    """Return the name of a column that is read in a form.

    >>> form_name("cost_usd", EACH)
    'cost_usd (each)'
    """
    return f"{name} ({form})"


def _rewritten(rows: Sequence[Record], name: str, own: str, read: Callable[[str], str]) -> list[Record]:
    values = [row.values.get(name) for row in rows]
    cells: list[Any] = [read(value) if isinstance(value, str) else value for value in values]
    return [replace(row, values={**row.values, own: cell}) for row, cell in zip(rows, cells, strict=True)]


def _without_commas(text: str) -> str:
    return text.replace(",", "")


def _with_point(text: str) -> str:
    return text.replace(".", "").replace(",", ".")


_READ: dict[str, Callable[[str], str]] = {THOUSANDS: _without_commas, DECIMAL_COMMA: _with_point, EACH: str}
