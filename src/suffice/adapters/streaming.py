"""Long tables of millions of rounds, read part by part: memory holds some thousand rows and one number for each question."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

from suffice.adapters.base import ColumnReading, ImportedRun, ImportedTrajectory
from suffice.adapters.grid import Grid, group_trajectories, whole_number
from suffice.adapters.guesses import ColumnMap, guess_columns, is_long
from suffice.adapters.recognise import head_of
from suffice.adapters.records import Record, records_of
from suffice.adapters.shapes import ROUNDS, flat, unfold
from suffice.adapters.summary import ColumnCount, RoundMeans, column_counts
from suffice.adapters.tabular import grid_of, in_order
from suffice.adapters.tally import Tally
from suffice.metrics import normalize_answer
from suffice.rounds import End
from suffice.store.recording import write_tables
from suffice.store.schema import build_table

__all__ = ["LARGE", "StreamedRun", "stream_tabular"]

LARGE = 1 << 23
"""Bytes from which on a table is read part by part."""

_PACKED = 6
_PART = 10_000
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
    metrics: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
    log_golds: Literal["keep", "drop"] | None = None,
    first_round: int | None = None,
    ended: End | None = None,
) -> StreamedRun | None:
    """Read a large long table part by part; its columns are guessed from the first rows.

    Args:
        path: The table.
        folder: Returns an empty folder for the parts.
        columns: See `read_tabular`, as for the other options.
        metrics: See there.
        labels: See there.
        log_golds: See there.
        first_round: See there.
        ended: See there.

    Returns:
        The run; None if the file is small or not a long table, or the rows of a question are not adjacent, or of several
        runs.

    Raises:
        UnsettledError: As `read_tabular`.
        DataError: As `read_tabular`; a metric may leave [0, 1] after the first rows.
    """
    column_map = dict(columns or {})
    if not _is_large(path) or ROUNDS in column_map:
        return None
    head = list(islice(records_of(path), _PART))
    shape = unfold(head, None, is_long=lambda rows: "round" in column_map or is_long(rows))
    plan = guess_columns(column_map, metrics or {}, labels or {}, shape=shape)
    if (
        shape.how
        or "round" not in plan.columns
        or "question_id" not in plan.columns
        or plan.formulas.get("question_id")
    ):
        return None
    if log_golds == "drop":
        plan.drop("golds")
    rows, _ = in_order(shape.rows, plan)
    grid = grid_of(path, rows, plan, first_round=first_round, ended=ended)
    extent = _extent(path, plan)
    if extent is None:
        return None
    return _streamed(path, folder(), plan, replace(grid, lowest=extent[0], longest=extent[1]), log_golds is None)


def _is_large(path: Path) -> bool:
    if not path.is_file():
        return False
    head = head_of(path)
    size = path.stat().st_size * (_PACKED if path.suffix == ".gz" or head.form == "parquet" else 1)
    return size >= LARGE and head.form in ("text", "jsonl", "parquet")


def _flat_records(path: Path) -> Iterator[Record]:
    for item in records_of(path):
        yield replace(item, values=flat(item.values))


def _extent(path: Path, plan: ColumnMap) -> tuple[int, int] | None:
    """Return the lowest number of a round and the most rounds of a question; None if they are not adjacent, or one is there twice.

    What is not a number is left to the reader, which says where it is.
    """
    key, number = plan.columns["question_id"], plan.columns["round"]
    codes: set[int] = set()
    current, longest, lowest = None, 0, math.inf
    numbers: set[str] = set()
    for item in _flat_records(path):
        own = str(item.values.get(key))
        if own != current:
            code = hash(own)
            if code in codes:
                return None
            codes.add(code)
            current, numbers = own, set()
        text = str(item.values.get(number)).removesuffix(".0").strip()
        if text in numbers:
            return None
        numbers.add(text)
        longest = max(longest, len(numbers))
        value = whole_number(text)
        lowest = lowest if value is None else min(lowest, value)
    return (0 if math.isinf(lowest) else int(lowest)), longest


def _table_parts(path: Path, key: str) -> Iterator[list[Record]]:
    """Yield the rows of whole questions, some thousand at a time."""
    part: list[Record] = []
    for item in _flat_records(path):
        if len(part) >= _PART and str(item.values.get(key)) != str(part[-1].values.get(key)):
            yield part
            part = []
        part.append(item)
    if part:
        yield part


def _streamed(path: Path, folder: Path, plan: ColumnMap, grid: Grid, ask_golds: bool) -> StreamedRun:
    tally, totals = Tally(), _Totals()
    texts: dict[int, str] = {}
    clusters: set[int] = set()
    files, schemas = [], []
    for number, part in enumerate(_table_parts(path, plan.columns["question_id"])):
        rows, _ = in_order(part, plan)
        trajectories = group_trajectories([(row.where, row.values) for row in rows], grid, str(path))
        if "cluster" not in plan.columns:
            trajectories = [_by_text(item, texts) for item in trajectories]
        clusters.update(hash(item.cluster) for item in trajectories)
        tally.add(trajectories)
        run = ImportedRun(source="tabular", trajectories=trajectories)
        table_rows = run.rows()
        totals.add(column_counts(run, table_rows), table_rows)
        table = build_table(table_rows, run.kinds())
        files.append(folder / f"{number}.parquet")
        pq.write_table(table, files[-1])
        schemas.append(table.schema)
    if ask_golds:
        tally.refuse_copied_golds(plan.columns.get("golds", ""))
    return StreamedRun(
        source="tabular",
        parts=files,
        schema=pa.unify_schemas(schemas, promote_options="permissive"),
        notes=[*tally.notes(plan, grid), "a large table: its columns were guessed from the first rows"],
        readings=plan.readings,
        depends=tally.depends(),
        ends=dict(tally.ends),
        clusters=len(clusters),
        rounds=max(tally.lengths),
        columns=totals.columns(),
        by_round=totals.by_round(),
    )


def _by_text(item: ImportedTrajectory, texts: dict[int, str]) -> ImportedTrajectory:
    """Return a trajectory in the cluster of the first question with its normalised text."""
    text = normalize_answer(item.question)
    return replace(item, cluster=texts.setdefault(hash(text), item.question_id)) if text else item


class _Totals:
    """What happened to values, and means by round, over all parts."""

    def __init__(self) -> None:
        self._counts: dict[str, ColumnCount] = {}
        self._rounds: dict[int, Counter[str]] = {}

    def add(self, counts: Iterable[ColumnCount], rows: Iterable[Mapping[str, Any]]) -> None:
        for item in counts:
            old = self._counts.get(item.name, ColumnCount(name=item.name, defined=0, computed=item.computed))
            self._counts[item.name] = replace(
                old,
                defined=old.defined + item.defined,
                nulled=old.nulled + item.nulled,
                clipped=old.clipped + item.clipped,
            )
        for row in rows:
            sums = self._rounds.setdefault(row["round"], Counter())
            sums["n"] += 1
            for name in _MEAN_METRICS:
                value = row.get(name)
                if value is not None:
                    sums[f"{name}_n"] += 1
                    sums[name] += value

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
