"""Published figures of a paper as data: they are read, scaled, and flagged where they are inconsistent."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

FigureValue = float | tuple[float, float, float]
"""A value, or a value with the bounds of its interval."""

_PRINTED_IN_POINTS = frozenset({"f1", "delta", "k1", "k3", "k5", "share_5"})
"""Figures that the paper prints in points and this library in [0, 1]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """An inconsistency of a published figure.

    Attributes:
        id: A short name.
        places: ``TABLE.ROW``, or ``TABLE`` for a whole table.
        reason: Description of the contradiction.
    """

    id: str
    places: tuple[str, ...]
    reason: str


def read_published(paper: str) -> tuple[dict[str, Any], tuple[Flag, ...]]:
    """Read the bundled published figures of a paper, and their inconsistencies."""
    data = tomllib.loads(files("suffice_papers").joinpath("data", "published", f"{paper}.toml").read_text("utf-8"))
    flags = data.pop("flag")
    return data, tuple(Flag(id=flag["id"], places=tuple(flag["places"]), reason=flag["reason"]) for flag in flags)


def flagged(flags: Iterable[Flag], place: str) -> tuple[Flag, ...]:
    """Return the flags of one place: ``TABLE.ROW``, or ``TABLE`` for the flags of a whole table."""
    return tuple(flag for flag in flags if place in flag.places)


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """The figures of one paper.

    Attributes:
        title: Title of the paper.
        arxiv: Its arXiv number.
        cells: Model, retriever, corpus and setting of each published cell, by name.
        tables: Title, version, and rows of figures by name, for each of `table1` to `figure5`.
        flags: The inconsistencies of the published figures.
    """

    title: str
    arxiv: str
    cells: Mapping[str, Mapping[str, str]]
    tables: Mapping[str, Mapping[str, Any]]
    flags: tuple[Flag, ...]

    def row(self, table: str, name: str | None) -> dict[str, FigureValue]:
        """Return the figures of a row by name; empty if there is no such row.

        Figures that the paper prints in points, such as F1 and its differences, are converted to shares in [-1, 1].
        """
        figures = self.tables[table]["rows"].get(name, {}) if name is not None else {}
        return {key: _scaled(value, 0.01 if key in _PRINTED_IN_POINTS else 1.0) for key, value in figures.items()}

    def flagged(self, table: str, name: str | None = None) -> tuple[Flag, ...]:
        """Return the flags of a row, or the flags of the whole table if `name` is None."""
        return flagged(self.flags, table if name is None else f"{table}.{name}")

    def cells_of(self, setting: str) -> frozenset[str]:
        """Return the names of the published cells with this setting."""
        return frozenset(name for name, cell in self.cells.items() if cell["setting"] == setting)


def _scaled(value: Any, scale: float) -> FigureValue:
    if isinstance(value, list):
        middle, low, high = (float(part) * scale for part in value)
        return middle, low, high
    return float(value) * scale


@cache
def published_tasr() -> Published:
    """Return the published figures of TASR (arXiv 2606.13814).

    >>> published_tasr().row("table2", "qwen_hp")["calls"]
    2.71
    """
    data, flags = read_published("tasr")
    tables = {name: table for name, table in data.items() if isinstance(table, dict) and "rows" in table}
    return Published(**data["paper"], cells=data["cells"], tables=tables, flags=flags)
