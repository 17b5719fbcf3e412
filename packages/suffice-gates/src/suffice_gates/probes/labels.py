"""Labels for probes: whether the model's own answer was right, according to gold answers or recorded marks."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import DataError, NotFoundError
from suffice.policy.metrics import METRICS, normalize_answer
from suffice.recordings.recording import Recording

_RULE = re.compile(r"\s*(?P<measure>\w+)\s*(?:>=\s*(?P<threshold>[0-9.eE+-]+)\s*)?")
_WHOLE = ("em", "contains")


@dataclass(frozen=True, slots=True)
class LabelRule:
    """The rule by which an answer is right.

    Attributes:
        measure: `em`, `contains` (the answer contains an alias), `f1`, or a recorded column of marks, such as a judge's.
        threshold: The smallest value of a right answer; 1 for `em` and `contains`.
    """

    measure: str = "em"
    threshold: float = 1.0

    @classmethod
    def parse(cls, text: str) -> LabelRule:
        """Parse a rule: `em`, `contains`, `f1>=0.5`, `judge_entailment>=4`.

        >>> LabelRule.parse("f1 >= 0.5"), str(LabelRule.parse("contains"))
        (LabelRule(measure='f1', threshold=0.5), 'contains')

        Raises:
            DataError: The text is not a rule, or a graded measure has no threshold.
        """
        match = _RULE.fullmatch(text)
        try:
            threshold = float(match["threshold"] or "nan") if match else np.nan
        except ValueError:
            match = None
        if match is None:
            raise NotFoundError(f"unknown label rule {text!r}; allowed: em, contains, f1>=T, or COLUMN>=T")
        measure = match["measure"]
        if measure in _WHOLE and match["threshold"] is None:
            return cls(measure, 1.0)
        if not np.isfinite(threshold) or measure in _WHOLE:
            raise DataError(
                f"the label rule {text!r} is invalid: em and contains have no threshold, and "
                f"every other measure needs one ({measure}>=0.5)"
            )
        return cls(measure, threshold)

    def __str__(self) -> str:
        return self.measure if self.measure in _WHOLE else f"{self.measure}>={self.threshold:g}"


def is_right(answer: str | None, golds: Sequence[str], rule: LabelRule) -> float:
    """Return 1.0 if an answer is right, 0.0 if it is wrong, NaN if there is no usable gold answer.

    Gold answers that normalise to nothing ("The") are ignored.  A question without other gold answers has no label.

    >>> is_right("It was Derek Jarman", ["Jarman"], LabelRule.parse("contains"))
    1.0
    >>> is_right("a", ["The"], LabelRule("em"))
    nan

    Args:
        answer: The answer; None counts as wrong.
        golds: Gold answers.
        rule: `em`, `contains` or `f1`.

    Raises:
        DataError: The rule reads a column.
    """
    if rule.measure not in METRICS:
        raise DataError(f"{rule.measure!r} is not a measure of an answer; allowed: {', '.join(METRICS)}")
    usable = [gold for gold in golds if normalize_answer(gold)]
    if not usable:
        return np.nan
    return float(METRICS[rule.measure](answer, usable) >= rule.threshold)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionLabels:
    """Labels of questions.

    Attributes:
        shares: Share of right answers to each question, in [0, 1]; 0 or 1 if there is a single answer.
        rule: The rule by which answers were judged.
        least: Smallest share of right answers at which a question counts as known.
        answers: Number of judged answers.
        n_failed: Questions left out because the model failed.
        n_unlabelled: Questions left out because they have no usable gold answer or mark.
    """

    shares: Mapping[str, float]
    rule: str
    least: float
    answers: int
    n_failed: int
    n_unlabelled: int

    @property
    def known(self) -> dict[str, float]:
        """For each question, 1.0 if the model knows the answer, else 0.0."""
        return {question: float(share >= self.least) for question, share in self.shares.items()}


def closed_book_labels(
    recording: Recording, rule: LabelRule | str = "em", *, least: float = 0.5, at: int = 0
) -> QuestionLabels:
    """Label questions by whether the model answered them rightly without retrieval.

    Trajectories of one cluster are samples of one question.  The label of the question is their share of right answers.

    Args:
        recording: A recording with round 0.
        rule: The rule by which an answer is right.
        least: Smallest share of right answers at which a question counts as known, in (0, 1].
        at: The round of the answers: 0 for closed book; a later round for labels of states that were read with
            evidence.

    Raises:
        DataError: The round does not exist, `least` is out of range, or no question has a label.
        UnknownSignalError: The rule reads a missing column.
    """
    parsed = LabelRule.parse(rule) if isinstance(rule, str) else rule
    if not 0 < least <= 1:
        raise DataError(f"least is {least!r}; allowed: a share in (0, 1]")
    if at not in recording.index:
        advice = "record with --round-zero" if at == 0 else "record more rounds"
        raise DataError(f"the recording has no round {at} for the labels: {advice}")
    marks = marks_of(recording, parsed, int(np.searchsorted(recording.index, at)))
    failed = (recording.ends == "failed") | ~recording.seen[:, int(np.searchsorted(recording.index, at))]
    by_question: dict[str, list[float]] = {}
    for cluster, mark, has_failed in zip(recording.clusters.tolist(), marks, failed.tolist(), strict=True):
        by_question.setdefault(cluster, [])
        if not has_failed:
            by_question[cluster].append(mark)
    shares, n_failed, n_unlabelled, n_answers = {}, 0, 0, 0
    for question, answer_marks in by_question.items():
        judged = [mark for mark in answer_marks if not np.isnan(mark)]
        n_failed += not answer_marks
        n_unlabelled += bool(answer_marks) and not judged
        n_answers += len(judged)
        if judged:
            shares[question] = float(np.mean(judged))
    if not shares:
        raise DataError(
            f"no question has a label: {n_failed} failed, {n_unlabelled} have no usable gold answer or mark"
        )
    return QuestionLabels(
        shares=shares, rule=str(parsed), least=least, answers=n_answers, n_failed=n_failed, n_unlabelled=n_unlabelled
    )


def marks_of(recording: Recording, rule: LabelRule, position: int) -> list[float]:
    """Return 1.0 for each trajectory with a right answer, 0.0 for a wrong answer, and NaN without a usable gold answer or mark."""
    if rule.measure not in METRICS:
        column = recording.column(rule.measure)[:, position]
        return [np.nan if np.isnan(mark) else float(mark >= rule.threshold) for mark in column.tolist()]
    golds = recording.per_question("golds", [None] * len(recording.question_ids))
    answers = recording.answers[:, position]
    return [is_right(answer, gold or (), rule) for answer, gold in zip(answers.tolist(), golds.tolist(), strict=True)]
