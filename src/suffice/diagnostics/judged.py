"""Ways to choose among drafts, with and without calls of a judge: the share of the oracle's gap closed for each call.

Thresholds are cross-fitted: the questions of a fold are chosen among by thresholds that the other folds selected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.diagnostics.judging import Choice, Procedure
from suffice.diagnostics.selection import Reference
from suffice.errors import DataError
from suffice.replays.checks import check_policy
from suffice.replays.outcomes import choice_notes, outcome
from suffice.replays.prepared import PreparedRecording
from suffice.results import Evaluation
from suffice.rounds import Floats, Mask, Rounds
from suffice.rules.selectors import Selector, last_of
from suffice.session import Policy, Stops
from suffice.statistics import Resampling, hash_folds
from suffice.store.recording import Recording
from suffice.store.schema import cost_column
from suffice.tables import Column, Table, figure

__all__ = ["KEPT", "JudgedComparison", "JudgedRow", "compare_judged", "select_variants", "whole_folds"]

KEPT = 0.9
"""A threshold may close this share of what the best of its family closes, if it asks less."""

_TOKENS = ("uncached_tokens", "cached_tokens", "output_tokens")
Interval = tuple[float, float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """One way to choose; intervals are triples ``(value, low, high)``, NaN where undefined.

    Attributes:
        name: Of the family.
        variants: The thresholds that the folds selected, as text, each once.
        quality: Mean metric of what it returns.
        delta: Mean difference to the latest draft.
        gap: Share of the gap between the latest and the best seen draft that is closed.
        calls: Mean calls of the judge for each question; evaluation, unless the deployed loop makes them too.
        tokens: Mean tokens of these calls; NaN where unknown.
        gap_per_call: `gap` for each mean call; NaN without calls.
        gap_per_1000: `gap` for each 1,000 mean tokens; NaN without calls, or where tokens are unknown.
    """

    name: str
    variants: tuple[str, ...]
    quality: float
    delta: Interval
    gap: Interval
    calls: float
    tokens: float
    gap_per_call: Interval
    gap_per_1000: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedComparison(Evaluation):
    """Ways to choose on one recording, under one stopping rule.

    Attributes:
        rows: In the order given.
        rule: The stopping rule.
        metric: What quality means.
        judge: The column of the judge's marks.
        n_failed: Questions left out because their recording failed.
        last: Mean metric of the latest draft.
        oracle: Of the best seen one.
        n_folds: Folds of cross-fitting.
    """

    rows: tuple[JudgedRow, ...]
    rule: str
    metric: str
    judge: str
    n_failed: int
    last: float
    oracle: float
    n_folds: int

    def row(self, name: str) -> JudgedRow:
        """Return the row of a family.

        Raises:
            DataError: There is none.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise DataError(f"no row of {name!r}; there are: {', '.join(row.name for row in self.rows)}")

    def table(self) -> Table:
        """Return one row for each way to choose."""
        columns = (
            Column("choice"),
            Column(self.metric, ".1f", scale=100),
            Column("vs last", "+.1f", scale=100, interval=True),
            Column("gap closed %", ".0f", scale=100, interval=True),
            Column("judge calls", ".2f"),
            Column("judge tokens", ".0f"),
            Column("gap % per call", ".0f", scale=100, interval=True),
            Column("gap % per 1,000 tokens", ".0f", scale=100, interval=True),
        )
        rows = tuple(
            (r.name, r.quality, r.delta, _told(r.gap), r.calls, r.tokens, _told(r.gap_per_call), _told(r.gap_per_1000))
            for r in self.rows
        )
        title = (
            f"Which draft under {self.rule}: {self.n} questions, last {figure(self.last, '.1f', 100)}, oracle {figure(self.oracle, '.1f', 100)}; "
            f"{self.resampling.text}"
        )
        return Table(title=title, columns=columns, rows=rows, notes=self.notes)


def _told(interval: Interval) -> Interval | None:
    return None if np.isnan(interval[0]) else interval


@dataclass(frozen=True, slots=True)
class _Reading(Selector):
    """The latest answer, with more signals in the view than it reads: what the procedures read."""

    names: frozenset[str]

    def among(self, rounds: Rounds, candidates: Mask) -> npt.NDArray[np.int64]:
        del rounds
        return last_of(candidates)

    @property
    def signals(self) -> frozenset[str]:
        """What the procedures read."""
        return self.names


