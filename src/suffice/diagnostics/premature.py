"""Stops that came too early: wrong answers that a later round would have put right, and wrong answers that held still."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.results import Result
from suffice.rounds import Floats, Mask
from suffice.session import Stops
from suffice.tables import Column, Table, figure

__all__ = ["PrematureStops", "QuestionGroup", "look_at_stops", "returned"]

SHOWN_IDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGroup:
    """Questions with the same fate.

    Attributes:
        n: How many.
        share: Of the questions that could have it; NaN where there are none of those.
        question_ids: Which.
    """

    n: int
    share: float
    question_ids: tuple[str, ...]

    @classmethod
    def of(cls, mask: Mask, among: Mask, ids: npt.NDArray[np.object_]) -> QuestionGroup:
        """Return the questions where `mask`, as a share of those where `among`."""
        total = int(among.sum())
        n = int(mask.sum())
        return cls(n=n, share=n / total if total else math.nan, question_ids=tuple(map(str, ids[mask])))

    def examples(self) -> str:
        """Return the first ids, for tables."""
        more = "" if self.n <= SHOWN_IDS else f", ... ({self.n - SHOWN_IDS} more)"
        return ", ".join(self.question_ids[:SHOWN_IDS]) + more


@dataclass(frozen=True, slots=True, kw_only=True)
class PrematureStops(Result):
    """What became of the questions that a policy stopped before their last recorded round.

    Shares are of the early stops.  "Later" looks at the answers of the recorded rounds after the stop, "at the end" at
    the last one: what the full budget returns.  Where a rule cut the recording both are unknown, and such stops are in
    neither the count nor the share.

    Attributes:
        policy: Whose stops.
        metric: What counts as right.
        n: Questions.
        n_unmeasured: Early stops left out because the metric is unknown at the returned answer.
        early: Stopped before their last recorded round; a share of all questions.
        right: With a right answer.
        wrong: With a wrong one.
        right_later: Wrong, and some later round has a right answer: premature.
        right_at_end: Wrong, and the last round has a right answer: what the full budget would have won.
        spared: Right, and the last round has a wrong answer: what the stop has saved.
        stable_wrong: Wrong although the answer was stable at the stop.
        stable: Early stops at which the answer was stable; `stable_wrong` over these is the wrong-and-stable rate.
        wrong_and_stable_rate: That rate; NaN without stable stops, or where `answer_stable` was not recorded.
        n_censored: Early stops of questions that a rule had cut while recording: what would have come later is unknown.
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

    def table(self) -> Table:
        """Return the fates with their counts and shares."""
        fates: Mapping[str, QuestionGroup] = {
            "stopped early": self.early,
            "right": self.right,
            "wrong": self.wrong,
            "wrong, right in some later round": self.right_later,
            "wrong, right at the end": self.right_at_end,
            "right, wrong at the end": self.spared,
            "stable": self.stable,
            "stable and wrong": self.stable_wrong,
        }
        return Table(
            title=f"{self.policy}: stops before the last round, {self.n:,} questions, right by {self.metric}",
            columns=(Column("stops"), Column("questions", ",.0f"), Column("share", ".1%"), Column("which")),
            rows=tuple((name, group.n, group.share, group.examples()) for name, group in fates.items()),
            notes=self.notes(),
        )

    def notes(self) -> tuple[str, ...]:
        """Return what a reader of the table must know."""
        notes = ["the first share is of all questions, the others of the early stops"]
        if not math.isnan(self.wrong_and_stable_rate):
            notes.append(
                f"wrong-and-stable rate: {figure(self.wrong_and_stable_rate, '.1f', 100)} % of the stable early stops are wrong"
            )
        if self.n_unmeasured:
            notes.append(f"{self.n_unmeasured} early stops are left out: the metric is unknown there")
        if self.n_censored:
            notes.append(
                f"censored: a rule had cut the recording of {self.n_censored} of the early stops, so what would have come "
                "later is unknown; the rows about later rounds leave them out"
            )
        return tuple(notes)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {**Result.to_dict(self), "notes": list(self.notes())}


def returned(stopped: Stops, right: Floats) -> Floats:
    """Return whether the returned answer is right, shape ``(n_questions,)``; NaN where unknown or without a round.

    Args:
        stopped: Where the policy stops, and which answer it returns.
        right: Of the rounds of its view.
    """
    position = np.where(stopped.answer_position >= 0, stopped.answer_position, stopped.position)
    values = right[np.arange(len(position)), np.maximum(position, 0)]
    return np.where(position >= 0, values, np.nan)


def look_at_stops(
    stopped: Stops,
    right: Floats,
    *,
    policy: str,
    metric: str,
    question_ids: npt.NDArray[np.object_],
    ends: npt.NDArray[np.object_],
    stable: Floats | None,
) -> PrematureStops:
    """Return what became of the questions that were stopped early.

    Args:
        stopped: Where the policy stops.
        right: 1, 0 or NaN at the rounds of its view, shape ``(n_questions, n_rounds)``.
        policy: Its label.
        metric: What counts as right.
        question_ids: Shape ``(n_questions,)``.
        ends: Why each recording has no further round.
        stable: `answer_stable` at the same rounds; None if it was not recorded.
    """
    ids, seen = question_ids, stopped.view.seen
    rows, last = np.arange(len(ids)), seen.sum(axis=1) - 1
    now = returned(stopped, right)
    candidates = (stopped.position >= 0) & (stopped.position < last)
    early = candidates & ~np.isnan(now)
    later = (right == 1) & seen & (np.arange(right.shape[1]) > stopped.position[:, None])
    at_end = right[rows, np.maximum(last, 0)]
    held = np.zeros(len(ids), dtype=np.bool_)
    if stable is not None:
        held = early & (stable[rows, np.maximum(stopped.position, 0)] >= 1)
    wrong, fine = early & (now == 0), early & (now == 1)
    still_wrong = held & wrong
    whole = early & (ends != "rule")
    return PrematureStops(
        policy=policy,
        metric=metric,
        n=len(ids),
        n_unmeasured=int((candidates & ~early).sum()),
        early=QuestionGroup.of(early, np.ones(len(ids), dtype=np.bool_), ids),
        right=QuestionGroup.of(fine, early, ids),
        wrong=QuestionGroup.of(wrong, early, ids),
        right_later=QuestionGroup.of(wrong & later.any(axis=1) & whole, whole, ids),
        right_at_end=QuestionGroup.of(wrong & (at_end == 1) & whole, whole, ids),
        spared=QuestionGroup.of(fine & (at_end == 0) & whole, whole, ids),
        stable_wrong=QuestionGroup.of(still_wrong, early, ids),
        stable=QuestionGroup.of(held, early, ids),
        wrong_and_stable_rate=float(still_wrong.sum() / held.sum()) if held.any() else math.nan,
        n_censored=int((early & ~whole).sum()),
    )
