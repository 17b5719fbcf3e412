"""Compare selectors under stopping rules, and report the share of the gap to the oracle that each selector closes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.tables import Column, Table
from suffice.errors import CensoredError, DataError
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.checks import check_policy
from suffice.evaluation.replay.outcomes import choice_notes
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.selected import tuned_on
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import Draws, Resampling, undefined_notes
from suffice.policy.rounds import Floats
from suffice.policy.rules.parse import parse_selector
from suffice.policy.rules.selectors import Last, Selector
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

NO_GAP = "some resamples have no gap between last and oracle; intervals of shares leave them out"

WithInterval = tuple[float, float, float]
"""A value with the ends of its interval, each NaN where undefined."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorRow:
    """One selector under one stopping rule.

    Attributes:
        quality: Mean metric of the returned answers.
        delta: Mean difference to `last` under the same rule.
        gap_seen: Share that the selector closes of the gap between `last` and the best answer of the rounds seen.
        gap_full: Share that the selector closes of the gap between `last` and the best answer of all recorded rounds.
        oracle_seen: Mean metric if the best answer of the rounds seen is returned.
        oracle_full: Mean metric if the best answer of all recorded rounds is returned.
        calls: Mean operational calls, including those for the selector's signals.
        n_differ: Questions whose metric differs from the metric under `last`.
        n_selected: Questions that the policy was fitted or selected on.
    """

    rule: str
    selector: str
    quality: float
    delta: WithInterval
    gap_seen: WithInterval
    gap_full: WithInterval
    oracle_seen: float
    oracle_full: float
    calls: float
    n_differ: int
    n_selected: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorComparison(Evaluation):
    """Selectors under stopping rules on one recording.

    Attributes:
        rows: One row for each rule and selector, ordered by rule and then by selector, both in the given order.
        metric: The metric of quality.
        n_failed: Questions left out because their recording failed.
    """

    rows: tuple[SelectorRow, ...]
    metric: str
    n_failed: int

    def row(self, rule: str, selector: str) -> SelectorRow:
        """Return the row of a rule and a selector.

        Raises:
            DataError: No row has this rule and selector.
        """
        for row in self.rows:
            if (row.rule, row.selector) == (rule, selector):
                return row
        have = ", ".join(f"{row.rule}/{row.selector}" for row in self.rows)
        raise DataError(f"no row of {rule!r} and {selector!r}; there are: {have}")

    def table(self) -> Table:
        """Return one row for each rule and selector."""
        name = self.metric.upper()
        return Table.of(
            f"Which round: {self.n} questions; {self.resampling.text}",
            self.rows,
            {
                Column("rule"): lambda row: row.rule + ("*" if row.n_selected else ""),
                Column("selector"): lambda row: "ranked" if row.selector.startswith("ranked(") else row.selector,
                Column(name, ".1f", scale=100): "quality",
                Column(f"{name} vs last", "+.1f", scale=100, interval=True): "delta",
                Column("gap closed, seen %", ".0f", scale=100, interval=True): "gap_seen",
                Column("gap closed, full %", ".0f", scale=100, interval=True): "gap_full",
                Column("oracle seen", ".1f", scale=100): "oracle_seen",
                Column("oracle full", ".1f", scale=100): "oracle_full",
                Column("calls", ".2f"): "calls",
            },
            self.notes,
        )


def compare_selectors(
    recording: Recording,
    policies: Sequence[Policy],
    selectors: Sequence[Selector | str],
    *,
    metric: str = "f1",
    resampling: Resampling = Resampling(),
) -> SelectorComparison:
    """Compare selectors under stopping rules, and report the share of the gap to the oracle that each selector closes.

    Args:
        recording: Recorded rounds of questions on which no part was fitted.
        policies: The stopping rules; their own selectors are not read.
        selectors: The selectors to compare; `last` is always the reference.
        metric: A column in [0, 1], or `agreement`.
        resampling: Settings of the intervals, shared by all rows. Ratios have percentile intervals.

    Raises:
        DataError: No policy or selector, or the metric was not measured where a policy returns an answer.
        CensoredError: A policy needs rounds that were not recorded, because a rule had stopped some questions.
        UnknownSignalError: A policy or a selector reads a signal that was not recorded.
        NotFittedError: A policy lacks fitted state.
    """
    if not policies or not selectors:
        raise DataError("nothing to compare: give at least one policy and one selector")
    resampling = replace(resampling, interval="percentile")
    chosen = {str(s): s for s in (parse_selector(s) if isinstance(s, str) else s for s in selectors)}
    chosen.setdefault("last", Last())
    prepared = PreparedRecording.of(recording, [metric])
    draws = prepared.draws(resampling)
    rows, undefined, notes = [], False, list[str]()
    for policy in policies:
        reference = Reference(prepared, policy, metric, draws)
        rows += [reference.row(selector) for selector in chosen.values()]
        undefined |= reference.undefined
        notes += [note for note in reference.notes if note not in notes]
    notes += choice_notes(prepared.recording, [metric])
    if prepared.cut.any():
        notes.append(
            f"censored: a rule ended {int(prepared.cut.sum())} of {len(prepared.cut)} questions, so the best of all rounds is unknown"
        )
    if unspread := undefined_notes(draws.units.n_units, resampling.n_resamples):
        notes += unspread
    elif undefined:
        notes.append(NO_GAP)
    if any(row.n_selected for row in rows):
        notes.append("* selected here: fitted on some of these questions, so the figures flatter it")
    return SelectorComparison(
        rows=tuple(rows),
        metric=metric,
        n=prepared.n,
        n_failed=prepared.n_failed,
        resampling=resampling,
        data_hash=recording.data_hash,
        notes=tuple(notes),
    )


