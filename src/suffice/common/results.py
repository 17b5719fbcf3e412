"""Base class of evaluation results, which can be shown as tables and as JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import Field, dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from suffice.common.tables import Table, render

if TYPE_CHECKING:
    from suffice.common.display.table_html import Library


class Inlined:
    """Base of values whose fields are stored directly in a result's JSON, next to its other fields."""

    __slots__ = ()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values by field."""
        raise NotImplementedError


NOT_IN_JSON = {"json": "never"}
"""Metadata of a field that a result's JSON leaves out."""

UNLESS_EMPTY = {"json": "unless empty"}
"""Metadata of a field that a result's JSON leaves out while it is None or empty."""

UNLESS_DEFAULT = {"json": "unless default"}
"""Metadata of a field that a result's JSON leaves out while it has its default value."""

BESIDE = {"json": "beside"}
"""Metadata of a field, a mapping, whose items are put directly into a result's JSON, as those of `Inlined` values are."""


class Tagged:
    """Base of stored values of several kinds: their JSON begins with a tag that identifies the kind."""

    __slots__ = ()
    tag: ClassVar[tuple[str, str]]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values: the tag, then the fields."""
        key, kind = self.tag
        return {key: kind, **_by_field(self)}


class Displayed:
    """Base of results that have tables: shows them in a notebook and gives them as data frames."""

    __slots__ = ()

    def tables(self) -> Sequence[Table]:
        """Return all tables, the most important first."""
        raise NotImplementedError

    @property
    def lead(self) -> str:
        """A sentence to show before the tables, or nothing."""
        return ""

    def __str__(self) -> str:
        """Return the leading sentence and the most important table as Markdown text."""
        return "\n\n".join(filter(None, [self.lead, render(self.tables()[:1], "md").rstrip()]))

    def to_frame(self, library: Library | None = None, *, table: int = 0) -> Any:
        """Return a table as a data frame, with raw values: shares from 0 to 1, an interval as three columns.

        Args:
            library: `pandas`, `polars` or `pyarrow`; None = pandas if it is installed, else pyarrow.
            table: Position of the table in `tables()`.

        Raises:
            DataError: The library is unknown or not installed.
        """
        from suffice.common.display.table_html import arrow_table, frame_of

        return frame_of(arrow_table(self.tables()[table]), library)

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        from suffice.common.display.table_html import arrow_table

        return arrow_table(self.tables()[0]).__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        from suffice.common.display.table_html import notebook_html

        return notebook_html(self.lead, self.tables())


@dataclass(frozen=True, slots=True, kw_only=True)
class Result(Displayed):
    """Base of an evaluation's figures; a subclass adds fields and defines `table` or, for several, `tables`.

    Attributes:
        json_first: Names of properties that come before the fields in the result's JSON.
    """

    json_first: ClassVar[tuple[str, ...]] = ()

    def tables(self) -> Sequence[Table]:
        """Return all tables, the most important first."""
        return [self.table()]

    def table(self) -> Table:
        """Return the most important table."""
        return self.tables()[0]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values by field; NaN and infinities become None. Fields that their metadata excludes are left out."""
        return {**{name: jsonable(getattr(self, name)) for name in self.json_first}, **_by_field(self)}


def _by_field(item: Any) -> dict[str, Any]:
    """Return a dataclass as JSON-ready values; the values of `Inlined` and `BESIDE` fields are merged in."""
    values: dict[str, Any] = {}
    for field in fields(item):
        value = getattr(item, field.name)
        if isinstance(value, Inlined):
            values |= value.to_dict()
        elif _is_shown(field, value):
            shown = jsonable(value)
            values |= shown if field.metadata.get("json") == "beside" else {field.name: shown}
    return values


def _is_shown(field: Field[Any], value: Any) -> bool:
    """Return True if JSON includes a field: the field is not computed from other fields, and its metadata allows it."""
    when = field.metadata.get("json")
    is_empty = value is None or (not value and not isinstance(value, int | float))
    is_left_out = (when == "unless empty" and is_empty) or (when == "unless default" and value == field.default)
    return field.init and when != "never" and not is_left_out


def _fields_of(item: Any) -> dict[str, Any]:
    """Return the fields of a dataclass by name, without those that their metadata excludes."""
    own = {field: getattr(item, field.name) for field in fields(item)}
    return {
        field.name: value for field, value in own.items() if "json" not in field.metadata or _is_shown(field, value)
    }


def jsonable(value: Any) -> Any:
    """Convert nested values to JSON-ready ones: text keys, lists, paths as text, None for NaN and infinities.

    >>> jsonable({1: (0.5, float("nan")), "path": Path("runs/a.parquet")})
    {'1': [0.5, None], 'path': 'runs/a.parquet'}
    """
    if value is None or isinstance(value, str | int):
        return value  # most values
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if is_dataclass(value) and not isinstance(value, type):
        return jsonable(value.to_dict() if hasattr(value, "to_dict") else _fields_of(value))
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    # Any path: that of a URL is not a `Path`.
    return str(value) if isinstance(value, Path) or hasattr(value, "with_suffix") else value
