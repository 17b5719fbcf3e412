"""Large tables, imported part by part: memory holds some thousand rows and some numbers for each question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from suffice.common.tables import counted
from suffice.importers.base import ColumnReading, ImportedRun
from suffice.importers.columnar import RecordingPart, columnar_part
from suffice.importers.golds import GoldAnswers, joined_golds
from suffice.importers.grid import group_trajectories
from suffice.importers.records import Record
from suffice.importers.runs import runs_notes
from suffice.importers.summary import ColumnCount, RoundMeans, column_counts, match_of_row
from suffice.importers.table_parts import PartedTable, TableOptions, UnevenError, is_large
from suffice.importers.tally import Tally
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.policy.rounds import End
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import build_table, metric_field

__all__ = ["StreamedRun", "stream_tabular"]

_MEAN_METRICS = ("em", "f1")


@dataclass(slots=True, kw_only=True)
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

    def texts(self, name: Literal["answer", "golds"]) -> PartTexts:
        """Return the answers, or the gold answers, part by part."""
        return PartTexts(self.parts, name)

    def write(self, out: Path, metadata: Mapping[str, Any], normalizer: str = DEFAULT_NORMALIZER) -> None:
        """Write the recording, one part in memory at a time; a normalizer of its own adds the metric `match`."""
        means = _Means()
        schema = self.schema
        if normalizer != DEFAULT_NORMALIZER and any(True for _ in self.texts("golds")):
            schema = schema.append(metric_field(MATCH))
        tables = (means.add(self._table(part, schema, normalizer)) for part in self.parts)
        write_tables(out, schema, tables, metadata)
        if MATCH in schema.names:
            self.by_round = tuple(replace(item, match=means.of(item.round)) for item in self.by_round)

    def _table(self, part: Path, schema: pa.Schema, normalizer: str) -> pa.Table:
        table = pq.read_table(part, partitioning=None)
        if MATCH in schema.names:
            rows = table.select([name for name in ("answer", "golds", "em") if name in table.column_names]).to_pylist()
            values = [match_of_row(row, normalizer) for row in rows]
            table = table.append_column(schema.field(MATCH), pa.array(values, pa.float64(), from_pandas=True))
        for name in schema.names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
        return table.select(schema.names).cast(schema)


class PartTexts(Collection[str]):
    """The answers, or the gold answers, of a run in parts; each part is read anew, and blank texts are left out."""

    def __init__(self, parts: Sequence[Path], name: str) -> None:
        self._parts, self._name = parts, name

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            if self._name not in pq.read_schema(part).names:
                continue
            column = pq.read_table(part, columns=[self._name], partitioning=None).column(0)
            texts = column.combine_chunks().flatten() if pa.types.is_list(column.type) else column
            yield from (text for text in texts.unique().to_pylist() if text and text.strip())

    def __contains__(self, text: object) -> bool:
        return any(text == own for own in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


class _Means:
    """Means of `match` by round, over all parts."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, int]] = {}

    def add(self, table: pa.Table) -> pa.Table:
        """Count a part, and return it."""
        if MATCH in table.column_names:
            rounds, values = (table.column(name).to_numpy() for name in ("round", MATCH))
            for r in np.unique(rounds).tolist():
                known = values[(rounds == r) & ~np.isnan(values)]
                total, n = self._sums.get(r, (0.0, 0))
                self._sums[r] = total + float(known.sum()), n + len(known)
        return table

    def of(self, r: int) -> float:
        """Return the mean of a round; NaN where it is unknown."""
        total, n = self._sums.get(r, (0.0, 0))
        return total / n if n else math.nan


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
                *(runs_notes(several, table.plan, table.run, table.order) if table.run else []),
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
