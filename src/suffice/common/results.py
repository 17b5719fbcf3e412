"""Base class of the results of evaluations, which show themselves as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any

from suffice.common.display import Displayed
from suffice.common.tables import Table


class Inlined:
    """Base of values whose fields are put directly into a result's JSON, beside its other fields."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Displayed):
    """Base of an evaluation's figures; a subclass adds fields, and defines `table` or, if it has several, `tables`."""

    def tables(self) -> Sequence[Table]:
        """Return all tables, the most important first."""
        return [self.table()]

    def table(self) -> Table:
        """Return the most important table."""
        return self.tables()[0]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values by field, with the fields of `Inlined` values; NaN and infinities become None."""
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            values |= value.to_dict() if isinstance(value, Inlined) else {field.name: jsonable(value)}
        return values


def jsonable(value: Any) -> Any:
    """Convert nested values to JSON-ready ones: text keys, lists, paths as text, None for NaN and infinities.

    >>> jsonable({1: (0.5, float("nan")), "path": Path("runs/a.parquet")})
    {'1': [0.5, None], 'path': 'runs/a.parquet'}
    """
    if is_dataclass(value) and not isinstance(value, type):
        if hasattr(value, "to_dict"):
            return jsonable(value.to_dict())
        return {field.name: jsonable(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    # Any path: that of a URL is not a `Path`.
    return str(value) if isinstance(value, Path) or hasattr(value, "with_suffix") else value