def compare_judged(
    recording: Recording,
    policy: Policy,
    families: Mapping[str, Sequence[Procedure]],
    *,
    metric: str,
    marks: str | None = None,
    n_folds: int = 5,
    resampling: Resampling = Resampling(),
) -> JudgedComparison:
    """Compare ways to choose among the drafts seen at the stop, with the judge's calls that each makes.

    Within a family the variant is selected on the other folds: the fewest calls among those that close at least 90 %
    of what the best variant closes there.

    Args:
        recording: Recorded rounds with recorded marks.
        policy: The stopping rule; its selector is not read.
        families: By name, procedures that differ in a threshold alone.
        metric: What quality means, a column in [0, 1].
        marks: The column of the judge's marks; None = the metric itself: a judge without error.
        n_folds: Folds, by the hash of the question's id.
        resampling: How intervals are made, shared by all rows; those of ratios are percentile intervals.

    Raises:
        DataError: Nothing to compare, fewer than two folds or a fold without questions, or a metric that was not
            measured where a procedure returns an answer.
        UnknownSignalError: A procedure reads a signal that was not recorded.
    """
    resampling = replace(resampling, interval="percentile")
    judge = marks or metric
    made = _made(recording, policy, families, metric=metric, judge=judge, resampling=resampling)
    several = any(len(variants) > 1 for variants in families.values())
    folds = whole_folds(made.prepared.recording, n_folds) if several else np.zeros(made.prepared.n, dtype=np.int64)
    rows = tuple(made.row(name, tuple(variants), folds) for name, variants in families.items())
    notes = [*([made.note] if made.note else []), *choice_notes(made.prepared.recording, [metric])]
    if judge == metric:
        notes.append(f"the judge's marks are {metric} itself: judging every draft closes the gap by construction")
    if several:
        notes.append(f"thresholds are cross-fitted over {n_folds} folds by id hash")
    reference = made.reference
    if reference.undefined:
        notes.append("some resamples have no gap between last and oracle; intervals of shares leave them out")
    return JudgedComparison(
        rows=rows,
        rule=policy.label,
        metric=metric,
        judge=judge,
        n=made.prepared.n,
        n_failed=made.prepared.n_failed,
        last=float(reference.last.mean()),
        oracle=float(reference.seen.mean()),
        n_folds=n_folds,
        resampling=resampling,
        data_hash=recording.data_hash,
        notes=tuple(notes),
    )


def select_variants(
    dev: Recording,
    policy: Policy,
    families: Mapping[str, Sequence[Procedure]],
    *,
    metric: str,
    marks: str | None = None,
) -> dict[str, tuple[Procedure, ...]]:
    """Return each family with the one variant that all questions of a dev recording select.

    Args:
        dev: Recorded rounds of other questions than those to report on.
        policy: See `compare_judged`, also for the rest and for what is raised.
        families: The same.
        metric: The same.
        marks: The same.
    """
    made = _made(dev, policy, families, metric=metric, judge=marks or metric, resampling=Resampling(n_resamples=1))
    nobody = np.full(made.prepared.n, -1)
    return {name: (variants[made.selected(tuple(variants), nobody)],) for name, variants in families.items()}


def _made(
    recording: Recording,
    policy: Policy,
    families: Mapping[str, Sequence[Procedure]],
    *,
    metric: str,
    judge: str,
    resampling: Resampling,
) -> _Made:
    """Return what evaluates variants."""
    if not families or not all(families.values()):
        raise DataError("nothing to compare: give each family one procedure at least")
    names = frozenset().union(*(item.signals for variants in families.values() for item in variants))
    reading = replace(policy, selector=_Reading(names))
    prepared = PreparedRecording.of(recording, [metric])
    check_policy(reading, prepared.recording)
    reference = Reference(prepared, reading, metric, prepared.draws(resampling))
    return _Made(prepared, prepared.stops(reading), reference, metric, judge)


