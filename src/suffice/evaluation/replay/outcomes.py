"""What is measured at each round (metrics, agreement), and what a policy gets if it stops there."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np

from suffice.errors import DataError, NotFoundError
from suffice.policy.metrics import METRICS, Metric, answer_key, f1
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import Selector
from suffice.policy.rules.selectors import answered
from suffice.recordings.recording import Recording

AGREEMENT = ("agreement", "agreement_em", "agreement_f1")
"""Metrics against the answer of the full-budget run: they measure sameness, not truth."""

_ABOVE = re.compile(r"\s*(?P<name>[A-Za-z_]\w*)\s*(?P<comparison>>=|>)\s*(?P<value>[0-9.]+)\s*")

_LETTER = re.compile(r"[\W_]*[A-Za-z][\W_]*")


def is_agreement(name: str) -> bool:
    """Return whether a metric compares answers with the full-budget run instead of gold answers."""
    return name.split(">", maxsplit=1)[0].strip() in AGREEMENT


@dataclass(frozen=True, slots=True, kw_only=True)
class AgreementBasis:
    """With which answers agreement compares those of some questions; others are added.

    Attributes:
        n: Questions.
        cut: Those that a rule ended, so that their last answer is not that of the full budget.
        silent: Those without any answer.
        independent: Whether the answers vote, and the majority is compared with.
    """

    n: int
    cut: int
    silent: int
    independent: bool

    @classmethod
    def of(cls, recording: Recording) -> AgreementBasis:
        """Return the counts of a recording."""
        silent = 0 if recording.independent else unanswered(recording)
        n, cut = recording.shape[0], int(recording.cut.sum())
        return cls(n=n, cut=cut, silent=silent, independent=recording.independent)

    def __add__(self, other: AgreementBasis) -> AgreementBasis:
        return replace(self, n=self.n + other.n, cut=self.cut + other.cut, silent=self.silent + other.silent)

    @property
    def note(self) -> str:
        """What a reader of agreement must know: with which answer, and that it is not truth."""
        whose = "the full-budget run's answer"
        if self.independent:
            return "agreement measures sameness with the majority of all recorded samples, any of them where several tie, not truth"
        if self.cut:
            whose = f"the last recorded answer (in {self.cut} of {self.n} questions a rule's, not the full budget's)"
        return agreement_text(self.silent, self.n, whose)


def agreement_note(recording: Recording) -> str:
    """Return what a reader of agreement must know: with which answer, and that it is not truth."""
    return AgreementBasis.of(recording).note


def agreement_text(silent: int, n: int, whose: str = "the full-budget run's answer") -> str:
    """Return what a reader of agreement must know.

    Args:
        silent: Questions in which no round has an answer.
        n: Questions.
        whose: With which answer.
    """
    rest = f"; in {silent:,} of {n:,} questions no round has an answer, which agrees with itself"
    return f"agreement measures sameness with {whose}, not truth{rest * bool(silent)}"


def unanswered(recording: Recording) -> int:
    """Return in how many questions no round has an answer; all of them where answers were not recorded."""
    if "answer" not in recording.table.column_names:
        return len(recording.question_ids)
    texts = ([text for text in answers if isinstance(text, str)] for answers in recording.answers.tolist())
    return sum(not any(text.strip() for text in row) for row in texts)


def default_metrics(recording: Recording, choice: MultipleChoice | None = None) -> tuple[str, ...]:
    """Return the metrics of answers where none is named, the quality first: F1 and EM, and EM alone for multiple choice.

    A recording with a normalizer of its own has `match` instead.  F1 counts words, and an option has none: the gold answer "a" normalises to nothing, so that F1 is 0 where EM is 1.

    Args:
        recording: Recorded rounds.
        choice: What shows multiple choice in all questions, if `recording` has only some of them; None = look there.
    """
    if MATCH in recording.names("metric"):
        return (MATCH,)
    return ("em",) if (choice or MultipleChoice.of(recording)).note else ("f1", "em")


def choice_note(recording: Recording) -> str | None:
    """Return why F1 does not score these answers, None if it does: golds are single letters, or F1 misses exact matches."""
    return MultipleChoice.of(recording).note


@dataclass(frozen=True, slots=True, kw_only=True)
class MultipleChoice:
    """What shows that questions are multiple choice; parts of a recording are added.

    Attributes:
        golds: Gold answers, where EM was measured.
        letters: Those of them that are single letters.
        exact: Rounds whose answer equals a gold answer.
        partly: Those of them whose F1 is below 1 nevertheless.
    """

    golds: int = 0
    letters: int = 0
    exact: int = 0
    partly: int = 0

    @classmethod
    def of(cls, recording: Recording) -> MultipleChoice:
        """Look at the gold answers, EM and F1 of a recording."""
        if "em" not in recording.names("metric"):
            return cls()
        golds: list[str] = []
        if "golds" in recording.table.column_names:
            golds = [gold for listed in recording.per_question("golds", []).tolist() for gold in listed or ()]
        letters = sum(_LETTER.fullmatch(gold) is not None for gold in golds)
        if "f1" not in recording.names("metric"):
            return cls(golds=len(golds), letters=letters)
        exact = recording.column("em") >= 1
        partly = exact & (recording.column("f1") < 1)
        return cls(golds=len(golds), letters=letters, exact=int(exact.sum()), partly=int(partly.sum()))

    def __add__(self, other: MultipleChoice) -> MultipleChoice:
        return MultipleChoice(
            golds=self.golds + other.golds,
            letters=self.letters + other.letters,
            exact=self.exact + other.exact,
            partly=self.partly + other.partly,
        )

    @property
    def note(self) -> str | None:
        """Why F1 does not score the answers; None if it does."""
        if self.golds and self.letters == self.golds:
            return (
                "the gold answers are single letters: em is the quality, since f1 counts words that letters do not have"
            )
        if not self.partly:
            return None
        return (
            f"f1 is below 1 in {self.partly} of {self.exact} rounds whose answer equals a gold answer (the gold answer "
            "'a' normalises to no word at all): judge multiple choice by em"
        )


def choice_notes(recording: Recording, metrics: Iterable[str], choice: MultipleChoice | None = None) -> list[str]:
    """Return the note on multiple choice if EM or F1, or a threshold on one of them, is among the metrics.

    Args:
        recording: Recorded rounds.
        metrics: The metrics.
        choice: As for `default_metrics`.
    """
    scored = any(name.split(">", maxsplit=1)[0].strip() in ("em", "f1") for name in metrics)
    return list(filter(None, [(choice or MultipleChoice.of(recording)).note if scored else None]))


def has_outcome(recording: Recording, name: str) -> bool:
    """Return whether `outcome` can give a metric of a recording, whatever its values."""
    name = name.split(">", maxsplit=1)[0].strip()
    columns = set(recording.table.column_names)
    return name in AGREEMENT or name in columns or (name in METRICS and {"answer", "golds"} <= columns)


def outcome(recording: Recording, name: str) -> Floats:
    """Return a metric at every round, shape ``(n_questions, n_rounds)``, in [0, 1]; NaN where not measured.

    Args:
        recording: Recorded rounds.
        name: A numeric column, or a metric in `METRICS`, which is computed where it was not recorded; `agreement` (the same as `agreement_em`) or `agreement_f1`, which compare each answer
            with that of the full-budget run and need no gold answers; or a threshold on one of these, ``f1 > 0.5``,
            which is 1 where it holds.

    Raises:
        DataError: There is no such column, or its values leave [0, 1].
    """
    threshold = _ABOVE.fullmatch(name)
    if threshold is not None:
        values, least = outcome(recording, threshold["name"]), float(threshold["value"])
        holds = values > least if threshold["comparison"] == ">" else values >= least
        return np.where(np.isnan(values), np.nan, holds)
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
    )  # of those that are known
    if low < 0 or high > 1:
        raise DataError(f"a metric must lie in [0, 1]; {name!r} runs from {low:g} to {high:g}: rescale the column")
    return values


def _scored(recording: Recording, metric: Metric) -> Floats:
    """Score every answer against its question's gold answers; NaN for a question without any."""
    values = np.full(recording.shape, np.nan)
    golds = recording.per_question("golds", [])
    for q, r in np.argwhere(recording.seen).tolist():
        if golds[q]:
            values[q, r] = metric(recording.answers[q, r], golds[q])
    return values


