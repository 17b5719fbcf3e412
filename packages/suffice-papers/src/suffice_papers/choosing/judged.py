"""Compare methods to choose among drafts, with and without a judge, by the share of the oracle's gain that they reach.

Thresholds are cross-fitted: the thresholds applied to one fold are selected on the other folds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.common.tables import Column, Table, figure
from suffice.errors import DataError
from suffice.evaluation.replay.checks import check_policy
from suffice.evaluation.replay.outcomes import choice_notes, outcome
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import ROUNDING, Draws, Resampling, hash_folds
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.policy.rules.selectors import Selector, last_of
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.recordings.schema import cost_column
from suffice.verdicts.diagnostics.rows import column_or_nan
from suffice.verdicts.diagnostics.selection import NO_GAP, Reference, WithInterval
from suffice_papers.choosing.judging import Choice, Procedure

CLOSED_SHARE = 0.9
"""A threshold with fewer calls is selected if it closes at least this share of what the best of its family closes."""

_TOKEN_KINDS = ("uncached_tokens", "cached_tokens", "output_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRow:
    """The figures of one method to choose a draft.

    Attributes:
        name: Name of the family.
        variants: The distinct thresholds that the folds selected, as text.
        quality: Mean metric of the returned drafts.
        delta: Mean difference to the latest draft.
        gap: Share of the oracle's gain that the method reaches; the oracle's gain is the difference in quality between
            the latest draft and the best seen draft.
        calls: Mean calls of the judge per question; they are evaluation costs, unless the deployed loop makes these
            calls too.
        tokens: Mean tokens of these calls; NaN where unknown.
        gap_per_call: `gap` per mean call; NaN without calls.
        gap_per_1000: `gap` per 1,000 mean tokens; NaN without calls, or where tokens are unknown.
    """

    name: str
    variants: tuple[str, ...]
    quality: float
    delta: WithInterval
    gap: WithInterval
    calls: float
    tokens: float
    gap_per_call: WithInterval
    gap_per_1000: WithInterval


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedComparison(Evaluation):
    """Methods to choose a draft, compared on one recording under one stopping rule.

    Attributes:
        rows: One for each family, in the given order.
        rule: The stopping rule.
        metric: The metric of quality.
        judge: The column of the judge's marks.
        n_failed: Questions left out because their recording failed.
        last: Mean metric of the latest draft.
        oracle: Mean metric of the best seen draft.
        n_folds: Number of folds of the cross-fitting.
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
            DataError: There is no family of that name.
        """
        for row in self.rows:
            if row.name == name:
                return row
        raise DataError(f"no row of {name!r}; there are: {', '.join(row.name for row in self.rows)}")

    def table(self) -> Table:
        """Return one row for each family."""
        last, oracle = (figure(value, ".1f", 100) for value in (self.last, self.oracle))
        return Table.of(
            f"Which draft under {self.rule}: {self.n} questions, last {last}, oracle {oracle}; {self.resampling.text}",
            self.rows,
            {
                Column("choice"): "name",
                Column(self.metric, ".1f", scale=100): "quality",
                Column("vs last", "+.1f", scale=100, interval=True): "delta",
                Column("gap closed %", ".0f", scale=100, interval=True): lambda row: _if_defined(row.gap),
                Column("judge calls", ".2f"): "calls",
                Column("judge tokens", ".0f"): "tokens",
                Column("gap % per call", ".0f", scale=100, interval=True): lambda row: _if_defined(row.gap_per_call),
                Column("gap % per 1,000 tokens", ".0f", scale=100, interval=True): lambda row: _if_defined(
                    row.gap_per_1000
                ),
            },
            self.notes,
        )


def _if_defined(estimate: WithInterval) -> WithInterval | None:
    return None if np.isnan(estimate[0]) else estimate


@dataclass(frozen=True, slots=True)
class _Reading(Selector):
    """Selects the latest answer, and declares the procedures' signals so that the rounds contain them."""

    names: frozenset[str]

    def among(self, rounds: Rounds, candidates: Mask) -> npt.NDArray[np.int64]:
        del rounds
        return last_of(candidates)

    @property
    def signals(self) -> frozenset[str]:
        """The signals that the procedures read."""
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
    """Compare methods to choose among the drafts seen at the stop: their quality and their calls of the judge.

    For each fold, one variant of each family is selected on the other folds. Of the variants that close at least 90 %
    of the gap that the best variant closes on these folds, it is the one with the fewest calls.

    Args:
        recording: Recorded rounds with recorded marks.
        policy: The stopping rule; its selector is not read.
        families: Procedures by the name of their family; the procedures of a family differ only in a threshold.
        metric: The metric of quality, a column in [0, 1].
        marks: The column of the judge's marks; None for the metric itself, as from a judge without error.
        n_folds: Number of folds; the hash of a question's id decides its fold.
        resampling: Settings of the intervals, shared by all rows; ratios always have percentile intervals.

    Raises:
        DataError: There is nothing to compare, there are fewer than two folds, a fold has no questions, or the metric
            was not measured for an answer that a procedure returns.
        UnknownSignalError: A procedure reads a signal that was not recorded.
    """
    resampling = replace(resampling, interval="percentile")
    judge = marks or metric
    reference = _reference_of(recording, policy, families, metric=metric, judge=judge, resampling=resampling)
    prepared = reference.prepared
    several = any(len(variants) > 1 for variants in families.values())
    folds = whole_folds(prepared.recording, n_folds) if several else np.zeros(prepared.n, dtype=np.int64)
    rows = tuple(reference.judged_row(name, variants, folds) for name, variants in families.items())
    notes = [*([reference.token_note] if reference.token_note else []), *choice_notes(prepared.recording, [metric])]
    if judge == metric:
        notes.append(f"the judge's marks are {metric} itself: judging every draft closes the gap by construction")
    if several:
        notes.append(f"thresholds are cross-fitted over {n_folds} folds by id hash")
    if reference.undefined:
        notes.append(NO_GAP)
    return JudgedComparison(
        rows=rows,
        rule=policy.label,
        metric=metric,
        judge=judge,
        n=prepared.n,
        n_failed=prepared.n_failed,
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
    """Reduce each family to the variant that is best on a dev recording.

    The dev questions must differ from those to report on.

    All arguments except `dev`, and the errors, are those of `compare_judged`.
    """
    draw_once = Resampling(n_resamples=1)
    reference = _reference_of(dev, policy, families, metric=metric, judge=marks or metric, resampling=draw_once)
    every = np.ones(reference.prepared.n, dtype=np.bool_)
    return {
        name: (variants[reference.best(*reference.outcomes(variants)[:2], every)],)
        for name, variants in families.items()
    }


def _reference_of(
    recording: Recording,
    policy: Policy,
    families: Mapping[str, Sequence[Procedure]],
    *,
    metric: str,
    judge: str,
    resampling: Resampling,
) -> _JudgedReference:
    if not families or not all(families.values()):
        raise DataError("nothing to compare: give each family at least one procedure")
    names = frozenset().union(*(item.signals for variants in families.values() for item in variants))
    reading = replace(policy, selector=_Reading(names))
    prepared = PreparedRecording.of(recording, [metric])
    check_policy(reading, prepared.recording)
    return _JudgedReference(prepared, reading, metric, prepared.draws(resampling), judge)


def whole_folds(recording: Recording, n_folds: int) -> npt.NDArray[np.int64]:
    """Return the fold (0..n_folds - 1) of each question by the hash of its cluster's id, shape ``(n_questions,)``."""
    folds = hash_folds(recording.clusters.tolist(), n_folds)
    empty = sorted(set(range(n_folds)) - set(folds.tolist()))
    if empty:
        raise DataError(
            f"{len(folds)} questions leave {len(empty)} of {n_folds} folds empty: record more, or fewer folds"
        )
    return folds


class _JudgedReference(Reference):
    """A stopping rule on a recording, with the recorded marks of a judge and the tokens of the judge's calls."""

    def __init__(self, prepared: PreparedRecording, policy: Policy, metric: str, draws: Draws, judge: str) -> None:
        super().__init__(prepared, policy, metric, draws)
        self._stopped = prepared.stops(policy)
        paid, self.token_note = _judge_tokens(prepared.recording, judge)
        marks = outcome(prepared.recording, judge)
        self._marks, self._paid = (prepared.in_view(values, self._stopped.view) for values in (marks, paid))

    def judged_row(self, name: str, variants: Sequence[Procedure], folds: npt.NDArray[np.int64]) -> JudgedRow:
        """Return the figures of one family, with each question's variant selected on the other folds."""
        by_variant = self.outcomes(variants)
        best = np.array([self.best(*by_variant[:2], folds != fold) for fold in range(int(folds.max()) + 1)])
        value, calls, tokens = (values[best[folds], np.arange(len(folds))] for values in by_variant)
        gain, gap = value - self.last, self.seen - self.last
        return JudgedRow(
            name=name,
            variants=tuple(dict.fromkeys(str(variants[i]) for i in best.tolist())),
            quality=float(value.mean()),
            delta=self.ratio(gain, np.ones(len(gain))),
            gap=self.ratio(gain, gap),
            calls=float(calls.mean()),
            tokens=float(tokens.mean()),
            gap_per_call=self.ratio(gain, gap, calls),
            gap_per_1000=self.ratio(gain, gap, tokens / 1000),
        )

    def outcomes(self, variants: Sequence[Procedure]) -> tuple[Floats, Floats, Floats]:
        """Return the chosen draft's metric, the calls, and the calls' tokens, each ``(n_variants, n_questions)``."""
        view, stop = self._stopped.view, self._stopped.position
        columns = []
        for variant in variants:
            choice: Choice = variant.choose(view, stop, self._marks)
            values = self.prepared.values(view, stop, choice.position)[self.metric]
            # Tokens of a draft that is not judged may be unknown (NaN), and NaN times 0 calls is not 0.
            tokens = np.where(choice.calls > 0, choice.calls * self._paid, 0.0)
            columns.append((self.checked(values, str(variant)), choice.calls.sum(axis=-1), tokens.sum(axis=-1)))
        values, calls, tokens = (np.stack(column) for column in zip(*columns, strict=True))
        return values, calls.astype(np.float64), tokens

    def best(self, values: Floats, calls: Floats, others: Mask) -> int:
        """Return the variant with the fewest calls among those that are nearly as good as the best.

        Variants are measured on the questions `others`.
        """
        if not others.any():  # one variant and one fold: nothing to select
            return 0
        gains = (values[:, others] - self.last[others]).mean(axis=1)
        least = CLOSED_SHARE * gains.max() if gains.max() > 0 else gains.max()
        mean_calls = np.where(gains >= least - ROUNDING, calls[:, others].mean(axis=1), np.inf)
        return int(np.lexsort((-gains, mean_calls))[0])


def _judge_tokens(recording: Recording, judge: str) -> tuple[Floats, str]:
    """Return the tokens of judging each draft, shape ``(n_questions, n_rounds)``, and a note on missing tokens.

    The tokens are NaN where unknown; the note is "" if no tokens are missing.
    """
    kinds = [column_or_nan(recording, cost_column(f"judge:{judge}", kind)) for kind in _TOKEN_KINDS]
    total = kinds[0] + kinds[1] + kinds[2]
    if np.isfinite(total[recording.seen]).all():
        return total, ""
    read = kinds[2] + column_or_nan(recording, "draft_tokens")
    if np.isfinite(read[recording.seen]).any():
        return (
            read,
            "a judge's tokens are those of the draft it reads and of its reply: its instructions are not recorded",
        )
    return read, "the judge's tokens were not recorded"
