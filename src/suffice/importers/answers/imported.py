"""The result of an importer: trajectories of rounds, with caveats for the reader."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suffice.errors import DataError
from suffice.importers.answers.columnar import recording_part
from suffice.importers.rounds.round_columns import columns_of
from suffice.importers.rounds.trajectories import ColumnReading, ImportedTrajectory


@dataclass(slots=True, kw_only=True)
class ImportedRun:
    """A recorded run.

    Attributes:
        source: The format of the source, such as `tabular` or `debate`.
        trajectories: The trajectories, in the order of the files.
        notes: Caveats for results: data that were truncated, left out, repaired, or are unknown.
        depends: The configuration on which signals depend (`embedder`: id, revision and pooling).  Policies fitted on the run are valid
        only for this configuration.
        readings: The meaning of each column of the files, guessed or given.
        expected: Names of alarms that never apply to files of this format, and are therefore accepted.
    """

    source: str
    trajectories: list[ImportedTrajectory]
    notes: list[str] = field(default_factory=list)
    readings: list[ColumnReading] = field(default_factory=list)
    depends: Mapping[str, Any] = field(default_factory=dict)
    expected: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        ids: set[str] = set()
        for trajectory in self.trajectories:
            if trajectory.question_id in ids:
                raise DataError(
                    f"question id {trajectory.question_id!r:.80} occurs twice in this {self.source} run; each trajectory needs "
                    "its own"
                )
            ids.add(trajectory.question_id)

    def rows(self) -> list[dict[str, Any]]:
        """Return one mapping for each question and round, ready for `suffice.recordings.write_recording`.

        Signals that can be computed from the answers (`answer_stable`, ...) are computed if the files lack them.
        """
        table, _ = recording_part(columns_of(self.trajectories))
        rows: list[dict[str, Any]] = table.to_pylist()
        return rows

    def kinds(self) -> dict[str, str]:
        """Return the kind of each column whose name alone does not show its kind, for `suffice.recordings.write_recording`."""
        return columns_of(self.trajectories).kinds