def _agreement(recording: Recording, *, tokens: bool) -> Floats:
    """Compare every answer with the last non-blank one of its trajectory; no answer agrees with no answer."""
    if "answer" not in recording.table.column_names:
        raise DataError("agreement compares answers, and the recording has no column 'answer': use a metric column")
    if recording.independent:
        if tokens:
            raise DataError("agreement_f1 compares words with one answer, and of samples many count: use 'agreement'")
        return _majority_agreement(recording)
    normalizer = recording.metadata.get("normalizer") or DEFAULT_NORMALIZER
    ids = None if tokens or normalizer == DEFAULT_NORMALIZER else recording.answer_ids(normalizer)
    values = np.full(recording.shape, np.nan)
    for q, answers in enumerate(recording.answers.tolist()):
        keys = [answer_key(answer) if isinstance(answer, str) else "" for answer in answers]
        if ids is not None:  # an answer that the normalizer cannot read is none
            keys = ["" if math.isnan(own) else f"{own:.0f}" for own in ids[q].tolist()]
        answered = [r for r, key in enumerate(keys) if key]
        for r in np.flatnonzero(recording.seen[q]).tolist():
            if not answered:
                values[q, r] = 1.0
            elif keys[r] == keys[answered[-1]]:
                values[q, r] = 1.0  # also where all words are articles, on which F1 has nothing to count
            else:
                values[q, r] = f1(answers[r], [answers[answered[-1]]]) if tokens else 0.0
    return values


