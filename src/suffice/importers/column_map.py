"""The meaning of a table's columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from suffice.importers.records import Record
from suffice.importers.trajectories import ColumnReading

WITHIN = "no column has them"
"""The reading of a count that another count contains."""


@dataclass(slots=True)
class ColumnMap:
    """The columns to read, each with its meaning, and the columns to compute.

    Attributes:
        columns: The file's column for each of this library's names.
        metrics: The file's columns for the user's own metrics, by name.
        labels: The file's columns for labels, by name.
        formulas: Columns that are computed from others, by name.
        readings: The meaning of each column, to show to the user.
        notes: Columns with usual names that cannot be used, with the reasons.
    """

    columns: dict[str, str]
    metrics: dict[str, str]
    labels: dict[str, str]
    formulas: dict[str, Callable[[Record], Any]] = field(default_factory=dict)
    readings: list[ColumnReading] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def read(self, ours: str, theirs: str, how: str = "usual name", shown: str = "") -> None:
        """Read the file's column `theirs` as this library's column `ours`."""
        self.columns[ours] = theirs
        self.readings.append(ColumnReading(ours=ours, theirs=shown or theirs, how=how))

    def drop(self, ours: str) -> None:
        """Undo the reading of a column as `ours`."""
        self.columns.pop(ours, None)
        self.readings[:] = [item for item in self.readings if item.ours != ours]
