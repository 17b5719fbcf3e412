"""Replay of one policy over recordings of any size: block by block in bounded memory, by the same code as `replay`."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import CensoredError, DataError
from suffice.replays.baselines import Run, run_policy
from suffice.replays.blocks import Source
from suffice.replays.checks import check_policy, policy_for
from suffice.replays.costs import COSTS
from suffice.replays.outcomes import agreement_note, choice_notes, default_metrics, is_agreement
from suffice.replays.prepared import PreparedRecording
from suffice.replays.prices import Price
from suffice.replays.recorded import Definedness, run_notes
from suffice.replays.references import baseline_policy
from suffice.replays.selected import Selected, seen_by, selected_on, tuned_on
from suffice.results import Result
from suffice.rounds import Floats
from suffice.rules import Rule
from suffice.session import Policy
from suffice.tables import Column, Table, counted, figure

__all__ = ["StreamResult", "StreamRow", "replay_stream"]

BLOCK_ROWS = 1 << 16
"""Rows that are decided at once; memory is proportional to it."""


def _check_grouped(hashes: Sequence[npt.NDArray[np.int64]], path: str | Path) -> None:
    every = np.sort(np.concatenate(hashes))
    if (every[1:] == every[:-1]).any():
        raise DataError(
            f"the rows of some questions in {str(path)!r} do not follow each other: sort the recording by question_id "
            "and round, or use `replay`"
        )


def _without_counts(note: str) -> str:
    """Return a note about a block without its counts, which hold for that block only."""
    return re.sub(r"\bin \d+( of \d+)? (rounds|questions)", r"in some \2", note)


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
        n_selected: Questions that the policy was fitted or selected on.
    """

    label: str
    metrics: Mapping[str, float]
    costs: Mapping[str, float]
    totals: Mapping[str, float]
    stop_rounds: Mapping[int, float]
    reasons: Mapping[str, int]
    n_selected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamResult(Result):
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

    def table(self) -> Table:
        """Return policy, baseline and difference, one row for each quantity."""
        rows: list[tuple[Any, ...]] = []
        for name in (*self.policy.metrics, *COSTS):
            mine, other = ({**row.metrics, **row.costs}[name] for row in (self.policy, self.baseline))
            rows.append((name, mine, other, self.deltas[name]))
        stops = ", ".join(f"{figure(share, '.1f', 100)} % at round {r}" for r, share in self.policy.stop_rounds.items())
        columns = (
            Column("mean per question"),
            Column(self.policy.label, ".5g"),
            Column(self.baseline.label, ".5g"),
            Column("difference", "+.3g", interval=True),
        )
        title = (
            f"{counted(self.n, 'question')}, {counted(self.n_rows, 'round')}; {100 * self.level:g} % normal intervals"
        )
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
    """The figures of one policy over the blocks so far."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.moments = _Moments()
        self.definedness = Definedness(policy)
        self.stops: Counter[int] = Counter()
        self.reasons: Counter[str] = Counter()
        self.selected = 0

    def add(self, prepared: PreparedRecording) -> dict[str, Floats]:
        """Replay a block and return each question's metrics and costs."""
        run, stopped = run_policy(prepared, self.policy)
        self.definedness.add(stopped.view)
        values = _block_outcomes(run)
        self.moments.add(values)
        rounds, counts = np.unique(stopped.rounds, return_counts=True)
        self.stops.update(dict(zip(rounds.tolist(), counts.tolist(), strict=True)))
        self.reasons.update(run.reasons)
        self.selected += tuned_on(self.policy, prepared.recording)
        return values

    def row(self) -> StreamRow:
        """Return the figures of all blocks."""
        mean, n = self.moments.mean, self.moments.n
        return StreamRow(
            label=self.policy.label,
            metrics={name: value for name, value in mean.items() if name not in COSTS},
            costs={name: mean[name] for name in COSTS},
            totals={name: mean[name] * n for name in COSTS},
            stop_rounds={r: self.stops[r] / n for r in sorted(self.stops)},
            reasons=dict(self.reasons),
            n_selected=self.selected,
        )


