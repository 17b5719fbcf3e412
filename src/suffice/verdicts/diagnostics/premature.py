"""Premature stops: wrong answers that a later round would have corrected, and wrong answers that were stable."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table, figure
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.policy.rounds import Floats, Mask
from suffice.policy.session import Policy, Stops
from suffice.verdicts.diagnostics.rows import column_or_nan, right_or_wrong

SHOWN_IDS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGroup:
    """Questions with the same outcome of an early stop.

    Attributes:
        n: Number of these questions.
        share: Share of the questions that could have this outcome; NaN if there are none.
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

    Shares are of the early stops.  "Later" means the answers of the recorded rounds after the stop, "at the end" the
    last answer, which the full budget returns.  If a rule cut the recording both are unknown, and such stops are not
    counted.

    Attributes:
        policy: The policy.
        metric: The metric that says which answers are right.
        n: Questions.
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
    """Return 1 where the returned answer is right, 0 where wrong, shape ``(n_questions,)``; NaN where unknown."""
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
    # NaN where it was not recorded, and no comparison with NaN holds.
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
