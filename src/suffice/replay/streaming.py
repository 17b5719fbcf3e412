"""Replay of one policy over recordings of any size: block by block in bounded memory, by the same code as `replay`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice.errors import CensoredError, DataError, SchemaError
from suffice.replay.baselines import Bench, Run, run_policy
from suffice.replay.checks import check_policy, policy_for, tuned_on
from suffice.replay.costs import CostTable
from suffice.replay.outcomes import is_agreement, outcome
from suffice.replay.prices import Price
from suffice.replay.result import jsonable
from suffice.rounds import Floats
from suffice.rules import Rule
from suffice.session import Policy
from suffice.store.recording import Recording, recording_header
from suffice.store.schema import column_kind
from suffice.tables import Column, Table

__all__ = ["StreamResult", "StreamRow", "replay_stream"]

BLOCK_ROWS = 1 << 18
"""Rows that are decided at once; memory is proportional to it."""

_COSTS = ("calls", "tokens", "seconds", "money")


class _Source:
    """A recording on disk, read in blocks of whole questions."""

    def __init__(self, path: str | Path) -> None:
        if not Path(path).is_file():
            raise DataError(f"there is no recording at {str(path)!r}")
        try:
            self._file = pq.ParquetFile(path)
        except (pa.ArrowException, OSError) as error:
            raise SchemaError(f"{str(path)!r} does not read as parquet (corrupt or truncated?): {error}") from None
        self._path = path
        self.schema = self._file.schema_arrow
        self.header = recording_header(self.schema, path)
        for name in ("question_id", "round"):
            if name not in self.schema.names:
                raise SchemaError(f"a recording needs the column {name!r}; there are: {', '.join(self.schema.names)}")
        if self._file.metadata.num_rows == 0:
            raise DataError("the recording has no rounds")
        self.index = self._index()

    def _index(self) -> npt.NDArray[np.int64]:
        """Return the rounds of the file, from the row groups' statistics where the writer left some."""
        place = self.schema.names.index("round")
        groups = [self._file.metadata.row_group(i).column(place) for i in range(self._file.num_row_groups)]
        if all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            ends = [(group.statistics.min, group.statistics.max) for group in groups]
        else:
            batches = self._file.iter_batches(columns=["round"])
            ends = [tuple(pc.min_max(batch.column(0)).as_py().values()) for batch in batches]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        if lowest not in (0, 1) or highest - lowest > self._file.metadata.num_rows:
            raise DataError(f"rounds start at 0 or 1 and run without gaps; these run from {lowest!r} to {highest!r}")
        return np.arange(int(lowest), int(highest) + 1, dtype=np.int64)

    def empty(self) -> _Block:
        """Return the recording without its rows: enough to fit a policy to it."""
        return _Block(self.schema.empty_table(), self.header, self.index, np.zeros(0, dtype=np.int64))

    def columns(self, signals: set[str], metrics: Sequence[str]) -> list[str]:
        """Return the columns that must be read."""
        wanted = {"question_id", "round", "end", "answer", "cluster", *signals}
        wanted |= {name.split(">", maxsplit=1)[0].strip() for name in metrics if not is_agreement(name)}
        return [name for name in self.schema.names if name in wanted or column_kind(name) == "cost"]

    def blocks(self, columns: list[str], rows: int) -> Iterator[_Block]:
        """Yield blocks of whole questions, in the order of the file."""
        rest: pa.Table | None = None
        try:
            for batch in self._file.iter_batches(batch_size=rows, columns=columns):
                table = pa.Table.from_batches([batch])
                table = table if rest is None else pa.concat_tables([rest, table]).combine_chunks()
                starts = _run_starts(table.column("question_id"))
                last = int(starts[-1])  # this question may go on in the next batch
                rest = table.slice(last)
                if last:
                    yield self._block(table.slice(0, last), starts[:-1])
        except (pa.ArrowException, OSError) as error:
            raise SchemaError(f"{str(self._path)!r} does not read (corrupt or truncated?): {error}") from None
        assert rest is not None
        yield self._block(rest, np.zeros(1, dtype=np.int64))

    def _block(self, table: pa.Table, starts: npt.NDArray[np.int64]) -> _Block:
        if "cluster" in table.column_names:
            own = pc.all(pc.equal(table.column("cluster"), table.column("question_id"))).as_py()
            if not own:
                raise DataError(
                    "the rows of this recording repeat questions (column 'cluster'), and streamed intervals take every "
                    "question for itself: use `replay`, or drop the column"
                )
        return _Block(table, self.header, self.index, starts)


