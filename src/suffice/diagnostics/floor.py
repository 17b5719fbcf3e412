"""What the margin floor rescued: the same rule with and without its threshold on a calibrated signal."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.diagnostics.premature import QuestionGroup, returned
from suffice.results import Result
from suffice.rounds import Floats, Rounds
from suffice.rules import AllOf, Rule, Threshold
from suffice.session import Policy, stops
from suffice.statistics import PairedResult, Resampling
from suffice.tables import Column, Table, figure

__all__ = ["FloorEffect", "compare_floor", "without_floor"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FloorEffect(Result):
    """Questions by what a floor on a signal changed; shares are of all questions.

    A floor only ever delays a stop, so each question stops where it would without the floor, or later.

    Attributes:
        rule: The rule with the floor.
        bare: The rule without it.
        floor: The floor.
        metric: What counts as right.
        n: Questions.
        n_unmeasured: Questions left out because the metric is unknown at one of the two answers, or because the rule
            goes on past where another rule ended their recording.
        unchanged: The floor did not delay the stop.
        rescued: Delayed, wrong without the floor and right with it.
        harmed: Delayed, right without the floor and wrong with it.
        spent_right: Delayed for nothing: right either way.
        spent_wrong: Delayed for nothing: wrong either way.
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
        """Return the fates with their counts and shares."""
        fates = {
            "not delayed": self.unchanged,
            "delayed: rescued, wrong to right": self.rescued,
            "delayed: harmed, right to wrong": self.harmed,
            "delayed for nothing: right either way": self.spent_right,
            "delayed for nothing: wrong either way": self.spent_wrong,
        }
        d, r = self.delta, self.delta_rounds
        notes = [
            f"share right, with the floor against without: {figure((d.delta, d.low, d.high), '+.1f', 100)} points",
            f"rounds a question: {figure((r.delta, r.low, r.high), '+.2f')}",
        ]
        if d.warning:
            notes.append(f"{d.warning}: p = {d.p_exact:.3f}")
        if self.n_unmeasured:
            notes.append(
                f"{self.n_unmeasured} questions are left out: the metric is unknown at one of the two answers, or a rule "
                "had ended their recording before"
            )
        return Table(
            title=f"What {self.floor} changed: {self.rule} against {self.bare}, right by {self.metric}",
            columns=(Column("questions"), Column("n", ",.0f"), Column("share", ".1%"), Column("which")),
            rows=tuple((name, group.n, group.share, group.examples()) for name, group in fates.items()),
            notes=tuple(notes),
        )


def without_floor(rule: Rule, signal: str = "p_correct") -> tuple[Rule, Threshold] | None:
    """Return a rule of the form ``a & ... & (signal > t)`` without that floor, and the floor; None for other rules.

    >>> from suffice.rules import tasr
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
    policy: Policy,
    raw: Rounds,
    right: Floats,
    *,
    metric: str,
    question_ids: npt.NDArray[np.object_],
    clusters: npt.NDArray[np.object_],
    ends: npt.NDArray[np.object_],
    resampling: Resampling = Resampling(),
) -> FloorEffect | None:
    """Compare a policy with the same one without its floor on `p_correct`; None if its rule has no such floor.

    Args:
        policy: For instance TASR: ``(answer_stable >= 1) & (p_correct > 0.25)``.
        raw: Raw columns that it reads.
        right: 1, 0 or NaN at the rounds of its view, shape ``(n_questions, n_rounds)``.
        metric: What counts as right.
        question_ids: Shape ``(n_questions,)``.
        clusters: The unit of each question.
        ends: Why each recording has no further round.
        resampling: How intervals are made.
    """
    split = without_floor(policy.rule)
    if split is None:
        return None
    bare, floor = split
    floored, plain = stops(policy, raw), stops(replace(policy, rule=bare, name=""), raw)
    before, after = returned(plain, right), returned(floored, right)
    unrun = plain.unrun(ends, policy.max_rounds) | floored.unrun(ends, policy.max_rounds)
    known = ~(np.isnan(before) | np.isnan(after) | unrun)
    if not known.any():
        return None
    delayed = known & (floored.position > plain.position)
    draws = resampling.draws(int(known.sum()), clusters[known])

    def group(mask: npt.NDArray[np.bool_]) -> QuestionGroup:
        return QuestionGroup.of(mask, known, question_ids)

    return FloorEffect(
        rule=policy.label,
        bare=str(bare),
        floor=str(floor),
        metric=metric,
        n=int(known.sum()),
        n_unmeasured=int((~known).sum()),
        unchanged=group(known & ~delayed),
        rescued=group(delayed & (before == 0) & (after == 1)),
        harmed=group(delayed & (before == 1) & (after == 0)),
        spent_right=group(delayed & (before == 1) & (after == 1)),
        spent_wrong=group(delayed & (before == 0) & (after == 0)),
        delta=draws.paired((after - before)[known]),
        delta_rounds=draws.paired((floored.position - plain.position)[known].astype(np.float64)),
    )