def _block_outcomes(run: Run) -> dict[str, Floats]:
    if not run.exact:
        raise CensoredError(
            f"{run.label!r} goes on past what was recorded in {int(run.unrun.sum())} questions of one block, because a "
            "rule ended their recording: what it would have answered there is unknown. `suffice replay` gives bounds; "
            "a stream needs questions recorded at full width, or a policy and a baseline that stop no later"
        )
    for name, values in run.values.items():
        if np.isnan(values).any():
            raise CensoredError(
                f"{run.label!r} stops at rounds whose {name!r} was not measured in {int(np.isnan(values).sum())} "
                "questions of one block: record answers at every round, or replay costs alone with metrics=()"
            )
    return {**run.values, **{cost: run.ledger.spent(cost) for cost in COSTS}}


def replay_stream(
    path: str | Path,
    policy: Policy | Rule | str,
    *,
    metrics: Sequence[str] | None = None,
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
        metrics: Columns in [0, 1], or `agreement`; empty for costs and stops alone.  None = `f1`, for multiple choice (by
            the first block) `em`.
        baseline: The text of a rule, usually a fixed budget; it returns answers by the policy's selector.
        level: Nominal coverage of intervals, in (0, 1).
        prices: As for `replay`.
        block_rows: Rows that are decided at once.

    Raises:
        DataError: The rows of a question do not follow each other, rows repeat a question as clusters, a metric is
            missing, or there is nothing to replay.
        CensoredError: The policy or the baseline stops where the metric was not measured, or goes on past what was
            recorded.
        SchemaError: The file is not a recording.
    """
    if not 0 < level < 1:
        raise DataError(f"a level lies strictly between 0 and 1, as 0.95, not {level!r}")
    if block_rows < 1:
        raise DataError(f"a block has at least one row, not {block_rows!r}")
    source = Source(path)
    ours = policy if isinstance(policy, Policy) else policy_for(source.empty(), policy, name=str(policy))
    policies = (ours, baseline_policy(source.empty(), baseline, ours))
    for reading in policies:
        check_policy(reading, source.empty(), part=True)
    first = next(source.blocks(source.columns({"golds"}, ("em", "f1")), block_rows))
    metrics = default_metrics(first)[:1] if metrics is None else metrics
    tallies = [_Tally(reading) for reading in policies]
    read = {column for reading in policies for column in reading.raw_columns}
    columns = source.columns({*read, "question"} if any(map(_is_fitted, policies)) else read, metrics)
    selected: list[Selected] = []
    deltas, n_rows, n_failed = _Moments(), 0, 0
    notes = dict.fromkeys(map(_without_counts, choice_notes(first, metrics)))
    hashes: list[npt.NDArray[np.int64]] = []
    for block in source.blocks(columns, block_rows):
        n_rows += block.table.num_rows
        # Eight bytes for a question instead of its name: 2 million questions take 16 MB.
        hashes.append(np.fromiter(map(hash, block.question_ids), np.int64, len(block.question_ids)))
        for reading in policies:
            notes.update(dict.fromkeys(check_policy(reading, block, part=True)))
        if (block.ends == "failed").all():
            n_failed += len(block.question_ids)
            continue
        prepared = PreparedRecording.of(block, metrics, prices=prices)
        n_failed += prepared.n_failed
        selected.append(selected_on(policies, prepared.recording))
        agreement = [agreement_note(prepared.recording)] if any(map(is_agreement, metrics)) else []
        notes.update(dict.fromkeys(map(_without_counts, [*agreement, *prepared.costs.notes])))
        mine, other = (tally.add(prepared) for tally in tallies)
        deltas.add({name: mine[name] - other[name] for name in mine})
    _check_grouped(hashes, path)
    if not deltas.n:
        raise DataError(f"all {n_failed} recorded questions failed: run `suffice record` again to complete them")
    for tally in tallies:
        notes.update(dict.fromkeys((*run_notes(tally.policy, tally.stops[-1]), *tally.definedness.checked())))
    rows = [tally.row() for tally in tallies]
    return StreamResult(
        policy=rows[0],
        baseline=rows[1],
        deltas={name: deltas.interval(name, level) for name in deltas.mean},
        n=deltas.n,
        n_rows=n_rows,
        n_failed=n_failed,
        level=level,
        notes=(*notes, *Selected.joined(selected).notes),
    )


def _is_fitted(policy: Policy) -> bool:
    """Return whether something is on record that has seen questions: their texts must then be read to compare."""
    return bool(seen_by(policy) or policy.state or policy.provenance.get("fitted"))