def _run_starts(ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the rows at which another question begins."""
    if ids.null_count:
        raise SchemaError("the column 'question_id' must hold text in every row")
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return np.concatenate([[0], np.flatnonzero(changes.to_numpy()) + 1]).astype(np.int64)


def _check_grouped(hashes: Sequence[npt.NDArray[np.int64]], path: str | Path) -> None:
    every = np.sort(np.concatenate(hashes))
    if (every[1:] == every[:-1]).any():
        raise DataError(
            f"the rows of some questions in {str(path)!r} do not follow each other: sort the recording by question_id "
            "and round, or use `replay`"
        )


def _without_counts(note: str) -> str:
    """Return a note about a block without its counts, which hold for that block only."""
    return re.sub(r" in \d+( of \d+)? rounds", " in some rounds", note)


class _Block(Recording):
    """Whole questions out of a file, laid out as a recording is, without looking at a row in Python."""

    def __init__(
        self, table: pa.Table, metadata: Mapping[str, Any], index: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> None:
        self.table = table
        self.metadata = dict(metadata)
        self.index = index
        lengths = np.diff(starts, append=table.num_rows)
        self.question_ids = table.column("question_id").take(pa.array(starts)).to_pylist()
        self._row = np.repeat(np.arange(len(starts)), lengths)
        self._column = table.column("round").cast(pa.int64()).to_numpy() - index[0]
        width = len(index)
        seen = np.bincount(self._row * width + self._column, minlength=len(starts) * width)
        self.seen = seen.reshape(len(starts), width) > 0
        doubled = seen.reshape(len(starts), width).max(axis=1) > 1
        gap = self.seen[:, 1:] & ~self.seen[:, :-1]
        wrong = doubled | gap.any(axis=1) | ~self.seen[:, 0]
        if wrong.any():
            name = self.question_ids[int(np.argmax(wrong))]
            raise DataError(f"question {name!r} lacks a round or has one twice: rounds must run without gaps")
        self._starts = starts

    @cached_property
    def ends(self) -> npt.NDArray[np.object_]:
        """Why each trajectory has no further round, shape ``(n_questions,)``."""
        if "end" not in self.table.column_names:
            return np.full(len(self._starts), "max_rounds", dtype=object)
        ends = self.table.column("end").take(pa.array(self._starts))
        return np.asarray(ends.to_numpy(zero_copy_only=False), dtype=object)

    def without_failed(self) -> tuple[_Block | None, int]:
        """Return the block without the questions that failed, None if there are no others, and how many failed."""
        failed = np.asarray(self.ends == "failed", dtype=np.bool_)
        if not failed.any():
            return self, 0
        if failed.all():
            return None, len(failed)
        table = self.table.filter(pa.array(~failed[self._row])).combine_chunks()
        return _Block(table, self.metadata, self.index, _run_starts(table.column("question_id"))), int(failed.sum())


def _policy(recording: Recording, item: Policy | Rule | str) -> Policy:
    made = item if isinstance(item, Policy) else policy_for(recording, item, name=str(item))
    check_policy(made, recording)
    return made


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRow:
    """One policy over all questions of a file.

    Attributes:
        label: Its name.
        metrics: Means over questions by metric, in [0, 1].
        costs: Mean operational cost per question: `calls`, `tokens`, `seconds`, `money` (USD); NaN where unknown.
        totals: The same, summed over questions.
        stop_rounds: Share of questions that stop at each round; -1 where there was none.
        reasons: Questions by reason of their stop.
        n_censored: Questions that wanted rounds which the recording lacks because a rule ended it.
        n_selected: Questions that the policy was fitted or selected on.
    """

    label: str
    metrics: Mapping[str, float]
    costs: Mapping[str, float]
    totals: Mapping[str, float]
    stop_rounds: Mapping[int, float]
    reasons: Mapping[str, int]
    n_censored: int
    n_selected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult:
    """A policy and its baseline over all questions of a file.

    Attributes:
        policy: The policy.
        baseline: The fixed budget that it is compared with.
        deltas: Mean paired difference by metric and cost as ``(delta, low, high)``; normal intervals from streamed
            means and variances (at these numbers a bootstrap agrees), NaN where a cost is unknown or n is 1.
        n: Questions.
        n_rows: Rounds read.
        n_failed: Questions left out because their recording failed.
        level: Nominal coverage.
        notes: What a reader must know.
    """

    policy: StreamRow
    baseline: StreamRow
    deltas: Mapping[str, tuple[float, float, float]]
    n: int
    n_rows: int
    n_failed: int
    level: float
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        from dataclasses import asdict

        data = jsonable(asdict(self))
        assert isinstance(data, dict)
        return data

    def table(self) -> Table:
        """Return policy, baseline and difference, one row for each quantity."""
        rows: list[tuple[Any, ...]] = []
        for name in (*self.policy.metrics, *_COSTS):
            mine, other = ({**row.metrics, **row.costs}[name] for row in (self.policy, self.baseline))
            rows.append((name, mine, other, self.deltas[name]))
        stops = ", ".join(f"{100 * share:.1f} % at round {r}" for r, share in self.policy.stop_rounds.items())
        columns = (
            Column("mean per question"),
            Column(self.policy.label, ".5g"),
            Column(self.baseline.label, ".5g"),
            Column("difference", "+.3g", interval=True),
        )
        title = f"{self.n:,} questions, {self.n_rows:,} rounds; {100 * self.level:g} % normal intervals"
        return Table(title=title, columns=columns, rows=tuple(rows), notes=(f"stops: {stops}", *self.notes))


class _Moments:
    """Count, mean and sum of squares of several quantities, merged block by block without cancellation (Chan)."""

    def __init__(self) -> None:
        self.n, self.mean, self.squares = 0, {}, {}  # type: ignore[var-annotated]

    def add(self, values: Mapping[str, Floats]) -> None:
        n = len(next(iter(values.values())))
        for name, block in values.items():
            mean = float(block.mean())
            step = mean - self.mean.get(name, 0.0)
            self.mean[name] = self.mean.get(name, 0.0) + step * n / (self.n + n)
            spread = float(((block - mean) ** 2).sum()) + step**2 * self.n * n / (self.n + n)
            self.squares[name] = self.squares.get(name, 0.0) + spread
        self.n += n

    def interval(self, name: str, level: float) -> tuple[float, float, float]:
        from scipy.stats import norm

        mean = self.mean[name]
        if self.n < 2:  # noqa: PLR2004
            return mean, math.nan, math.nan
        half = float(norm.ppf((1 + level) / 2)) * math.sqrt(self.squares[name] / (self.n - 1) / self.n)
        return mean, mean - half, mean + half


class _Tally:
    """What one policy has come to so far."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.moments = _Moments()
        self.stops: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self.censored = self.selected = 0

    def add(self, bench: Bench) -> dict[str, Floats]:
        """Replay a block and return each question's metrics and costs."""
        run, stopped = run_policy(bench, self.policy)
        values = _values(run)
        self.moments.add(values)
        rounds, counts = np.unique(stopped.rounds, return_counts=True)
        self.stops.update(dict(zip(rounds.tolist(), counts.tolist(), strict=True)))
        self.reasons.update(run.reasons)
        self.censored += run.n_censored
        if self.policy.provenance.get("tune_ids"):
            self.selected += tuned_on(self.policy, bench.recording.question_ids)
        return values

    def row(self) -> StreamRow:
        """Return the figures of all blocks."""
        mean, n = self.moments.mean, self.moments.n
        return StreamRow(
            label=self.policy.label,
            metrics={name: value for name, value in mean.items() if name not in _COSTS},
            costs={name: mean[name] for name in _COSTS},
            totals={name: mean[name] * n for name in _COSTS},
            stop_rounds={r: self.stops[r] / n for r in sorted(self.stops)},
            reasons=dict(self.reasons),
            n_censored=self.censored,
            n_selected=self.selected,
        )


def _values(run: Run) -> dict[str, Floats]:
    for name, values in run.values.items():
        if np.isnan(values).any():
            raise CensoredError(
                f"{run.label!r} stops at rounds whose {name!r} was not measured in {int(np.isnan(values).sum())} "
                "questions of one block: record answers at every round, or replay costs alone with metrics=()"
            )
    ledger = run.ledger
    costs = {"calls": ledger.calls, "tokens": ledger.total("tokens"), "seconds": ledger.total("seconds")}
    return {**run.values, **costs, "money": ledger.money}


def replay_stream(
    path: str | Path,
    policy: Policy | Rule | str,
    *,
    metrics: Sequence[str] = ("f1",),
    baseline: str = "fixed_k(3)",
    level: float = 0.95,
    prices: Price | Mapping[str, Price] | None = None,
    block_rows: int = BLOCK_ROWS,
) -> StreamResult:
    """Replay one policy and one baseline over a recording that need not fit into memory.

    The rows of a question must follow each other (a recorder writes them so); only the columns that are needed are
    read.  Every block is decided by the code of `replay`, and the means, stops and reasons are those of `replay`;
    intervals are normal instead of bootstrapped.

    Args:
        path: The parquet file.
        policy: A policy, a rule or its text.
        metrics: Columns in [0, 1], or `agreement`; empty for costs and stops alone.
        baseline: A rule or its text, usually a fixed budget.
        level: Nominal coverage of intervals, in (0, 1).
        prices: As for `replay`.
        block_rows: Rows that are decided at once.

    Raises:
        DataError: The rows of a question do not follow each other, rows repeat a question as clusters, a metric is
            missing, or there is nothing to replay.
        CensoredError: The policy stops where the metric was not measured.
        SchemaError: The file is no recording.
    """
    if not 0 < level < 1:
        raise DataError(f"a level lies strictly between 0 and 1, as 0.95, not {level!r}")
    if block_rows < 1:
        raise DataError(f"a block has at least one row, not {block_rows!r}")
    source = _Source(path)
    policies = tuple(_policy(source.empty(), item) for item in (policy, baseline))
    tallies = [_Tally(made) for made in policies]
    columns = source.columns({column for made in policies for column in made.raw_columns}, metrics)
    deltas, n_rows, n_failed = _Moments(), 0, 0
    notes: dict[str, None] = {}
    hashes: list[npt.NDArray[np.int64]] = []
    for block in source.blocks(columns, block_rows):
        n_rows += block.table.num_rows
        # Eight bytes for a question instead of its name: 2 million questions take 16 MB.
        hashes.append(np.fromiter(map(hash, block.question_ids), np.int64, len(block.question_ids)))
        for made in policies:
            notes.update(dict.fromkeys(check_policy(made, block)))
        kept, failed = block.without_failed()
        n_failed += failed
        if kept is None:
            continue
        values = {name: outcome(kept, name) for name in metrics}
        raw = kept.rounds(sorted({column for made in policies for column in made.raw_columns}))
        bench = Bench(kept, values, CostTable(kept, prices), raw)
        notes.update(dict.fromkeys(map(_without_counts, bench.table.notes)))
        mine, other = (tally.add(bench) for tally in tallies)
        deltas.add({name: mine[name] - other[name] for name in mine})
    _check_grouped(hashes, path)
    if not deltas.n:
        raise DataError(f"all {n_failed} recorded questions failed: run `suffice record` again to complete them")
    rows = [tally.row() for tally in tallies]
    return StreamResult(
        policy=rows[0],
        baseline=rows[1],
        deltas={name: deltas.interval(name, level) for name in deltas.mean},
        n=deltas.n,
        n_rows=n_rows,
        n_failed=n_failed,
        level=level,
        notes=tuple(notes),
    )
