"""Add outcomes that become known after a run was recorded.

The run is recorded again with these outcomes, and the new copy counts.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from suffice.recordings.merging import AMENDED, INFERRED, RUN
from suffice.recordings.opened import read_again
from suffice.recordings.parts import opened_parts, part_paths
from suffice.recordings.round_journal import Changes
from suffice.recordings.schema import stated_kind

_OF_A_RUN = frozenset({"question_id", "end", RUN, INFERRED})
"""Columns that a journal stores once for each run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredRun:
    """A run that is stored in a folder of parts.

    Attributes:
        rows: The rows of the run's rounds, in order.
        kinds: The kinds of the columns of these rows.
    """

    rows: Sequence[Mapping[str, Any]]
    kinds: Mapping[str, str]

    def amended(self, metrics: Sequence[Mapping[str, float | None]], end: str | None = None) -> Changes:
        """Return the changes that record the run again, with these metrics and this reason for its end.

        Args:
            metrics: Metrics of each round, which replace those that are stored.
            end: The reason for the end; None = as stored.
        """
        changes, first, now = Changes(), self.rows[0], time.time()
        kinds = {**self.kinds, **dict.fromkeys((name for own in metrics for name in own), "metric")}
        kinds[AMENDED] = "provenance"
        changes.begin(first[RUN], {"cluster": first["cluster"], AMENDED: now})
        for row, own in zip(self.rows, metrics, strict=True):
            kept = {name: value for name, value in row.items() if name not in _OF_A_RUN and _is_kept(name, value)}
            changes.put(first[RUN], row["round"], {"columns": {**kept, **own, AMENDED: now}, "kinds": kinds})
        end = end or first["end"]
        why = end if end == "failed" else ""
        changes.end(first[RUN], {"end": end, "inferred": bool(first[INFERRED]), "why": why})
        return changes


def stored_runs(folder: Path, column: str, value: str) -> list[StoredRun]:
    """Return the runs whose rows have the text `value` in a column; the rows are those of a folder of parts.

    Of several copies of a run, the copy that was amended last is returned.

    Args:
        folder: The recording.
        column: A column of text that is the same in all rounds of a run.
        value: The text to find.

    Raises:
        SchemaError: A part is damaged.
    """
    return read_again(lambda: _stored_runs(folder, column, value))


def _stored_runs(folder: Path, column: str, value: str) -> list[StoredRun]:
    found: dict[str, StoredRun] = {}
    for part in opened_parts(folder) if part_paths(folder) else ():
        with part:
            if not {column, RUN} <= set(part.schema.names):
                continue
            ids = pa.concat_tables(part.tables(columns=[RUN, column]))
            for run in pc.unique(ids.filter(pc.equal(ids.column(column), value)).column(RUN)).to_pylist():
                table = part.table()
                stored = StoredRun(
                    rows=table.filter(pc.equal(table.column(RUN), run)).to_pylist(),
                    kinds={field.name: kind for field in table.schema if (kind := stated_kind(field))},
                )
                found[run] = max(stored, found.get(run, stored), key=_time_amended)
    return [*found.values()]


def _time_amended(stored: StoredRun) -> float:
    return float(stored.rows[0].get(AMENDED) or 0.0)


def _is_kept(name: str, value: Any) -> bool:
    """Return True if a value is kept: it is not None, or it is a cost.

    A cost of None is kept, because a missing cost would count as zero instead of unknown.
    """
    return value is not None or name.startswith("cost.")
