"""Premature stops, and the effect of a floor on a signal.

A stop is premature if it returns a wrong answer that a later round corrects.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table, figure
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import PairedResult, Resampling
from suffice.policy.rounds import Floats, Mask
from suffice.policy.rules import AllOf, Rule, Threshold
from suffice.policy.session import Policy, Stops
from suffice.verdicts.diagnostics.rows import column_or_nan, right_or_wrong

SHOWN_IDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGroup:
    """Questions whose early stop had the same outcome.

    Attributes:
        n: Number of these questions.
        share: Share of the questions that could have this outcome; NaN if no question could have it.
        question_ids: Their ids.
    """

    n: int
    share: float
    question_ids: tuple[str, ...]

    @classmethod
    def of(cls, mask: Mask, among: Mask, ids: Sequence[str]) -> QuestionGroup:
        """Return the questions in `mask`, with their share of the questions in `among`."""
        n, total = int(mask.sum()), int(among.sum())
        return cls(
            n=n,
            share=n / total if total else math.nan,
            question_ids=tuple(ids[q] for q in np.flatnonzero(mask).tolist()),
        )

    def examples(self) -> str:
        """Return the first ids as text, for tables."""
        more = "" if self.n <= SHOWN_IDS else f", ... ({self.n - SHOWN_IDS} more)"
        return ", ".join(self.question_ids[:SHOWN_IDS]) + more


def fates_table(title: str, fates: Mapping[str, QuestionGroup], heads: tuple[str, str], notes: Sequence[str]) -> Table:
    """Return a table of groups of questions with their numbers and shares; `heads` names the first two columns."""
    return Table.of(
        title,
        fates.items(),
        {
            Column(heads[0]): lambda item: item[0],
            Column(heads[1], ",.0f"): lambda item: item[1].n,
            Column("share", ".1%"): lambda item: item[1].share,
            Column("which"): lambda item: item[1].examples(),
        },
        notes,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class PrematureStops(Result):
    """Outcomes of the questions that a policy stopped before their last recorded round.

    Shares are of the early stops. "Later" means the answers of the recorded rounds after the stop. "At the end" means
    the last answer, which the full budget returns. If a rule ended the recording, both are unknown, so such stops are
    not counted for the outcomes that need them.

    Attributes:
        policy: The policy.
        metric: The metric that says which answers are right.
        n: Number of questions.
        n_unmeasured: Early stops left out because the metric is unknown at the returned answer.
        early: Questions that stopped before their last recorded round; a share of all questions.
        right: Early stops with a right answer.
        wrong: Early stops with a wrong answer.
        right_later: Wrong early stops with a right answer in some later round: premature stops.
        right_at_end: Wrong early stops with a right answer in the last round, which the full budget would return.
        spared: Right early stops with a wrong answer in the last round, which stopping avoided.
        stable_wrong: Wrong early stops whose answer was stable at the stop.
        stable: Early stops at which the answer was stable.
        wrong_and_stable_rate: `stable_wrong` over `stable`; NaN without stable stops, or if `answer_stable` was not
            recorded.
        n_censored: Early stops of questions that a rule had stopped while recording, so that later answers are unknown.
        notes: Notes for the reader.
    """

    policy: str
    metric: str
    n: int
    n_unmeasured: int
    early: QuestionGroup
    right: QuestionGroup
    wrong: QuestionGroup
    right_later: QuestionGroup
    right_at_end: QuestionGroup
    spared: QuestionGroup
    stable_wrong: QuestionGroup
    stable: QuestionGroup
    wrong_and_stable_rate: float
    n_censored: int
    notes: tuple[str, ...]

    def table(self) -> Table:
        """Return the outcomes of early stops with their numbers and shares."""
        fates = {
            "stopped early": self.early,
            "right": self.right,
            "wrong": self.wrong,
            "wrong, right in some later round": self.right_later,
            "wrong, right at the end": self.right_at_end,
            "right, wrong at the end": self.spared,
            "stable": self.stable,
            "stable and wrong": self.stable_wrong,
        }
        title = f"{self.policy}: stops before the last round, {self.n:,} questions, right by {self.metric}"
        return fates_table(title, fates, ("stops", "questions"), self.notes)


def returned(stopped: Stops, right: Floats) -> Floats:
    """Return 1 if the returned answer is right, 0 if it is wrong, NaN if unknown, shape ``(n_questions,)``."""
    position = np.where(stopped.answer_position >= 0, stopped.answer_position, stopped.position)
    values = right[np.arange(len(position)), np.maximum(position, 0)]
    return np.where(position >= 0, values, np.nan)


def look_at_stops(prepared: PreparedRecording, policy: Policy, metric: str) -> PrematureStops:
    """Classify the early stops of a policy by their outcome.

    Args:
        prepared: The recording.
        policy: The policy.
        metric: The metric that says which answers are right.
    """
    recording, stopped = prepared.recording, prepared.stops(policy)
    ids, seen, position = recording.question_ids, stopped.view.seen, stopped.position
    right = prepared.in_view(right_or_wrong(recording, metric), stopped.view)
    rows, last = np.arange(len(ids)), seen.sum(axis=1) - 1
    now = returned(stopped, right)
    candidates = (position >= 0) & (position < last)
    early = candidates & ~np.isnan(now)
    later = (right == 1) & seen & (np.arange(right.shape[1]) > position[:, None])
    at_end = right[rows, np.maximum(last, 0)]
    # the signal is NaN where it was not recorded, and comparisons with NaN are False
    column = prepared.in_view(column_or_nan(recording, "answer_stable"), stopped.view)
    stable = early & (column[rows, np.maximum(position, 0)] >= 1)
    wrong, fine = early & (now == 0), early & (now == 1)
    whole = early & (recording.ends != "rule")
    n_unmeasured, n_censored = int((candidates & ~early).sum()), int((early & ~whole).sum())
    rate = float((stable & wrong).sum() / stable.sum()) if stable.any() else math.nan
    notes = ["the first share is of all questions, the others of the early stops"]
    if not math.isnan(rate):
        notes.append(f"wrong-and-stable rate: {figure(rate, '.1f', 100)} % of the stable early stops are wrong")
    if n_unmeasured:
        notes.append(f"{n_unmeasured} early stops are left out: the metric is unknown there")
    if n_censored:
        notes.append(
            f"censored: a rule had cut the recording of {n_censored} of the early stops, so what would have come "
            "later is unknown; the rows about later rounds leave them out"
        )
    return PrematureStops(
        policy=policy.label,
        metric=metric,
        n=len(ids),
        n_unmeasured=n_unmeasured,
        early=QuestionGroup.of(early, np.ones_like(early), ids),
        right=QuestionGroup.of(fine, early, ids),
        wrong=QuestionGroup.of(wrong, early, ids),
        right_later=QuestionGroup.of(wrong & later.any(axis=1) & whole, whole, ids),
        right_at_end=QuestionGroup.of(wrong & (at_end == 1) & whole, whole, ids),
        spared=QuestionGroup.of(fine & (at_end == 0) & whole, whole, ids),
        stable_wrong=QuestionGroup.of(stable & wrong, early, ids),
        stable=QuestionGroup.of(stable, early, ids),
        wrong_and_stable_rate=rate,
        n_censored=n_censored,
        notes=tuple(notes),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorEffect(Result):
    """Counts of questions by the effect of a floor on a signal; shares are of all questions.

    A floor only ever delays a stop, so each question stops where it would without the floor, or later.

    Attributes:
        rule: The rule with the floor.
        bare: The rule without the floor.
        floor: The floor.
        metric: The metric that says which answers are right.
        n: Number of questions.
        n_unmeasured: Questions left out: the metric is unknown at one of the two answers, or the rule needs rounds that
            were not recorded because another rule had stopped the question.
        unchanged: Questions whose stop the floor did not delay.
        rescued: Questions that were delayed, wrong without the floor and right with it.
        harmed: Questions that were delayed, right without the floor and wrong with it.
        spent_right: Questions that were delayed without effect: right either way.
        spent_wrong: Questions that were delayed without effect: wrong either way.
        delta: Paired difference of the share of right answers, with the floor minus without.
        delta_rounds: Paired difference of mean rounds, with the floor minus without.
    """

    rule: str
    bare: str
    floor: str
    metric: str
    n: int
    n_unmeasured: int
    unchanged: QuestionGroup
    rescued: QuestionGroup
    harmed: QuestionGroup
    spent_right: QuestionGroup
    spent_wrong: QuestionGroup
    delta: PairedResult
    delta_rounds: PairedResult

    def table(self) -> Table:
        """Return the numbers and shares of questions by the effect of the floor."""
        fates = {
            "not delayed": self.unchanged,
            "delayed: rescued, wrong to right": self.rescued,
            "delayed: harmed, right to wrong": self.harmed,
            "delayed for nothing: right either way": self.spent_right,
            "delayed for nothing: wrong either way": self.spent_wrong,
        }
        notes = [
            f"share right, with the floor against without: {figure(self.delta.triple, '+.1f', 100)} points",
            f"rounds per question: {figure(self.delta_rounds.triple, '+.2f')}",
        ]
        if self.delta.warning:
            notes.append(f"{self.delta.warning}: p = {self.delta.p_exact:.3f}")
        if self.n_unmeasured:
            notes.append(
                f"{self.n_unmeasured} questions are left out: the metric is unknown at one of the two answers, or a rule "
                "had ended their recording before"
            )
        title = f"What {self.floor} changed: {self.rule} against {self.bare}, right by {self.metric}"
        return fates_table(title, fates, ("questions", "n"), notes)


def without_floor(rule: Rule, signal: str = "p_correct") -> tuple[Rule, Threshold] | None:
    """Split a rule of the form ``a & ... & (signal > t)`` into the rest and the floor; return None for other rules.

    >>> from suffice.policy.rules import tasr
    >>> bare, floor = without_floor(tasr())
    >>> print(bare, "|", floor)
    answer_stable >= 1 | p_correct > 0.25
    """
    if not isinstance(rule, AllOf):
        return None
    floors = [
        item for item in rule.rules if isinstance(item, Threshold) and item.name == signal and item.comparison[0] == ">"
    ]
    rest = [item for item in rule.rules if item not in floors]
    if len(floors) != 1 or not rest:
        return None
    return (rest[0] if len(rest) == 1 else AllOf(tuple(rest))), floors[0]


def compare_floor(
    prepared: PreparedRecording, policy: Policy, metric: str, resampling: Resampling = Resampling()
) -> FloorEffect | None:
    """Compare a policy with and without its floor on `p_correct`; return None if its rule has no such floor.

    Args:
        prepared: The recording.
        policy: A policy with such a floor, for instance TASR: ``(answer_stable >= 1) & (p_correct > 0.25)``.
        metric: The metric that says which answers are right.
        resampling: Settings of the intervals.
    """
    split = without_floor(policy.rule)
    if split is None:
        return None
    bare, floor = split
    recording, ends = prepared.recording, prepared.recording.ends
    floored, plain = prepared.stops(policy), prepared.stops(replace(policy, rule=bare, name=""))
    right = prepared.in_view(right_or_wrong(recording, metric), floored.view)
    before, after = returned(plain, right), returned(floored, right)
    unrun = plain.unrun(ends, policy.max_rounds) | floored.unrun(ends, policy.max_rounds)
    known = ~(np.isnan(before) | np.isnan(after) | unrun)
    if not known.any():
        return None
    delayed = known & (floored.position > plain.position)
    draws = resampling.draws(recording.clusters[known])

    def group(mask: Mask) -> QuestionGroup:
        return QuestionGroup.of(mask, known, recording.question_ids)

    def fate(without: int, with_floor: int) -> QuestionGroup:
        return group(delayed & (before == without) & (after == with_floor))

    return FloorEffect(
        rule=policy.label,
        bare=str(bare),
        floor=str(floor),
        metric=metric,
        n=int(known.sum()),
        n_unmeasured=int((~known).sum()),
        unchanged=group(known & ~delayed),
        rescued=fate(0, 1),
        harmed=fate(1, 0),
        spent_right=fate(1, 1),
        spent_wrong=fate(0, 0),
        delta=draws.paired((after - before)[known]),
        delta_rounds=draws.paired((floored.position - plain.position)[known].astype(np.float64)),
    )
