"""Large tables, imported part by part: memory holds some thousand rows and some numbers for each question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from suffice.adapters.base import ColumnReading, ImportedRun
from suffice.adapters.columnar import RecordingPart, columnar_part
from suffice.adapters.golds import GoldAnswers, joined_golds
from suffice.adapters.grid import group_trajectories
from suffice.adapters.records import Record
from suffice.adapters.summary import ColumnCount, RoundMeans, column_counts
from suffice.adapters.table_parts import PartedTable, TableOptions, UnevenError, is_large
from suffice.adapters.tabular import runs_note
from suffice.adapters.tally import Tally
from suffice.rounds import End
from suffice.store.opened import write_tables
from suffice.store.schema import build_table
from suffice.tables import counted

__all__ = ["StreamedRun", "stream_tabular"]

_MEAN_METRICS = ("em", "f1")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamedRun:
    """A run whose rows are on disk, in parts; see `ImportedRun`.

    Attributes:
        source: The format.
        parts: Parquet files of rows, in order.
        schema: The columns of all parts.
        notes: Caveats for results.
        readings: What the columns were read as.
        depends: What the signals depend on.
        ends: How many trajectories ended how.
        clusters: How many questions there are.
        rounds: The most rounds of one trajectory.
        columns: What happened to the values, by column.
        by_round: Means by round.
    """

    source: str
    parts: Sequence[Path]
    schema: pa.Schema
    notes: Sequence[str]
    readings: Sequence[ColumnReading]
    depends: Mapping[str, Any]
    ends: Mapping[str, int]
    clusters: int
    rounds: int
    columns: tuple[ColumnCount, ...]
    by_round: tuple[RoundMeans, ...]

    def write(self, out: Path, metadata: Mapping[str, Any]) -> None:
        """Write the recording, one part in memory at a time."""
        write_tables(out, self.schema, map(self._table, self.parts), metadata)

    def _table(self, part: Path) -> pa.Table:
        table = pq.read_table(part, partitioning=None)
        for name in self.schema.names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), self.schema.field(name).type))
        return table.select(self.schema.names).cast(self.schema)


def stream_tabular(
    path: Path,
    folder: Callable[[], Path],
    columns: Mapping[str, str] | None = None,
    *,
    golds: str | Path | None = None,
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: int | None = None,
    ended: End | None = None,
) -> StreamedRun | None:
    """Read a large table part by part, in the same way as `read_tabular`; its columns are guessed from the first rows.

    Args:
        path: The table, or a folder of tables.
        folder: Returns an empty folder for the parts.
        columns: See `read_tabular`, as for the other options.
        golds: See `join_golds`.
        metrics: See `read_tabular`.
        labels: See there.
        log_golds: See there.
        first_round: See there.
        ended: See there.

    Returns:
        The run; None if the table is small, is one large JSON document, or has records of different shapes.

    Raises:
        UnsettledError: As `read_tabular`.
        DataError: As `read_tabular`; a metric may leave [0, 1] after the first rows.
    """
    if not is_large(path):
        return None
    options = TableOptions(
        columns=columns or {},
        metrics=metrics or {},
        labels=labels or {},
        log_golds=log_golds,
        first_round=first_round,
        ended=ended,
    )
    parts = folder()
    try:
        table = PartedTable(path, parts, options)
    except UnevenError:
        return None
    ask_golds = log_golds is None and "golds" not in options.columns
    return _Import(path, table, None if golds is None else GoldAnswers(golds)).run(parts, ask_golds=ask_golds)


class _Import:
    """What the parts of a table add up to."""

    def __init__(self, path: Path, table: PartedTable, golds: GoldAnswers | None) -> None:
        self._path, self._table, self._golds = path, table, golds
        self._tally, self._totals = Tally(), _Totals()
        self._texts = {name for own in table.texts for name in (own, f"imported_{own}")}
        self._questions: Mapping[str, str] = {}

    def run(self, folder: Path, *, ask_golds: bool) -> StreamedRun:
        """Write the parts of the recording to a folder."""
        table = self._table
        files, schemas, clusters = [], [], []
        several = 0
        for number, (rows, self._questions) in enumerate(table.parts()):
            part = self._part(rows)
            several += sum(n > 1 for n in Counter(self._questions.values()).values())
            self._totals.add(part)
            clusters.append(np.array([*map(hash, part.table.column("cluster").unique().to_pylist())]))
            files.append(folder / f"{number}.parquet")
            pq.write_table(part.table, files[-1])
            schemas.append(part.table.schema)
        self._tally.refuse_differing_golds(str(self._path), table.grid)
        if ask_golds:
            self._tally.refuse_copied_golds(table.plan.columns)
        skipped = [f"{counted(table.skipped, 'record')} without a round left out"] if table.skipped else []
        return StreamedRun(
            source="tabular",
            parts=files,
            schema=pa.unify_schemas(schemas, promote_options="permissive"),
            notes=[
                *table.notes,
                *([table.shape.how] if table.shape.how else []),
                *skipped,
                *([runs_note(several, table.plan, table.run)] if table.run else []),
                *self._tally.notes(table.plan, table.grid),
                *([] if self._golds is None else [self._golds.note()]),
                "a large table: its columns were guessed from the first rows",
            ],
            readings=table.plan.readings,
            depends=self._tally.depends(),
            ends=dict(self._tally.ends),
            clusters=len(np.unique(np.concatenate(clusters))),
            rounds=max(self._tally.lengths),
            columns=self._totals.columns(),
            by_round=self._totals.by_round(),
        )

    def _cluster(self, name: str, question: str) -> str:
        return self._table.cluster(self._questions.get(name, name), question)

    def _part(self, rows: Sequence[Record]) -> RecordingPart:
        """Return a part of the recording."""
        grid, formulas, texts = self._table.grid, self._table.formulas, self._texts
        part = columnar_part(
            rows, grid, formulas, tally=self._tally, cluster_of=self._cluster, golds=self._golds, texts=texts
        )
        if part is not None:
            return part
        records = [(row.where, {**row.values, **{name: make(row) for name, make in formulas.items()}}) for row in rows]
        trajectories = group_trajectories(records, grid, str(self._path), differing=self._tally.add_differing)
        if "cluster" not in grid.columns:
            trajectories = [
                replace(item, cluster=self._cluster(item.question_id, item.question)) for item in trajectories
            ]
        self._tally.add(trajectories)
        if self._golds is not None:
            trajectories = [joined_golds(item, self._golds) for item in trajectories]
        run = ImportedRun(source="tabular", trajectories=trajectories)
        table_rows = run.rows()
        return RecordingPart(table=build_table(table_rows, run.kinds(), texts), counts=column_counts(run, table_rows))


class _Totals:
    """What happened to values, and means by round, over all parts."""

    def __init__(self) -> None:
        self._counts: dict[str, ColumnCount] = {}
        self._rounds: dict[int, Counter[str]] = {}

    def add(self, part: RecordingPart) -> None:
        for item in part.counts:
            old = self._counts.get(item.name, ColumnCount(name=item.name, defined=0, computed=item.computed))
            self._counts[item.name] = replace(
                old,
                defined=old.defined + item.defined,
                nulled=old.nulled + item.nulled,
                clipped=old.clipped + item.clipped,
            )
        rounds = part.table.column("round").to_numpy()
        for r in np.unique(rounds).tolist():
            sums = self._rounds.setdefault(r, Counter())
            sums["n"] += int((rounds == r).sum())
            for name in set(_MEAN_METRICS) & {*part.table.column_names}:
                values = part.table.column(name).to_numpy()[rounds == r]
                known = values[~np.isnan(values)]
                sums[f"{name}_n"] += len(known)
                sums[name] += known.sum()

    def columns(self) -> tuple[ColumnCount, ...]:
        return tuple(self._counts.values())

    def by_round(self) -> tuple[RoundMeans, ...]:
        return tuple(
            RoundMeans(
                round=r,
                n=sums["n"],
                scored=sums["em_n"],
                em=sums["em"] / sums["em_n"] if sums["em_n"] else math.nan,
                f1=sums["f1"] / sums["f1_n"] if sums["f1_n"] else math.nan,
            )
            for r, sums in sorted(self._rounds.items())
        )
