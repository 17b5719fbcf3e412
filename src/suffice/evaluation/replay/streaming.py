"""Replay of one policy over recordings of any size: block by block in bounded memory, by the same code as `replay`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from pathlib import Path
from typing import Any

from suffice.common.processes import over_parts, usable_processors
from suffice.common.results import Result
from suffice.common.tables import Column, Table, counted, figure
from suffice.errors import DataError
from suffice.evaluation.replay.blocks import PieceFacts, Source
from suffice.evaluation.replay.checks import check_policy, policy_for
from suffice.evaluation.replay.costs import COSTS, CostTable
from suffice.evaluation.replay.outcomes import MultipleChoice, choice_notes, default_metrics
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.recorded import run_notes
from suffice.evaluation.replay.references import baseline_policy
from suffice.evaluation.replay.selected import Selected, seen_by
from suffice.evaluation.replay.tallies import PolicyTally, Tally, normal_interval, tally_of
from suffice.evaluation.statistics import undefined_notes
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.pieces import Piece

__all__ = ["StreamResult", "StreamRow", "replay_stream"]

BLOCK_ROWS = 1 << 16
"""Rows that are decided at once; memory is proportional to it."""

PIECE_ROWS = 1 << 22
"""Rows of a file that one process reads, about; a smaller file is read by one."""


_BY_ID = "each question counts by itself: there is no column 'cluster', and `suffice replay` takes questions of one text for one unit"
_NOT_BESIDE = "no other fixed budget or random stop is set beside these two: whether one does as well for less is what `suffice replay` shows"


def _without_counts(note: str) -> str:
    """Return a note about a block without its counts, which hold for that block only."""
    return re.sub(r"\bin [\d,]+( of [\d,]+)? (rounds|questions)", r"in some \2", note)


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


def replay_stream(
    path: str | Path,
    policy: Policy | Rule | str,
    *,
    metrics: Sequence[str] | None = None,
    baseline: str = "fixed_k(3)",
    level: float = 0.95,
    prices: Price | Mapping[str, Price] | None = None,
    block_rows: int = BLOCK_ROWS,
    jobs: int | None = 1,
    on_progress: Callable[[int, int], None] | None = None,
) -> StreamResult:
    """Replay one policy and one baseline over a recording that need not fit into memory.

    The rows of a question must follow each other (a recorder writes them so); only the columns that are needed are
    read.  Every block is decided by the code of `replay`, and the means, stops and reasons are those of `replay`;
    intervals are normal instead of bootstrapped.  Figures of blocks are added, in the same order for any number of `jobs`.

    Args:
        path: The parquet file, or a folder of parts.
        policy: A policy, a rule or its text.
        metrics: Columns in [0, 1], or `agreement`; empty for costs and stops alone.  None = `f1`, for multiple choice (by
            the first `block_rows` rows) `em`.
        baseline: The text of a rule, usually a fixed budget; it returns answers by the policy's selector.
        level: Nominal coverage of intervals, in (0, 1).
        prices: As for `replay`.
        block_rows: Rows that are decided at once.
        jobs: Processes; each reads parts, or ranges of row groups of a large file, see `suffice.common.processes.over_parts`.
            None = one for every `PIECE_ROWS` rows, at most one for each processor: a process takes a second to start.  A
            recording to which a `Recorder` is adding is read in this process.
        on_progress: Called with the number of such pieces done and their total.

    Raises:
        DataError: The rows of a question do not follow each other, a metric is missing, or there is nothing to replay.
        CensoredError: The policy or the baseline stops where the metric was not measured, or goes on past what was
            recorded.
        SchemaError: The file is not a recording.
        WorkerDiedError: A process was killed.
    """
    if not 0 < level < 1:
        raise DataError(f"a level lies strictly between 0 and 1, as 0.95, not {level!r}")
    if block_rows < 1:
        raise DataError(f"a block has at least one row, not {block_rows!r}")
    source = Source(path)
    ours = policy if isinstance(policy, Policy) else policy_for(source.empty(), policy, name=str(policy))
    policies = (ours, baseline_policy(source.empty(), baseline, ours))
    notes = dict.fromkeys(note for reading in policies for note in check_policy(reading, source.empty(), part=True))
    first = source.first_blocks(source.columns({"golds", "passage_ids"}, ("em", "f1")), block_rows)
    choice = reduce(add, map(MultipleChoice.of, first))
    metrics = default_metrics(source.empty(), choice)[:1] if metrics is None else metrics
    notes = dict.fromkeys((*map(_without_counts, choice_notes(source.empty(), metrics, choice)), *notes))
    notes.update(dict.fromkeys(note for block in first for note in CostTable(block).gaps.of_components))
    read = {column for reading in policies for column in reading.raw_columns}
    columns = source.columns({*read, "question"} if any(map(_is_fitted, policies)) else read, metrics)
    plan = Plan(
        source=source, policies=policies, metrics=tuple(metrics), prices=prices, columns=columns, block_rows=block_rows
    )
    if jobs is None:
        jobs = min(usable_processors(), source.n_rows // PIECE_ROWS + 1)
    tally = plan.total(jobs if source.is_on_disk else 1, on_progress, by_cluster=any(block.repeats for block in first))
    source.check_grouped(tally.keys, block_rows)
    if not tally.deltas.n:
        raise DataError(f"all {tally.n_failed} recorded questions failed: run `suffice record` again to complete them")
    for reading, own in zip(policies, tally.policies, strict=True):
        notes.update(dict.fromkeys((*run_notes(reading, own.stops[-1]), *own.definedness.checked())))
    agreement = [] if tally.agreement is None else [tally.agreement.note]
    n_clusters = tally.deltas.n
    deltas = {name: tally.deltas.interval(name, level) for name in tally.deltas.sums}
    if tally.repeats:
        n_clusters, errors = tally.clusters.errors()
        deltas = {name: normal_interval(tally.deltas.mean(name), error, level) for name, error in errors.items()}
        agreement.append(f"intervals are over {counted(n_clusters, 'cluster')}: questions are repeated")
    elif "question" in source.schema.names and "cluster" not in source.schema.names:
        agreement.append(_BY_ID)
    agreement += undefined_notes(n_clusters, 0)
    if tally.n_failed:
        agreement.append(f"{counted(tally.n_failed, 'question')} failed while recording: left out of both alike")
    if tally.n_cut:
        agreement.append(
            f"censored: a rule ended {tally.n_cut} of {tally.deltas.n} recorded questions early; what a policy would have answered "
            "in rounds that never ran is unknown"
        )
    rows = [_row(reading, own) for reading, own in zip(policies, tally.policies, strict=True)]
    return StreamResult(
        policy=rows[0],
        baseline=rows[1],
        deltas=deltas,
        n=tally.deltas.n,
        n_rows=tally.n_rows,
        n_failed=tally.n_failed,
        level=level,
        notes=(
            *notes,
            *agreement,
            *(note for note in tally.gaps.notes if note not in notes),
            *Selected.joined(tally.selected).notes,
            _NOT_BESIDE,
        ),
    )


def _row(policy: Policy, tally: PolicyTally) -> StreamRow:
    """Return the figures of all questions."""
    moments = tally.moments
    means = {name: moments.mean(name) for name in moments.sums}
    return StreamRow(
        label=policy.label,
        metrics={name: value for name, value in means.items() if name not in COSTS},
        costs={name: means[name] for name in COSTS},
        totals={name: moments.sums[name] for name in COSTS},
        stop_rounds={r: tally.stops[r] / moments.n for r in sorted(tally.stops)},
        reasons=dict(tally.reasons),
        n_selected=tally.selected,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is read of a recording, and what is computed of it.

    Attributes:
        source: The recording.
        policies: The policy and its baseline.
        metrics: See `outcome`.
        prices: As for `replay`.
        columns: The columns that are read.
        block_rows: Rows that are decided at once.
        by_cluster: Whether to add up by cluster, too.
    """

    source: Source
    policies: tuple[Policy, Policy]
    metrics: tuple[str, ...]
    prices: Price | Mapping[str, Price] | None
    columns: list[str]
    block_rows: int
    by_cluster: bool = False

    def total(self, jobs: int, on_progress: Callable[[int, int], None] | None, *, by_cluster: bool = False) -> Tally:
        """Return the tally of the whole recording."""
        pieces = self.source.pieces(self.columns, PIECE_ROWS)
        plan = replace(self, by_cluster=by_cluster)
        results = list(over_parts(plan.of_piece, pieces, jobs=jobs, on_progress=on_progress))
        tally = reduce(add, (tally for tally, _ in results))
        if tally.repeats and not by_cluster:  # the first block did not show it
            return self.total(jobs, on_progress, by_cluster=True)
        self.source.check([(piece, facts) for piece, (_, facts) in zip(pieces, results, strict=True)])
        return tally

    def of_piece(self, piece: Piece) -> tuple[Tally, PieceFacts]:
        """Return the tally of the questions that begin in a piece, and what must match the others."""
        reader = self.source.blocks(piece, self.columns, self.block_rows)
        tally = Tally.of_nothing(self.policies)
        for block in reader:
            tally += tally_of(block, self.policies, self.metrics, self.prices, by_cluster=self.by_cluster)
            if tally.repeats and not self.by_cluster:
                break
        return tally, reader.facts


def _is_fitted(policy: Policy) -> bool:
    """Return whether something is on record that has seen questions: their texts must then be read to compare."""
    return bool(seen_by(policy) or policy.state or policy.provenance.get("fitted"))
