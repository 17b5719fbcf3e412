"""Outcomes: metrics and agreement of each round, and of the answer that a stop there would return."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, NotFoundError
from suffice.policy.metrics import METRICS, Metric, answer_key, f1, normalize_answer, without_parts
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Selector
from suffice.policy.rules.selectors import Last, answered
from suffice.recordings.recording import Recording

AGREEMENT = ("agreement", "agreement_em", "agreement_f1")
"""Metrics that compare with the answer of the full-budget run: they measure sameness, not truth."""

_ABOVE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<comparison>>=|>)\s*(?P<value>[0-9.]+)\s*")

_ABANDON = re.compile(r"abandon\((?P<name>[A-Za-z_]\w*)\)")

_PAIRS = 1 << 23
"""Pairs of rounds of one question that are compared at once; memory is proportional to it."""

WHOLE = "whole_answers"
"""The metadata key of the reason why F1's partial credit does not suit the answers."""

PARTIAL = "partial_credit"
"""The metadata key of the note on the number of answers with partial credit from F1."""

SECOND = "second_judge"
"""The metadata key of notes on the log's own scores that are not used, because gold answers judge the answers."""

_LETTER = re.compile(r"[\W_]*[A-Za-z][\W_]*")


def is_agreement(name: str) -> bool:
    """Return whether a metric compares answers with the full-budget run instead of gold answers."""
    return name.split(">", maxsplit=1)[0].strip() in AGREEMENT