def whole_folds(recording: Recording, n_folds: int) -> npt.NDArray[np.int64]:
    """Return the fold of each question by the hash of its cluster's id, shape ``(n_questions,)``, 0..n_folds - 1.

    Raises:
        DataError: Fewer than two folds, or a fold without questions.
    """
    folds = hash_folds(recording.clusters.tolist(), n_folds)
    empty = sorted(set(range(n_folds)) - set(folds.tolist()))
    if empty:
        raise DataError(
            f"{len(folds)} questions leave {len(empty)} of {n_folds} folds empty: record more, or fewer folds"
        )
    return folds


class _Made:
    """What every variant returns and asks for."""

    def __init__(
        self, prepared: PreparedRecording, stopped: Stops, reference: Reference, metric: str, judge: str
    ) -> None:
        self.prepared, self._stopped, self.reference, self._metric = prepared, stopped, reference, metric
        paid, self.note = _tokens(prepared.recording, judge)
        marks = outcome(prepared.recording, judge)
        self._marks, self._paid = (prepared.in_view(values, stopped.view) for values in (marks, paid))

    def row(self, name: str, variants: tuple[Procedure, ...], folds: npt.NDArray[np.int64]) -> JudgedRow:
        """Return the figures of one family, each question's variant selected on the other folds."""
        made = [self._of(variant) for variant in variants]
        values, calls, tokens = (np.stack([item[i] for item in made]) for i in range(3))
        best = np.array([self._best(values, calls, folds != fold) for fold in range(int(folds.max()) + 1)])
        chosen = best[folds], np.arange(len(folds))
        value, asked, spent = values[chosen], calls[chosen], tokens[chosen]
        gain, below = value - self.reference.last, self.reference.seen - self.reference.last
        return JudgedRow(
            name=name,
            variants=tuple(dict.fromkeys(str(variants[i]) for i in best.tolist())),
            quality=float(value.mean()),
            delta=self.reference.ratio(gain, np.ones(len(gain))),
            gap=self.reference.ratio(gain, below),
            calls=float(asked.mean()),
            tokens=float(spent.mean()),
            gap_per_call=self.reference.ratio(gain, below, asked),
            gap_per_1000=self.reference.ratio(gain, below, spent / 1000),
        )

    def _of(self, procedure: Procedure) -> tuple[Floats, Floats, Floats]:
        """Return the metric of what it returns, its calls and their tokens, each of shape ``(n_questions,)``."""
        stopped = self._stopped
        choice: Choice = procedure.choose(stopped.view, stopped.position, self._marks)
        values = self.prepared.values(stopped.view, stopped.position, choice.position)[self._metric]
        tokens = np.where(choice.calls > 0, choice.calls * self._paid, 0.0).sum(axis=-1)
        return self.reference.checked(values, str(procedure)), choice.calls.sum(axis=-1).astype(np.float64), tokens

    def selected(self, variants: tuple[Procedure, ...], folds: npt.NDArray[np.int64]) -> int:
        """Return the position of the variant that the questions outside of fold 0 select."""
        values, calls, _ = (np.stack(parts) for parts in zip(*(self._of(variant) for variant in variants), strict=True))
        return self._best(values, calls, folds != 0)

    def _best(self, values: Floats, calls: Floats, others: Mask) -> int:
        """Return the variant with the fewest calls among those that close nearly as much as the best, on `others`."""
        if not others.any():  # one variant and one fold: nothing to select
            return 0
        gains = (values[:, others] - self.reference.last[others]).mean(axis=1)
        least = KEPT * gains.max() if gains.max() > 0 else gains.max()
        asked = np.where(gains >= least - 1e-12, calls[:, others].mean(axis=1), np.inf)
        return int(np.lexsort((-gains, asked))[0])


def _tokens(recording: Recording, judge: str) -> tuple[Floats, str]:
    """Return the tokens of judging each draft, shape ``(n_questions, n_rounds)``, NaN where unknown, and a note."""
    have = recording.table.column_names

    def of(name: str) -> Floats:
        return recording.column(name) if name in have else np.full(recording.shape, np.nan)

    kinds = [of(cost_column(f"judge:{judge}", kind)) for kind in _TOKENS]
    total = kinds[0] + kinds[1] + kinds[2]
    if np.isfinite(total[recording.seen]).all():
        return total, ""
    read = kinds[2] + of("draft_tokens")
    if np.isfinite(read[recording.seen]).any():
        return (
            read,
            "a judge's tokens are those of the draft it reads and of its reply: its instructions are not recorded",
        )
    return read, "the judge's tokens were not recorded"
