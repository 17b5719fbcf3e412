"""The form in which a file contains rounds, and the rows that are made of its records."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from suffice.importers.files.records import Record, with_column
from suffice.importers.shapes.fields import flat
from suffice.importers.words.names import ends_with_round, is_round_name, last_name, round_numbers

ANY = "*"
"""The value with which a filter chooses the rows that have any."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Rows of rounds, and the form in which the file contains them.

    Attributes:
        rows: One row for each question and round, or the records unchanged.
        how: A description of the form; "" for a long table.
        columns: A description of each column's source, by the column's name in the rows.
        outer: Columns about the question, which are the same in all of its rows.
        is_ordered: True if the file counts the rounds, or its form implies their order.
        is_alone: True if column names imply that round 0 is the model without retrieval.
        read: Reads further records in the same way; returns their rows, and the number of records without any round.
    """

    rows: list[Record]
    how: str = ""
    columns: Mapping[str, str]
    skipped: int = 0
    outer: frozenset[str] = frozenset()
    is_ordered: bool = True
    is_alone: bool = False
    read: Callable[[Sequence[Record]], tuple[list[Record], int]]


def flat_record(item: Record) -> Record:
    """Flatten a record: fields of nested objects get dotted names."""
    values = flat(item.values)
    return item if values is item.values else replace(item, values=values)


def changed_by(
    shape: Shape, change: Callable[[Sequence[Record]], list[Record]], columns: Mapping[str, str] | None = None
) -> Shape:
    """Apply a function to the rows of a shape, and later to the rows of further records.

    `columns` describes the columns that the function adds.
    """

    def further(records: Sequence[Record]) -> tuple[list[Record], int]:
        rows, skipped = shape.read(records)
        return change(rows), skipped

    return replace(shape, rows=change(shape.rows), columns={**shape.columns, **(columns or {})}, read=further)


def with_derived(shape: Shape, name: str, own: str, cell: Callable[[Record], Any], shown: str = "") -> Shape:
    """Add a column `own` that is computed from each row.

    The new column is about the question if the column `name` is; else it is about a round.
    """
    result = changed_by(shape, lambda rows: with_column(rows, own, map(cell, rows)), {own: shown} if shown else None)
    return replace(result, outer=shape.outer | ({own} if name in shape.outer else set()))


def round_rows(pairs: Iterable[Pair], own: Collection[str], lead: str, counter: str = "round") -> list[Record]:
    """Return a row for each round, with the round's own fields and those of its record.

    A record's field is renamed if rounds have a field of the same name (`own`).  The position in the list becomes `round`, unless
    another field is the `counter`.
    """
    rows = []
    for item, outer, inner in pairs:
        above = {f"record.{name}" if name in own else name: value for name, value in outer.items()}
        for number, values in enumerate(inner, start=1):
            where = f"{item.where}, {lead} {number}"
            place = {"round": number} if counter == "round" else {}
            rows.append(Record(where, item.file, item.number, {**above, **place, **values}))
    return rows


def outer_names(rows: Iterable[Record], own: Collection[str]) -> frozenset[str]:
    """Return the columns about the question: all except `own`, the columns of rounds."""
    return frozenset(name for row in rows for name in row.values) - frozenset(own)


def without_rounds(pairs: Iterable[Pair]) -> int:
    """Return the number of records without any round."""
    return sum(not inner for _, _, inner in pairs)


Pair = tuple[Record, Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""A record, its fields about the question, and its rounds."""


def counter_of(pairs: Sequence[Pair]) -> str:
    """Return the item field that numbers the rounds in another order than that of the list; "" if there is none."""
    names = dict.fromkeys(
        name for _, _, inner in pairs for values in inner for name in values if is_round_name(last_name(name))
    )
    for name in names:
        orders = [_numbers_in(inner, name) for _, _, inner in pairs if inner]
        if all(order is not None for order in orders) and any(order != sorted(order) for order in orders if order):
            return name
    return ""


def counter_from_0(pairs: Sequence[Pair]) -> str:
    """Return the item field that is named like a round and numbers each list from 0; "" if there is none.

    Item 0 may be the answer of the model alone, without retrieval.
    """
    names = dict.fromkeys(name for _, _, inner in pairs for values in inner for name in values)
    several = any(len(inner) > 1 for _, _, inner in pairs)
    for name in names if several and "round" not in names else ():
        if (is_round_name(last_name(name)) or ends_with_round(name)) and all(
            _numbers_in(inner, name) == [*range(len(inner))] for _, _, inner in pairs
        ):
            return name
    return ""


def _numbers_in(inner: Sequence[Mapping[str, Any]], name: str) -> list[int] | None:
    """Return the numbers that a field gives to the items of a list; None unless they are consecutive."""
    numbers = round_numbers(str(values.get(name)) for values in inner)
    return numbers if numbers is not None and len({*numbers}) == len(numbers) else None


def in_counted_order(pairs: Sequence[Pair], counter: str) -> list[Pair]:
    """Sort each record's rounds by the field `counter`; lists that it does not number stay unchanged."""
    ordered: list[Pair] = []
    for item, outer, inner in pairs:
        numbers = _numbers_in(inner, counter) if counter else None
        places = range(len(inner)) if numbers is None else sorted(range(len(inner)), key=numbers.__getitem__)
        ordered.append((item, outer, [inner[place] for place in places]))
    return ordered