def abandoned(metric: str) -> str:
    """Return the name inside an `abandon` metric, such as `solved` in ``abandon(solved)``; "" for another metric."""
    known = _ABANDON.fullmatch(metric)
    return "" if known is None else known["name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementBasis:
    """Counts for the note on agreement with the full budget's answers; the counts of several parts can be added.

    Attributes:
        cut: Number of questions that a rule ended.  Their last answer need not be the answer at the full budget.
        silent: Number of questions without any answer.
        independent: Whether rounds are independent samples.  Agreement then compares with their majority answer.
        alone: Number of questions with several samples that all differ, so that every answer counts as the majority.
    """

    n: int
    cut: int
    silent: int
    independent: bool
    alone: int = 0

    @classmethod
    def of(cls, recording: Recording) -> AgreementBasis:
        """Count the answers of a recording."""
        silent = 0 if recording.independent else unanswered(recording)
        n, cut = recording.shape[0], int(recording.cut.sum())
        alone = 0
        if recording.independent and "answer" in recording.table.column_names:
            counts = _samples_alike(recording).max(axis=1)
            alone = int(((counts == 1) & (recording.seen.sum(axis=1) > 1)).sum())
        return cls(n=n, cut=cut, silent=silent, independent=recording.independent, alone=alone)

    def __add__(self, other: AgreementBasis) -> AgreementBasis:
        counts = {name: getattr(self, name) + getattr(other, name) for name in ("n", "cut", "silent", "alone")}
        return replace(self, **counts)

    @property
    def note(self) -> str:
        """The note on agreement: the answer that it compares with, and a warning that this is not the truth."""
        whose = "the full-budget run's answer"
        if self.independent:
            rest = f"; in {self.alone:,} of {self.n:,} questions no two samples are the same, and each counts as the majority"
            return (
                "agreement measures sameness with the majority of all recorded samples, any of them where several tie, not truth"
                f"{rest * bool(self.alone)}"
            )
        if self.cut:
            whose = f"the last recorded answer (in {self.cut} of {self.n} questions a rule ended the loop before its full budget)"
        return agreement_text(self.silent, self.n, whose)


def agreement_note(recording: Recording) -> str:
    """Return the note on agreement: the answer that it compares with, and a warning that this is not the truth."""
    return AgreementBasis.of(recording).note


def agreement_text(silent: int, n: int, whose: str = "the full-budget run's answer") -> str:
    """Return the note on agreement."""
    rest = f"; in {silent:,} of {n:,} questions no round has an answer, which agrees with itself"
    return f"agreement measures sameness with {whose}, not truth{rest * bool(silent)}"


def unanswered(recording: Recording) -> int:
    """Return the number of questions without an answer in any round; all of them if answers were not recorded."""
    if "answer" not in recording.table.column_names:
        return len(recording.question_ids)
    texts = ([text for text in answers if isinstance(text, str)] for answers in recording.answers.tolist())
    return sum(not any(text.strip() for text in row) for row in texts)


def default_metrics(recording: Recording, choice: MultipleChoice | None = None) -> tuple[str, ...]:
    """Return the default metrics, the quality first: F1 and EM, or only EM for multiple choice, labels and codes.

    A recording with its own normalizer has `match` instead.  F1 does not suit multiple choice: the gold answer "a" is
    removed as an article, so F1 is 0 where EM is 1.

    Args:
        recording: Recorded rounds.
        choice: Counts over all questions that show multiple choice, if `recording` has only some of the questions.
            None = count in `recording`.
    """
    if MATCH in recording.names("metric"):
        return (MATCH,)
    return ("em",) if (choice or MultipleChoice.of(recording)).note else ("f1", "em")


def choice_note(recording: Recording) -> str | None:
    """Return why F1 cannot score these answers (for example because all gold answers are single letters), or None."""
    return MultipleChoice.of(recording).note


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleChoice:
    """Counts that show whether answers are right or wrong as a whole, as in multiple choice; counts can be added.

    Attributes:
        whole: The reason why F1 cannot score the answers, as stored on import; "" if none was stored.
        golds: Number of gold answers where EM was measured.
        letters: Number of gold answers that are single letters.
        wordless: Number of gold answers without any word after normalization, such as "a", which is an article.
        exact: Number of rounds whose answer equals a gold answer.
        partly: Number of these rounds whose F1 is nevertheless below 1.
    """

    whole: str = ""
    golds: int = 0
    letters: int = 0
    wordless: int = 0
    exact: int = 0
    partly: int = 0

    @classmethod
    def of(cls, recording: Recording) -> MultipleChoice:
        """Count the gold answers, EM and F1 of a recording."""
        stored = cls(whole=recording.metadata.get(WHOLE, ""))
        if "em" not in recording.names("metric"):
            return stored
        golds: list[str] = []
        if "golds" in recording.table.column_names:
            golds = [gold for listed in recording.per_question("golds", []).tolist() for gold in listed or ()]
        overlap = recording.column("f1") if "f1" in recording.names("metric") else None
        return stored + cls.counted(golds, recording.column("em"), overlap)

    @classmethod
    def counted(cls, golds: Sequence[str], em: Floats, f1: Floats | None) -> MultipleChoice:
        """Count the gold answers of questions, and the EM and F1 of their rounds; F1 is None if it was not measured."""
        letters = sum(_LETTER.fullmatch(gold) is not None for gold in golds)
        wordless = sum(not normalize_answer(gold) for gold in golds)
        if f1 is None:
            return cls(golds=len(golds), letters=letters, wordless=wordless)
        exact = em >= 1
        partly = exact & (f1 < 1)
        n, n_partly = int(exact.sum()), int(partly.sum())
        return cls(golds=len(golds), letters=letters, wordless=wordless, exact=n, partly=n_partly)

    def __add__(self, other: MultipleChoice) -> MultipleChoice:
        return MultipleChoice(
            whole=self.whole or other.whole,
            wordless=self.wordless + other.wordless,
            golds=self.golds + other.golds,
            letters=self.letters + other.letters,
            exact=self.exact + other.exact,
            partly=self.partly + other.partly,
        )

    @property
    def note(self) -> str | None:
        """The reason why F1 cannot score the answers; None if it can."""
        if self.whole:
            return self.whole
        if self.golds and self.letters == self.golds:
            return (
                "the gold answers are single letters: em is the quality, since f1 counts words that letters do not have"
            )
        if not self.partly:
            return None
        if not self.wordless:
            return (
                f"f1 is below 1 in {self.partly} of {self.exact} rounds whose em is 1, so it is no overlap of words with the gold answer: em "
                "is the quality"
            )
        return (
            f"f1 is below 1 in {self.partly} of {self.exact} rounds whose answer equals a gold answer (the gold answer "
            "'a' normalises to no word at all): judge multiple choice by em"
        )


def choice_notes(recording: Recording, metrics: Iterable[str], choice: MultipleChoice | None = None) -> list[str]:
    """Return a note on multiple choice if EM or F1 is used, and a note on partial credit if F1 is the first metric."""
    names = [name.split(">", maxsplit=1)[0].strip() for name in metrics]
    scored = any(name in ("em", "f1") for name in names)
    note = (choice or MultipleChoice.of(recording)).note if scored else None
    return list(filter(None, [note, recording.metadata.get(PARTIAL) if names[:1] == ["f1"] else None]))


def has_outcome(recording: Recording, name: str) -> bool:
    """Return whether `outcome` can return this metric of a recording; its values are not checked."""
    name = abandoned(name) or name.split(">", maxsplit=1)[0].strip()
    columns = set(recording.table.column_names)
    return name in AGREEMENT or name in columns or (name in METRICS and {"answer", "golds"} <= columns)


def measured_quality(recording: Recording) -> str:
    """Return F1 (EM for multiple choice) if answers can be scored, else a metric that was measured, else agreement."""
    return next(iter(measured_qualities(recording)), "agreement")


def measured_qualities(recording: Recording) -> list[str]:
    """Return the default quality if answers can be scored, else `own_judges`, else the first measured metric."""
    for name in default_metrics(recording):
        if has_outcome(recording, name) and np.isfinite(outcome(recording, name)).any():
            return [name]
    measured = measured_metrics(recording)
    return own_judges(measured) or measured[:1]


def own_judges(metrics: Iterable[str]) -> list[str]:
    """Return the log's own metrics that may judge answers; omit metrics of gold answers, and parts such as precision."""
    return without_parts(name for name in metrics if name not in (*METRICS, MATCH))


def needed_metric(recording: Recording) -> str | None:
    """Return the metric that the user must name in a command, or None if the default metric was measured."""
    metric = measured_quality(recording)
    return None if metric == default_metrics(recording)[0] else metric


def measured_metrics(recording: Recording) -> list[str]:
    """Return the metrics that were measured in some round; for a recording without rows, those in its header."""
    names = recording.names("metric")
    if not len(recording.question_ids):
        return list(names)
    return [name for name in names if np.isfinite(recording.column(name)).any()]


def other_metrics(recorded: Iterable[str], metric: str) -> str:
    """Return a text that lists the metrics that can be used instead of a metric that was not measured."""
    name = metric.split(">", maxsplit=1)[0].strip()
    others = [other for other in recorded if other != name]
    first = f"{', '.join(others)} (recorded), or " if others else ""
    return f"{first}'agreement', which needs no gold answers"


def outcome(recording: Recording, name: str) -> Floats:
    """Return a metric at every round, shape ``(n_questions, n_rounds)``, in [0, 1]; NaN where not measured.

    Args:
        recording: Recorded rounds.
        name: One of five kinds.  A numeric column.  A metric in `METRICS`, which is computed if it was not recorded.
            `agreement` (the same as `agreement_em`) or `agreement_f1`, which compare each answer with the answer of the
            full-budget run and need no gold answers.  A threshold on one of these, such as ``f1 > 0.5``, which is 1
            where it holds.  Or ``abandon(solved)``, for policies that give up runs: the value of `solved` in the last
            round, and 0 in earlier rounds.

    Raises:
        DataError: There is no such column, or its values leave [0, 1].
    """
    threshold = _ABOVE.fullmatch(name)
    if threshold is not None:
        values, least = outcome(recording, threshold["name"]), float(threshold["value"])
        holds = values > least if threshold["comparison"] == ">" else values >= least
        return np.where(np.isnan(values), np.nan, holds)
    if success := abandoned(name):
        return _at_the_end(recording, success)
    if name in AGREEMENT:
        return _agreement(recording, tokens=name == "agreement_f1")
    recorded = set(recording.table.column_names)
    if name not in recorded and name in METRICS and {"answer", "golds"} <= recorded:
        return _scored(recording, METRICS[name])
    if name not in recorded:
        raise NotFoundError(
            f"the recording has no metric {name!r}; there are: {', '.join(recording.names('metric')) or 'none'}. "
            "Without gold answers use 'agreement', the sameness with the full-budget run's answer"
        )
    values = recording.column(name)
    low, high = (
        float(end.reduce(values, axis=None, initial=np.nan)) for end in (np.fmin, np.fmax)
    )  # only known values count
    if low < 0 or high > 1:
        raise DataError(f"a metric must lie in [0, 1]; {name!r} runs from {low:g} to {high:g}: rescale the column")
    return values


def _at_the_end(recording: Recording, name: str) -> Floats:
    """Return a metric in each question's last round, and 0 in earlier rounds: a run given up there has no success."""
    last = np.arange(recording.shape[1]) == recording.seen.sum(axis=1, keepdims=True) - 1
    values = np.where(last, outcome(recording, name), np.where(recording.seen, 0.0, np.nan))
    if "answer" in recording.table.column_names:
        given = answered(recording.view({}))
        silent = given.any(axis=1) & ~(given & last).any(axis=1) & (np.nansum(values, axis=1) > 0)
        if silent.any():
            raise DataError(
                f"{int(silent.sum())} runs succeeded whose last step has no answer while an earlier one has: a policy would return that one. "
                "Log the answer in the last step, or leave the answers out"
            )
    return values


def _scored(recording: Recording, metric: Metric) -> Floats:
    """Score every answer against its question's gold answers; NaN for a question without gold answers."""
    values = np.full(recording.shape, np.nan)
    golds = recording.per_question("golds", [])
    for q, r in np.argwhere(recording.seen).tolist():
        if golds[q]:
            values[q, r] = metric(recording.answers[q, r], golds[q])
    return values


def _agreement(recording: Recording, *, tokens: bool) -> Floats:
    """Compare each answer with the last non-blank answer of its trajectory; two missing answers agree."""
    if "answer" not in recording.table.column_names:
        raise DataError(
            "agreement compares answers, and the recording has no answers (no column 'answer'): use a metric column"
        )
    if recording.independent:
        if tokens:
            raise DataError("agreement_f1 compares words with one answer, and of samples many count: use 'agreement'")
        return _majority_agreement(recording)
    normalizer = recording.metadata.get("normalizer") or DEFAULT_NORMALIZER
    ids = None if tokens or normalizer == DEFAULT_NORMALIZER else recording.answer_ids(normalizer)
    values = np.full(recording.shape, np.nan)
    for q, answers in enumerate(recording.answers.tolist()):
        keys = [answer_key(answer) if isinstance(answer, str) else "" for answer in answers]
        if ids is not None:  # an answer that the normalizer cannot read counts as missing
            keys = ["" if math.isnan(own) else f"{own:.0f}" for own in ids[q].tolist()]
        answered = [r for r, key in enumerate(keys) if key]
        for r in np.flatnonzero(recording.seen[q]).tolist():
            if not answered:
                values[q, r] = 1.0
            elif keys[r] == keys[answered[-1]]:
                # Equal answers score 1 even if all their words are articles, which F1 does not count.
                values[q, r] = 1.0
            else:
                values[q, r] = f1(answers[r], [answers[answered[-1]]]) if tokens else 0.0
    return values


def _majority_agreement(recording: Recording) -> Floats:
    """Return 1 for each sample with its question's most frequent answer (any of them if several tie), else 0."""
    counts = _samples_alike(recording)
    most = counts.max(axis=1, keepdims=True)
    return np.where(recording.seen, counts == most, np.nan)


def _samples_alike(recording: Recording) -> Positions:
    """Count, for each sample, the equal answers to its question, its own included; 0 if its own cannot be read."""
    ids = recording.answer_ids(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)
    alike: Positions = (np.where(np.isnan(ids), -1.0, ids)[:, :, None] == ids[:, None, :]).sum(axis=2)
    return alike


def answers_by_stop(selector: Selector, view: Rounds) -> Positions:
    """Return, for a stop at each position, the position of the returned answer, shape ``(n_questions, n_rounds)``.

    -1 without an answer.

    A stop after the end of a trajectory counts as a stop at its last round.
    """
    last = view.seen.sum(axis=-1) - 1
    stop = np.minimum(np.arange(len(view)), last[:, None])
    given = answered(view)
    if selector == Last():
        return _latest(given)
    answers: Positions = np.empty(stop.shape, dtype=np.int64)
    some = max(1, _PAIRS // len(view) ** 2)
    for first in range(0, len(stop), some):
        part = slice(first, first + some)
        # With an additional axis for the stops, each answer is normalised once instead of once for each stop.
        columns = {name: view[name][part, None, :] for name in selector.signals}
        rounds = Rounds(
            columns,
            view.index,
            view.seen[part, None, :],
            partial(_with_stops, view, part),
            view.normalizer,
            answered=given[part, None, :],
        )
        answers[part] = selector.select(rounds, stop[part])
    return answers


def _with_stops(view: Rounds, part: slice) -> npt.NDArray[np.object_]:
    """Return the answers of some questions with an axis for the stops, shape ``(n_some, 1, n_rounds)``."""
    assert view.answers is not None
    return view.answers[part, None, :]


def _latest(given: Mask) -> Positions:
    """Return the position of the latest answer up to each round, shape of `given`; -1 without one."""
    return np.maximum.accumulate(np.where(given, np.arange(given.shape[1]), -1), axis=1)


def values_by_stop(answers: Positions, seen: Mask, metric: Floats) -> Floats:
    """Return, for a stop at each position, the metric of the returned answer, shape ``(n_questions, n_rounds)``.

    If no seen round has an answer, the metric at the stop itself counts (0 for EM and F1); a question without rounds
    scores 0.

    Args:
        answers: Result of `answers_by_stop`.
        seen: Mask of the rounds that exist, same shape.
        metric: The metric of the same rounds, same shape.
    """
    last = seen.sum(axis=-1, keepdims=True) - 1
    stop = np.minimum(np.arange(seen.shape[-1]), last)
    position = np.where(answers >= 0, answers, stop)
    return np.where(position >= 0, np.take_along_axis(metric, np.maximum(position, 0), axis=-1), 0.0)


def expected_by_stop(selector: Selector, view: Rounds, metric: Floats) -> Floats:
    """Return `values_by_stop`; for a selector that draws among tied answers, its mean over the draws."""

    def of_last() -> Floats:
        """Return the metric of the last answer, which a stop before the first vote returns."""
        return values_by_stop(_latest(answered(view)), view.seen, metric)

    means = selector.means_by_stop(view, metric, of_last)
    return values_by_stop(answers_by_stop(selector, view), view.seen, metric) if means is None else means
