"""Shared parts of the tables: means over cells with intervals, and lines with published figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats, Mask
from suffice_papers.cells import CellDeltas, macro_bootstrap
from suffice_papers.multinomial import draws_by_place
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import CellRuns

NOT_PUBLISHED = "published: -"
_NOT_COMPARED = frozenset({"rows", "rules", "ratio"})
"""Columns without a difference to published figures: counts, and quotients of figures that are compared themselves."""


def macro_means(
    resampling: Resampling, parts: Sequence[tuple[str, Mapping[str, Floats], Sequence[Any]]]
) -> tuple[dict[str, FigureValue], str]:
    """Return the means over cells of several quantities, and the reason if there are no intervals.

    Args:
        resampling: Settings of the intervals.
        parts: A tuple for each cell: its name; its quantities by key, each of shape ``(n_rows,)``; and the question of
            each row. A quantity is left out if a cell lacks it, and its mean is NaN if it was not measured for every
            question.
    """
    keys = [key for key in parts[0][1] if all(key in values for _, values, _ in parts)]
    known = [key for key in keys if all(np.isfinite(values[key]).all() for _, values, _ in parts)]
    unknown: dict[str, FigureValue] = dict.fromkeys(keys, math.nan)
    if not known:
        return unknown, "no figure was measured for every question"
    cells = [
        CellDeltas(name=name, deltas=np.stack([values[key] for key in known]), questions=list(questions))
        for name, values, questions in parts
    ]
    try:
        found = macro_bootstrap(cells, n_resamples=resampling.n_resamples, rng=resampling.seed, level=resampling.level)
    except DataError as error:  # cells that share only some of their questions
        plain = np.mean([cell.deltas.mean(axis=-1) for cell in cells], axis=0)
        return {**unknown, **dict(zip(known, plain.tolist(), strict=True))}, str(error)
    triples = zip(found.delta.tolist(), found.low.tolist(), found.high.tolist(), strict=True)
    return {**unknown, **dict(zip(known, triples, strict=True))}, ""


def cell_means(
    resampling: Resampling, cells: Sequence[CellRuns], quantities: Callable[[CellRuns], Mapping[str, Floats]]
) -> tuple[dict[str, FigureValue], str]:
    """Return the means over cells of quantities that are measured on eval questions; see `macro_means`."""
    return macro_means(resampling, [(c.cell.name, quantities(c), c.eval.clusters.tolist()) for c in cells])


def separation(resampling: Resampling, values: Floats, right: Mask, questions: Sequence[Any]) -> dict[str, FigureValue]:
    """Return the means in right rounds and in wrong rounds, and their difference, with intervals over questions."""
    draws = draws_by_place(resampling, len(values), questions)
    tail = 50 * (1 - resampling.level)
    here, resampled = {}, {}
    for name, chosen in (("right", right), ("wrong", ~right)):
        here[name] = float(values[chosen].mean())
        counts = draws.sums(chosen.astype(np.float64))
        sums = draws.sums(np.where(chosen, values, 0.0))
        resampled[name] = np.divide(sums, counts, out=np.full(len(sums), here[name]), where=counts > 0)
    here["separation"] = here["right"] - here["wrong"]
    resampled["separation"] = resampled["right"] - resampled["wrong"]
    ends = {name: np.percentile(drawn, [tail, 100 - tail]).tolist() for name, drawn in resampled.items()}
    return {name: (value, *ends[name]) for name, value in here.items()}


def interval_note(resampling: Resampling) -> str:
    """Describe the intervals in a note."""
    return (
        f"[low, high] = {100 * resampling.level:g} % intervals: percentile bootstrap over questions, "
        f"{resampling.n_resamples:,} draws, seed {resampling.seed}, shared by cells with the same questions"
    )


def value_of(figure: FigureValue) -> float:
    """Return a figure without its interval."""
    return figure[0] if isinstance(figure, tuple) else figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The layout of a table of the paper: its columns, and published figures below recomputed figures.

    Attributes:
        key: Key of the published table, such as `table2`.
        title: Title of the table.
        heads: Columns of text before the figures.
        columns: The figures by key, in order.
        published: The paper.
    """

    key: str
    title: str
    heads: tuple[str, ...]
    columns: Mapping[str, Column]
    published: Published

    def table(self, rows: Iterable[tuple[Any, ...]], notes: Iterable[str]) -> Table:
        """Return the table; after its notes follow the flags of the published table and of its rows."""
        lines = tuple(rows)
        row_flags = {
            flag.id: flag.reason for flag in self.published.flags if any(f"[{flag.id}]" in row[-1] for row in lines)
        }
        compared = any(row[len(self.heads)] == "published" for row in lines)
        table_flags = {flag.id: flag.reason for flag in self.published.flagged(self.key)} if compared else {}
        return Table(
            title=self.title,
            columns=(
                *(Column(name) for name in self.heads),
                Column("figures"),
                *self.columns.values(),
                Column("remarks"),
            ),
            rows=lines,
            notes=(
                *dict.fromkeys(notes),
                *(f"published [{name}]: {why}" for name, why in {**table_flags, **row_flags}.items()),
            ),
        )

    def lines(
        self,
        heads: tuple[Any, ...],
        here: Mapping[str, FigureValue],
        row: str | None = None,
        *,
        remark: str = "",
        earlier: Sequence[str] = (),
    ) -> list[tuple[Any, ...]]:
        """Return the line of recomputed figures and, if published figures exist, their line and a line of differences.

        Args:
            heads: Text before the figures.
            here: The recomputed figures by key; missing keys are undefined.
            row: The published row; None, or a row that does not exist, if nothing comparable was published.
            remark: A remark for the line of recomputed figures.
            earlier: Further published rows, which are shown but not compared.
        """
        published = self.published.row(self.key, row)
        ours = (*heads, "here", *(_with_bounds(here.get(key)) for key in self.columns))
        if not published:
            return [(*ours, f"{remark}; {NOT_PUBLISHED}" if remark else NOT_PUBLISHED)]
        compared = {key: published.get(key) for key in self.columns if key not in _NOT_COMPARED}
        differences = [_minus_published(here.get(key), compared.get(key)) for key in self.columns]
        outside = [
            self.columns[key].name
            for key, theirs in compared.items()
            if _outside(here.get(key), theirs, self.columns[key])
        ]
        mark = f"published outside our interval: {'; '.join(outside)}" if outside else ""
        return [
            (*ours, remark),
            self._published(heads, row, "published"),
            *(self._published(heads, name, f"published ({name})") for name in earlier),
            (*heads, "difference", *differences, mark),
        ]

    def _published(self, heads: tuple[Any, ...], row: str | None, label: str) -> tuple[Any, ...]:
        figures = self.published.row(self.key, row)
        flags = " ".join(f"[{flag.id}]" for flag in self.published.flagged(self.key, row))
        return (*heads, label, *(figures.get(key) for key in self.columns), flags)


def _with_bounds(figure: FigureValue | None) -> FigureValue | None:
    """Return a figure without its interval if the interval is undefined or has width 0, as for the calls of a fixed budget."""
    return figure if _bounded(figure) or not isinstance(figure, tuple) else figure[0]


def _bounded(figure: FigureValue | None) -> bool:
    return isinstance(figure, tuple) and figure[2] - figure[1] > ROUNDING


def _minus_published(ours: FigureValue | None, theirs: FigureValue | None) -> float | None:
    return None if ours is None or theirs is None else value_of(ours) - value_of(theirs)


def _outside(ours: FigureValue | None, theirs: FigureValue | None, column: Column) -> bool:
    """Return whether the published value is outside the recomputed interval by more than its rounding."""
    if theirs is None or not isinstance(ours, tuple) or math.isnan(ours[1] + ours[2]):
        return False
    digits = int(column.spec.rstrip("f").rpartition(".")[2])
    rounding = 0.5 * 10**-digits / column.scale + ROUNDING
    return not ours[1] - rounding <= value_of(theirs) <= ours[2] + rounding
