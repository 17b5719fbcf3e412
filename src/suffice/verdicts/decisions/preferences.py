"""Losses by judgements of pairs: a labeller compares the full run's answer with the answer at a candidate's stop."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.errors import ConfigMismatchError
from suffice.evaluation.replay.prices import Prices
from suffice.policy.normalizers import normalizer_of
from suffice.policy.rounds import Floats
from suffice.policy.seen import one_name_per_text
from suffice.policy.signals import answer_ids
from suffice.recordings.recording import Recording
from suffice.verdicts.decisions.label_matches import DoubleLabels
from suffice.verdicts.decisions.labelling import Labelling, ReturnedAnswers, measured
from suffice.verdicts.decisions.labels import Labels, Preference, normalizer_in
from suffice.verdicts.decisions.trial import Trial
from suffice.verdicts.losses import Questions

Pair = tuple[int, float, float]
"""A question, and the numbers of two of its answers, the smaller one first."""


def labelling_of_pairs(recording: Recording, trial: Trial, labels: Labels, prices: Prices) -> Labelling:
    """Compare the answers of all candidates with the baseline's by judgements of pairs.

    Equal answers lose nothing.  A pair without a judgement, or with contradicting ones, counts at its worst.

    Args:
        recording: Recorded rounds that are not independent samples.
        trial: The declared trial.
        labels: The judgements so far.
        prices: Prices, to compute money; None = unknown.

    Raises:
        ConfigMismatchError: A judged answer is not among the question's answers in the log.
    """
    returned, questions = ReturnedAnswers.of(recording, trial), Questions.of(recording)
    numbering = _Numbering.of(returned.recording)
    judged, contradicting = _judged_pairs(numbering, labels)
    shape = returned.numbers.shape
    worst, best = np.zeros(shape), np.zeros(shape)
    lacking = np.zeros((shape[0], len(recording.question_ids)), dtype=np.bool_)
    pairs: dict[tuple[int, int], tuple[str, str]] = {}
    rows = np.flatnonzero(~recording.failed)
    differing = (returned.numbers != returned.of_baseline) | returned.unsure
    for place, at in np.argwhere(differing).tolist():
        numbers = (float(returned.numbers[place, at]), float(returned.of_baseline[at]))
        worst[place, at], best[place, at] = 1.0, -1.0
        if returned.unsure[place, at] or min(numbers) < 0:  # there are not two answers to show
            continue
        own, full = (numbering.common[at][number] for number in numbers)
        better = judged.get((numbering.question[at], min(own, full), max(own, full)))
        if better is None:
            lacking[place, rows[at]] = True
            pairs[place, int(rows[at])] = (numbering.text(at, numbers[0]), numbering.text(at, numbers[1]))
        elif np.isfinite(better):
            worst[place, at] = best[place, at] = better if full < own else -better
    losses = measured(recording, trial, "agreement", prices, by_unit=True)
    return Labelling(
        recording=recording,
        questions=questions,
        differing=np.stack([questions.means(row, failed=1.0) for row in differing]),
        losses=losses.with_losses(questions.means(worst, failed=1.0), questions.means(best, failed=-1.0)),
        lacking=lacking,
        doubles=DoubleLabels(contradicting=contradicting),
        pairs=pairs,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class _Numbering:
    """Answers as numbers; rows with the same question text have common numbers, too.

    Attributes:
        recording: The recorded rows.
        ids: The number of each answer within its row, shape ``(n_rows, n_rounds)``.
        question: The number of the question of each row.
        common: For each row, a map from an answer's number within the row to its common number in all rows of the
            question.
    """

    recording: Recording
    ids: Floats
    question: Sequence[int]
    common: Sequence[Mapping[float, float]]

    @classmethod
    def of(cls, recording: Recording) -> _Numbering:
        ids, texts = recording.answer_ids(normalizer_in(recording)), recording.texts
        names = one_name_per_text(recording.question_ids, texts)
        rows: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows.setdefault(name, []).append(row)
        question, common = np.zeros(len(names), dtype=np.int64), [dict[float, float]() for _ in names]
        for number, own in enumerate(rows.values()):
            of_all = _numbers(recording, [text for row in own for text in recording.answers[row].tolist()])
            for row, part in zip(own, np.split(np.array(of_all), len(own)), strict=True):
                question[row] = number
                common[row] = dict(zip(ids[row].tolist(), part.tolist(), strict=True))
        return cls(recording=recording, ids=ids, question=question.tolist(), common=common)

    def text(self, row: int, number: float) -> str:
        """Return the text of the answer with this number in a row, as worded in its first round."""
        return str(self.recording.answers[row][int(np.argmax(self.ids[row] == number))])

    def pair(self, row: int, one: Preference) -> tuple[float, float]:
        """Return the common numbers of two judged answers of a row."""
        own = self.recording.answers[row].tolist()
        first, second = _numbers(self.recording, [*own, *one.answers])[len(own) :]
        if not {first, second} <= self.common[row].keys():
            raise ConfigMismatchError(
                f"the judgement of question {self.recording.question_ids[row]!r:.80} is about the answers {one.answers[0]!r:.100} and "
                f"{one.answers[1]!r:.100}, which the log does not both have: the sheet belongs to another log, or somebody changed an "
                "answer. Give another file (--ask OTHER.jsonl)"
            )
        return self.common[row][first], self.common[row][second]


def _numbers(recording: Recording, texts: Sequence[str | None]) -> list[float]:
    """Return a number for each text; texts that the recording's normalizer makes equal have the same number."""
    ids = answer_ids(np.array([texts], dtype=object), normalizer_of(normalizer_in(recording)))[0]
    numbers: list[float] = ids.tolist()
    return numbers


def _judged_pairs(
    numbering: _Numbering, labels: Labels
) -> tuple[Mapping[Pair, float], tuple[tuple[str, str, str], ...]]:
    """Return for each judged pair which answer is better, and the contradicting judgements.

    The value is 1 if the answer with the smaller number is better, -1 if the other is, 0 if both are equal, and NaN if
    that is unknown.

    More than half of the judgements must agree on a value; otherwise it is NaN. Judgements that say "cannot tell" are
    left out.
    """
    given: dict[Pair, list[tuple[str, Preference]]] = {}
    signs: dict[Pair, list[int]] = {}
    rows = {name: row for row, name in enumerate(numbering.recording.question_ids)}
    for name, every in labels.preferences.items():
        for one in every if name in rows else ():
            first, second = numbering.pair(rows[name], one)
            pair = (numbering.question[rows[name]], min(first, second), max(first, second))
            given.setdefault(pair, [])
            if one.better is not None:
                given[pair].append((name, one))
                signs.setdefault(pair, []).append(one.better if first <= second else -one.better)
    judged: dict[Pair, float] = {}
    contradicting = []
    for pair, own in given.items():
        counts = Counter(signs.get(pair, ()))
        sign = max(counts, key=lambda one: counts[one], default=0)
        judged[pair] = float(sign) if 2 * counts[sign] > counts.total() else np.nan
        if own and np.isnan(judged[pair]):
            contradicting.append((own[0][0], str(own[0][1]), str(own[1][1])))
    return judged, tuple(contradicting)
