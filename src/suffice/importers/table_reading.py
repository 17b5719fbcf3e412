"""Read a table of rounds, whole or in parts, as columns, and collect notes on it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from suffice.common.tables import counted
from suffice.importers.grid import Grid
from suffice.importers.guesses import ColumnMap
from suffice.importers.records import Record
from suffice.importers.round_columns import RoundColumns
from suffice.importers.runs import RowOrder, Run, runs_notes
from suffice.importers.shapes import Shape
from suffice.importers.table_rounds import read_rows
from suffice.importers.tally import Tally


class TableSource(Protocol):
    """A table whose columns were guessed.

    Attributes:
        shape: The form in which the file contains the rows.
        plan: The meaning of the columns.
        grid: Settings for reading the rows.
        notes: Notes on how rows are read.
        order: The order that numbers the rows, if no column counts them.
        run: The means by which runs of a question are told apart, from `RunColumns.choice`.
        skipped: Number of records without any round.
        formulas: Columns that are computed from others, by name.
    """

    shape: Shape
    plan: ColumnMap
    grid: Grid
    notes: list[str]
    order: RowOrder | None
    run: Run | None
    skipped: int
    formulas: Mapping[str, Callable[[Record], Any]]

    def parts(self) -> Iterator[tuple[list[Record], Mapping[str, str]]]:
        """Yield the rows of some whole questions, with the question of each id if a question has several runs."""

    def clusters(self, names: Sequence[str], texts: Sequence[str]) -> list[str]:
        """Return the cluster of each question, by its name and text."""


class TableReader:
    """Reads a table as columns.

    Args:
        path: The table, or a folder of tables.
        source: Its rows.

    Attributes:
        tally: Counts over its trajectories; complete once all parts are read.
    """

    def __init__(self, path: Path, source: TableSource) -> None:
        self._path, self._source = str(path), source
        self.tally = Tally()
        self._several = 0

    def parts(self) -> Iterator[RoundColumns]:
        """Yield the rounds of some questions.

        Raises:
            DataError: A value cannot be used; the message names file and row.
            UnsettledError: The rows can be read in several ways.
        """
        source, tally = self._source, self.tally
        for rows, questions in source.parts():
            columns = read_rows(rows, source.grid, self._path, formulas=source.formulas, differing=tally.add_differing)
            self._several += sum(n > 1 for n in Counter(questions.values()).values())
            if "cluster" not in source.grid.columns:
                names = [questions.get(name, name) for name in columns.question_ids]
                columns.clusters = source.clusters(names, columns.questions)
            tally.add(columns)
            yield columns

    def check(self, *, ask_golds: bool) -> None:
        """Raise if the column of gold answers is probably something else.

        Args:
            ask_golds: Whether to ask about gold answers that equal the model's answers.

        Raises:
            DataError: They differ between the rows of more than a few questions.
            UnsettledError: They equal the answers, or nearly.
        """
        self.tally.refuse_differing_golds(self._path, self._source.grid)
        if ask_golds:
            self.tally.refuse_copied_golds(self._source.plan.columns)

    def notes(self) -> list[str]:
        """Return the caveats about the table."""
        source = self._source
        skipped = [f"{counted(source.skipped, 'record')} without a round left out"] if source.skipped else []
        return [
            *source.notes,
            *([source.shape.how] if source.shape.how else []),
            *skipped,
            *(runs_notes(self._several, source.plan, source.run, source.order) if source.run else []),
            *self.tally.notes(source.plan, source.grid),
        ]
