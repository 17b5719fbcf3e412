"""Sort the items of a list by a field that counts rounds, if the list has another order, such as the newest first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffice.importers.names import is_round_name, last_name, round_numbers
from suffice.importers.records import Record

Pair = tuple[Record, Mapping[str, Any], Sequence[Mapping[str, Any]]]
"""A record, its fields about the question, and its rounds."""


def counter_of(pairs: Sequence[Pair]) -> str:
    """Return the field of the items that counts rounds in another order than that of the lists; "" if there is none."""
    names = dict.fromkeys(
        name for _, _, inner in pairs for values in inner for name in values if is_round_name(last_name(name))
    )
    for name in names:
        orders = [_numbers_in(inner, name) for _, _, inner in pairs if inner]
        if all(order is not None for order in orders) and any(order != sorted(order) for order in orders if order):
            return name
    return ""


def _numbers_in(inner: Sequence[Mapping[str, Any]], name: str) -> list[int] | None:
    """Return the numbers by which a field counts the items of a list; None if it does not count them."""
    numbers = round_numbers(str(values.get(name)) for values in inner)
    return numbers if numbers is not None and len({*numbers}) == len(numbers) else None


def in_counted_order(pairs: Sequence[Pair], counter: str) -> list[Pair]:
    """Sort each record's rounds by the field that counts them, if one does; a list that it does not count stays as it is."""
    ordered: list[Pair] = []
    for item, outer, inner in pairs:
        numbers = _numbers_in(inner, counter) if counter else None
        places = range(len(inner)) if numbers is None else sorted(range(len(inner)), key=numbers.__getitem__)
        ordered.append((item, outer, [inner[place] for place in places]))
    return ordered
