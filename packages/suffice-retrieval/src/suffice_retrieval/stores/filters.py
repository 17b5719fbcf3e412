"""Filters on the passages that a store searches: a mapping, which each store translates into its own language."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from suffice.errors import DataError

Scalar = str | int | float | bool
FilterOperator = Literal["in", "gt", "gte", "lt", "lte"]

SQL_BOUNDS = {"gt": ">", "gte": ">=", "lt": "<", "lte": "<="}
"""The SQL operators of bounds."""

_ALLOWED = "a text, a number, a boolean, a list of these, or a mapping of gt, gte, lt, lte to one of them"


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition on one field.

    Attributes:
        field: The field.
        comparison: `in` if the field must equal one of the values, or a comparison with a single value.
        values: At least one value.
    """

    field: str
    comparison: FilterOperator
    values: tuple[Scalar, ...]


def conditions_of(filters: Mapping[str, Any] | None) -> tuple[Condition, ...]:
    """Convert filters to conditions, all of which must hold.

    >>> conditions_of({"language": "en", "year": {"gte": 2000}})
    (Condition(field='language', comparison='in', values=('en',)), Condition(field='year', comparison='gte', values=(2000,)))

    Args:
        filters: For each field, a value that must match, a list of values of which one must match, or a mapping from
            `gt`, `gte`, `lt` and `lte` to bounds.

    Raises:
        DataError: The filters do not have this form.
    """
    conditions: list[Condition] = []
    for field, value in (filters or {}).items():
        if isinstance(value, Mapping) and value and value.keys() <= {*get_args(FilterOperator)} - {"in"}:
            bounds = [Condition(field, cast("FilterOperator", name), _scalars(field, [v])) for name, v in value.items()]
            conditions += bounds
        elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
            conditions.append(Condition(field, "in", _scalars(field, value)))
        else:
            conditions.append(Condition(field, "in", _scalars(field, [value])))
    return tuple(conditions)


def _scalars(field: str, values: Sequence[Any]) -> tuple[Scalar, ...]:
    if not field or not isinstance(field, str) or not values or not all(isinstance(v, Scalar) for v in values):
        shown = values[0] if len(values) == 1 else values
        raise DataError(f"the filter of {field!r} is {shown!r}; allowed: {_ALLOWED}")
    return tuple(values)