class Reference:
    """The references under one stopping rule: the metric of `last` and of the oracles.

    Attributes:
        last: The metric of the latest answer up to the stop, shape ``(n_questions,)``.
        full: The metric of the best recorded answer; NaN where a rule ended the recording.
        undefined: Whether in some resample `last` is as good as an oracle, so that there is no gap to take a share of.

    Args:
        prepared: The recording.
        policy: The rule; its selector is not read.
        metric: The metric of quality.
        draws: The draws that all comparisons share.

    Raises:
        DataError: The metric was not measured where `last` returns an answer.
        CensoredError: The rule needs rounds that were not recorded for some questions.
    """

    def __init__(self, prepared: PreparedRecording, policy: Policy, metric: str, draws: Draws) -> None:
        self.prepared, self.policy, self.metric, self._draws = prepared, policy, metric, draws
        self.undefined = False
        latest = replace(policy, selector=Last())
        self.notes = dict.fromkeys(check_policy(latest, prepared.recording))
        run, stopped = run_policy(prepared, latest)
        if not run.exact:
            raise CensoredError(
                f"{policy.label!r} goes on past what was recorded in {int(run.unrun.sum())} of {len(run.unrun)} "
                "questions, because a rule ended their recording: which answer it would return there is unknown. Record "
                "them at full width, or compare selectors under a rule that stops no later (--rule)"
            )
        self.last = self.checked(run.values[metric], "last")
        values = np.nan_to_num(prepared.in_view(prepared.metrics[metric], stopped.view), nan=-np.inf)
        # An oracle chooses among all answers that could be returned, so it is never worse than `last`, which may return
        # none.
        self.seen = np.maximum(np.where(stopped.charged(), values, -np.inf).max(axis=1), self.last)
        full = np.maximum(np.where(stopped.view.seen, values, -np.inf).max(axis=1), self.last)
        self.full = np.where(prepared.cut, np.nan, full)

    def checked(self, values: Floats, selector: str) -> Floats:
        """Return the metric of a selector's answers; raise if it is unknown for an answer."""
        if np.isnan(values).any():
            raise DataError(
                f"{self.metric!r} was not measured for an answer that {selector!r} returns under "
                f"{self.policy.label!r} in {int(np.isnan(values).sum())} questions: record answers at every round, or "
                "use another metric"
            )
        return values

    def row(self, selector: Selector) -> SelectorRow:
        """Return the figures of one selector."""
        policy = replace(self.policy, selector=selector)
        self.notes.update(dict.fromkeys(check_policy(policy, self.prepared.recording)))
        run, _ = run_policy(self.prepared, policy)
        values = self.checked(run.values[self.metric], str(selector))
        gain = values - self.last
        return SelectorRow(
            rule=self.policy.label,
            selector=str(selector),
            quality=float(values.mean()),
            delta=self.ratio(gain, np.ones(len(gain))),
            gap_seen=self.ratio(gain, self.seen - self.last),
            gap_full=self.ratio(gain, self.full - self.last),
            oracle_seen=float(self.seen.mean()),
            oracle_full=float(self.full.mean()),
            calls=float(run.ledger.calls.mean()),
            n_differ=int(np.count_nonzero(gain)),
            n_selected=tuned_on(policy, self.prepared.recording),
        )

    def ratio(self, above: Floats, below: Floats, per: Floats | None = None) -> WithInterval:
        """Return the ratio of two means with its interval, see `Draws.ratio`; set `undefined` if some draw has no ratio."""
        value, defined = self._draws.ratio(above, below, per)
        self.undefined |= not defined
        return value
