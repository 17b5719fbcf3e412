"""What every reproduced paper has: tables for a page, one of them for a screen, and a list of published contradictions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice._version import __version__
from suffice.common.display import Chart
from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice_papers.published import Flag

__all__ = ["NOT_MADE", "Paper", "PaperFigure", "flags_table", "narrow", "not_made_table", "origin_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """A figure of a paper, drawn.

    Attributes:
        name: Of its file, without an ending.
        spec: The chart, a Vega-Lite specification.
        caption: What it shows, with its number in the paper.
    """

    name: str
    spec: Mapping[str, Any]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper(Result):
    """The reproduced tables of a paper.

    Attributes:
        title: What the tables are called together.
        headline: The result in one sentence.
        summary: The most important figures, narrow enough for one screen.
        parts: All tables, provenance first, published contradictions last.
        not_made: Reasons of parts that could not be made, by name.
        figures: The figures for which there are points.
    """

    title: str
    headline: str
    summary: Table
    parts: tuple[Table, ...]
    not_made: Mapping[str, str] = field(default_factory=dict)
    figures: tuple[PaperFigure, ...] = ()

    def write_figures(self, folder: str | Path) -> list[Path]:
        """Write each figure as an SVG file, and return the files.

        Raises:
            DataError: They cannot be written there.
            MissingExtraError: The extra `charts` is not installed.
        """
        paths = [Path(folder, f"{figure.name}.svg") for figure in self.figures]
        for figure, path in zip(self.figures, paths, strict=True):
            Chart(figure.spec).save(path)
        return paths

    def tables(self) -> Sequence[Table]:
        """Return all tables in the order of the page."""
        return self.parts

    def table(self) -> Table:
        """Return the table for one screen."""
        return self.summary

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "headline": self.headline,
            "tables": [table.to_dict() for table in self.parts],
            "not_made": dict(self.not_made),
        }


def origin_table(facts: Iterable[tuple[str, str]], notes: Sequence[str] = ()) -> Table:
    """Return where the tables of a paper come from, the version of this library last."""
    return Table(
        title="How these tables were made",
        columns=(Column("what"), Column("value")),
        rows=(*facts, ("suffice", __version__)),
        notes=tuple(notes),
    )


def not_made_table(not_made: Mapping[str, str]) -> list[Table]:
    """Return what could not be made and why, as a table; nothing if everything was."""
    columns = (Column("what"), Column("why"))
    return [Table(title=NOT_MADE, columns=columns, rows=tuple(not_made.items()))] if not_made else []


NOT_MADE = "Not made"
"""The title of that table."""


def flags_table(flags: Sequence[Flag]) -> Table:
    """Return the published figures that contradict each other."""
    return Table.of(
        "Published figures that do not fit together",
        flags,
        {
            Column("flag"): "id",
            Column("where"): lambda flag: ", ".join(flag.places),
            Column("why"): "reason",
        },
    )


def narrow(table: Table, columns: Sequence[str]) -> Table:
    """Return a table with only the named columns, without notes; names that it lacks are ignored."""
    places = [place for place, column in enumerate(table.columns) if column.name in columns]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in table.rows),
        notes=(),
    )
