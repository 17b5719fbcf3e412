"""Import runs as parts of a recording, in memory, or on disk if a table is large."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from suffice.importers.base import ImportedRun
from suffice.importers.columnar import RecordingPart, join_golds, ordered_names, recording_part
from suffice.importers.golds import GoldAnswers
from suffice.importers.round_columns import RoundColumns, columns_of
from suffice.importers.summary import ColumnCount, RoundMeans, match_of_row
from suffice.importers.table_parts import PartedTable, UnevenError, is_large
from suffice.importers.table_reading import TableReader
from suffice.importers.tabular import TableOptions, WholeTable
from suffice.importers.trajectories import ColumnReading
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import metric_field

_MEAN_METRICS = ("em", "f1")


@dataclass(slots=True, kw_only=True)
class PartedRun:
    """A run as parts of a recording, in memory or on disk.

    Attributes:
        source: The format.
        parts: Tables of rows in order, or their parquet files.
        schema: The columns of all parts.
        notes: Caveats for results.
        readings: The meaning of the files' columns.
        depends: The configuration on which signals depend.
        ends: Number of trajectories by the reason for their end.
        clusters: Number of questions.
        rounds: The most rounds of one trajectory.
        columns: Counts of defined, removed and clipped values, by column.
        by_round: Means by round.
    """

    source: str
    parts: Sequence[Path | pa.Table]
    schema: pa.Schema
    notes: list[str]
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
        """Write the recording, one part in memory at a time; add the metric `match` if it has a normalizer of its own."""
        means = _Means()
        schema = self.schema
        computed = normalizer != DEFAULT_NORMALIZER and any(True for _ in self.texts("golds"))
        if computed and MATCH not in schema.names:
            schema = schema.append(metric_field(MATCH))
        tables = (means.add(self._table(part, schema, normalizer if computed else None)) for part in self.parts)
        write_tables(out, schema, tables, metadata)
        if computed:
            self.columns = tuple(
                replace(item, defined=means.defined) if item.name == MATCH else item for item in self.columns
            )
        if MATCH in schema.names:
            self.by_round = tuple(replace(item, match=means.of(item.round)) for item in self.by_round)

    def _table(self, part: Path | pa.Table, schema: pa.Schema, normalizer: str | None) -> pa.Table:
        table = _table_of(part)
        if normalizer is not None:
            table = table.drop_columns([MATCH]) if MATCH in table.column_names else table
            rows = table.select([name for name in ("answer", "golds", "em") if name in table.column_names]).to_pylist()
            values = [match_of_row(row, normalizer) for row in rows]
            table = table.append_column(schema.field(MATCH), pa.array(values, pa.float64(), from_pandas=True))
        for name in schema.names:
            if name not in table.column_names:
                table = table.append_column(name, pa.nulls(len(table), schema.field(name).type))
        return table.select(schema.names).cast(schema)


def _table_of(part: Path | pa.Table, columns: list[str] | None = None) -> pa.Table:
    if isinstance(part, Path):
        return pq.read_table(part, columns=columns, partitioning=None)
    return part if columns is None else part.select(columns)


class PartTexts(Collection[str]):
    """The answers, or the gold answers, of a run in parts, without blank texts; parts are read anew each time."""

    def __init__(self, parts: Sequence[Path | pa.Table], name: str) -> None:
        self._parts, self._name = parts, name

    def __iter__(self) -> Iterator[str]:
        for part in self._parts:
            names = pq.read_schema(part).names if isinstance(part, Path) else part.column_names
            if self._name not in names:
                continue
            column = _table_of(part, [self._name]).column(0)
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

    @property
    def defined(self) -> int:
        """Number of rounds in which `match` is known."""
        return sum(n for _, n in self._sums.values())

    def of(self, r: int) -> float:
        """Return the mean of a round; NaN where it is unknown."""
        total, n = self._sums.get(r, (0.0, 0))
        return total / n if n else math.nan


def run_of_table(
    path: Path,
    options: TableOptions,
    *,
    folder: Callable[[], Path],
    golds: str | Path | None = None,
    announce: Callable[[], None] = lambda: None,
) -> PartedRun:
    """Read a table as a run; a large one part by part, with its columns guessed from the first rows.

    Args:
        path: The table, or a folder of tables.
        options: The user's options.
        folder: Returns an empty folder for the parts.
        golds: A file of gold answers.
        announce: Called before a table is read in one piece.

    Raises:
        UnsettledError: As `read_tabular`.
        DataError: As `read_tabular`; in a large table a metric may leave [0, 1] after the first rows.
    """
    if options.samples or options.where or not is_large(path):  # samples and filters need all rows
        announce()
        return _run_of_source(path, WholeTable(path, options), options, None, golds)
    place = folder()
    try:
        source = PartedTable(path, place, options)
    except UnevenError:
        announce()
        run = _run_of_source(path, WholeTable(path, options), options, None, golds)
        run.notes.append("the records differ in their shape, so that all of them were read before any was imported")
        return run
    run = _run_of_source(path, source, options, place, golds)
    run.notes.append("a large table: its columns were guessed from the first rows")
    return run


def _run_of_source(
    path: Path, source: WholeTable | PartedTable, options: TableOptions, folder: Path | None, golds: str | Path | None
) -> PartedRun:
    reader, texts = TableReader(path, source), source.texts
    answers = None if golds is None else GoldAnswers(golds)
    result = _Sum(answers, folder, texts)
    for columns in reader.parts():
        result.add(columns)
    reader.check(ask_golds=options.asks_golds)
    return result.run("tabular", reader.notes(), source.plan.readings, reader.tally.depends())


def run_of_trajectories(run: ImportedRun, golds: str | Path | None = None) -> PartedRun:
    """Convert a run of trajectories to a run of one part, and join gold answers of a file.

    Raises:
        DataError: None of the gold answers is for a question of the run.
    """
    result = _Sum(None if golds is None else GoldAnswers(golds), None)
    result.add(columns_of(run.trajectories))
    return result.run(run.source, run.notes, run.readings, run.depends)


class _Sum:
    """The sum of what parts contain.

    Args:
        answers: Gold answers from a file.
        folder: The folder to which parts are written; None = they stay in memory.
        texts: Columns with any value that is not a number.
    """

    def __init__(self, answers: GoldAnswers | None, folder: Path | None, texts: Collection[str] = ()) -> None:
        self._answers, self._folder, self._names = answers, folder, texts
        self._parts: list[Path | pa.Table] = []
        self._schemas: list[pa.Schema] = []
        self._kinds: dict[str, str] = {}
        self._totals, self._ends = _Totals(), Counter[str]()
        self._clusters: list[npt.NDArray[np.int64]] = []
        self._longest = 0

    def add(self, columns: RoundColumns) -> None:
        """Add the rounds of some questions."""
        if self._answers is not None:
            join_golds(columns, self._answers)
        part = recording_part(columns, self._names)
        self._totals.add(part)
        self._ends.update(columns.ends)
        self._clusters.append(np.array([*map(hash, {*columns.clusters})], dtype=np.int64))
        self._longest = max(self._longest, int(columns.lengths.max()))
        self._kinds |= columns.kinds
        self._schemas.append(part.table.schema)
        if self._folder is None:
            self._parts.append(part.table)
        else:
            self._parts.append(self._folder / f"{len(self._parts)}.parquet")
            pq.write_table(part.table, self._parts[-1])

    def run(
        self, source: str, notes: Sequence[str], readings: Sequence[ColumnReading], depends: Mapping[str, Any]
    ) -> PartedRun:
        """Return the run of all parts."""
        schema = pa.unify_schemas(self._schemas, promote_options="permissive")
        names = ordered_names(schema.names, self._kinds)
        return PartedRun(
            source=source,
            parts=self._parts,
            schema=pa.schema([schema.field(name) for name in names]),
            notes=[*notes, *([] if self._answers is None else [self._answers.note()])],
            readings=readings,
            depends=depends,
            ends=dict(self._ends),
            clusters=len(np.unique(np.concatenate(self._clusters))),
            rounds=self._longest,
            columns=self._totals.columns(),
            by_round=self._totals.by_round(),
        )


class _Totals:
    """Counts of values by column, and means by round, over all parts."""

    def __init__(self) -> None:
        self._counts: dict[str, ColumnCount] = {}
        self._rounds: dict[int, dict[str, float]] = {}

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
            sums = self._rounds.setdefault(r, defaultdict(float))
            sums["n"] += int((rounds == r).sum())
            for name in set(_MEAN_METRICS) & {*part.table.column_names}:
                values = part.table.column(name).to_numpy()[rounds == r]
                known = values[~np.isnan(values)]
                sums[f"{name}_n"] += len(known)
                sums[name] += float(known.sum())

    def columns(self) -> tuple[ColumnCount, ...]:
        return tuple(self._counts.values())

    def by_round(self) -> tuple[RoundMeans, ...]:
        return tuple(
            RoundMeans(
                round=r,
                n=int(sums["n"]),
                scored=int(sums["em_n"]),
                em=sums["em"] / sums["em_n"] if sums["em_n"] else math.nan,
                f1=sums["f1"] / sums["f1_n"] if sums["f1_n"] else math.nan,
            )
            for r, sums in sorted(self._rounds.items())
        )