def _majority_agreement(recording: Recording) -> Floats:
    """Return whether each sample gives an answer that no other one beats among all samples of its question."""
    ids = recording.answer_ids(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)
    voted = ~np.isnan(ids)
    counts = (np.where(voted, ids, -1.0)[:, :, None] == ids[:, None, :]).sum(axis=2)
    most = counts.max(axis=1, keepdims=True)
    return np.where(recording.seen, (counts == most) & (voted | (most == 0)), np.nan)


def answers_by_stop(selector: Selector, view: Rounds) -> Positions:
    """Return which answer a stop at each position would return, shape ``(n_questions, n_rounds)``, -1 for none.

    A stop past the end of a trajectory is a stop at its last round.
    """
    last = view.seen.sum(axis=-1) - 1
    stop = np.minimum(np.arange(len(view)), last[:, None])
    # One more axis, for the stops: each answer is then normalised once instead of once for each stop.
    columns = {name: view[name][:, None, :] for name in selector.signals}
    answers = None if view.answers is None else view.answers[:, None, :]
    return selector.select(Rounds(columns, view.index, view.seen[:, None, :], answers, view.normalizer), stop)


def values_by_stop(answers: Positions, seen: Mask, metric: Floats) -> Floats:
    """Return the metric of the answer that a stop at each position would return, shape ``(n_questions, n_rounds)``.

    Where no seen round has an answer, what was measured at the stop itself counts (0 for EM and F1); a question
    without any round scores 0.

    Args:
        answers: From `answers_by_stop`.
        seen: Which rounds exist, same shape.
        metric: Same shape, of the same rounds.
    """
    last = seen.sum(axis=-1, keepdims=True) - 1
    stop = np.minimum(np.arange(seen.shape[-1]), last)
    position = np.where(answers >= 0, answers, stop)
    return np.where(position >= 0, np.take_along_axis(metric, np.maximum(position, 0), axis=-1), 0.0)


def expected_by_stop(selector: Selector, view: Rounds, metric: Floats) -> Floats:
    """Return `values_by_stop`, and of a selector that draws among tied answers the mean over its draws.

    Args:
        selector: Chooses the answers.
        view: What it reads.
        metric: Shape of `view`, of the same rounds.
    """

    def of_last() -> Floats:
        """Return what a stop before the first vote gives: the last answer."""
        latest = np.maximum.accumulate(np.where(answered(view), np.arange(len(view)), -1), axis=1)
        return values_by_stop(latest, view.seen, metric)

    means = selector.means_by_stop(view, metric, of_last)
    return values_by_stop(answers_by_stop(selector, view), view.seen, metric) if means is None else means
