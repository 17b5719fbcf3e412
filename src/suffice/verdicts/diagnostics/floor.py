"""The effect of a margin floor: a rule with and without its threshold on a calibrated signal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Table, figure
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import PairedResult, Resampling
from suffice.policy.rounds import Mask
from suffice.policy.rules import AllOf, Rule, Threshold
from suffice.policy.session import Policy
from suffice.verdicts.diagnostics.premature import QuestionGroup, fates_table, returned
from suffice.verdicts.diagnostics.rows import right_or_wrong


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorEffect(Result):
    """Counts of questions by the effect of a floor on a signal; shares are of all questions.

    A floor only ever delays a stop, so each question stops where it would without the floor, or later.

    Attributes:
        rule: The rule with the floor.
        bare: The rule without it.
        floor: The floor.
        metric: The metric that says which answers are right.
        n: Questions.
        n_unmeasured: Questions left out because the metric is unknown at one of the two answers, or because the rule
            needs rounds that were not recorded since another rule had stopped the question.
        unchanged: Questions whose stop the floor did not delay.
        rescued: Questions that were delayed, wrong without the floor and right with it.
        harmed: Questions that were delayed, right without the floor and wrong with it.
        spent_right: Questions that were delayed without effect: right either way.
        spent_wrong: Questions that were delayed without effect: wrong either way.
        delta: Paired difference of the share right, with the floor minus without.
        delta_rounds: Paired difference of rounds.
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
    """Return a rule of the form ``a & ... & (signal > t)`` without that floor, and the floor; None for other rules.

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
    """Compare a policy with the same one without its floor on `p_correct`; None if its rule has no such floor.

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
