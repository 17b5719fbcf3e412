"""The common form of reproduced papers: tables, a summary for one screen, figures, and contradictions in the paper."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class PaperFigure:
    """A reproduced figure of a paper.

    Attributes:
        name: Name of its file, without an ending.
        spec: The chart, a Vega-Lite specification.
        caption: The caption, with the figure's number in the paper.
    """

    name: str
    spec: Mapping[str, Any]
    caption: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paper(Result):
    """The reproduced tables of a paper.

    Attributes:
        title: Common title of the tables.
        headline: The result in one sentence.
        summary: A table of the most important figures, narrow enough for one screen.
        parts: All tables: provenance first, contradictions between published figures last.
        not_made: Reasons why parts could not be computed, by name.
        figures: The reproduced figures, if their points could be computed.
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
            DataError: The files cannot be written.
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
    """Return a table of the provenance of a paper's tables; the version of this library is added."""
    return Table(
        title="How these tables were made",
        columns=(Column("what"), Column("value")),
        rows=(*facts, ("suffice", __version__)),
        notes=tuple(notes),
    )


def not_made_table(not_made: Mapping[str, str]) -> list[Table]:
    """Tabulate the parts that could not be computed, with reasons; return an empty list if all parts were computed."""
    columns = (Column("what"), Column("why"))
    return [Table(title=NOT_MADE, columns=columns, rows=tuple(not_made.items()))] if not_made else []


NOT_MADE = "Not made"
"""Title of the table of parts that could not be computed."""


def flags_table(flags: Sequence[Flag]) -> Table:
    """Tabulate the published figures that contradict each other."""
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
    """Return a table with only the named columns, without notes; names of missing columns are ignored."""
    places = [place for place, column in enumerate(table.columns) if column.name in columns]
    return replace(
        table,
        columns=tuple(table.columns[place] for place in places),
        rows=tuple(tuple(row[place] for place in places) for row in table.rows),
        notes=(),
    )
