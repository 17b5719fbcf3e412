"""Count answers, to check that they can be read and that the metric can show a loss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from suffice.common.tables import counted
from suffice.evaluation.replay.outcomes import is_agreement, outcome
from suffice.policy.metrics import contains, exact_match, normalize_answer
from suffice.policy.normalizers import DEFAULT_NORMALIZER, MATCH, Grouping, normalizer_of
from suffice.policy.rounds import Floats, Mask
from suffice.recordings.recording import Recording
from suffice.recordings.schema import COPIED_ANSWERS
from suffice.verdicts.losses import base_name, is_computed

_MOST_UNREAD = 0.05
"""Share of answers, or of gold answers, that may be missing or unreadable."""
_LEAST_CONTAINED, _LEAST_SAID, _FEWEST_EQUAL = 0.3, 0.1, 0.2
"""From these shares of answers that contain a gold answer, as characters or as words, at least the last share of them must equal one.

Characters are contained by chance, too: 7 in 173.
"""

_SEVERAL = 3
"""The fewest answers of which some could have been repeated."""

_EXACT = ("agreement", "agreement_em")


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerCounts:
    """Numbers of questions and answers that could be read, compared and scored; counts of further questions can be added.

    Questions whose recording failed are left out, because they are lost in any case.

    Attributes:
        questions: Number of questions.
        answered: Questions with an answer in some round.
        differing: Questions with different answers in two rounds. A round without an answer also counts as different,
            unless the metric was computed from answers.
        texts: Number of answers in all rounds, if the recording's normalizer compares them; else 0.
        unread: Number of `texts` that the normalizer cannot read.
        silent: Questions whose last round lacks an answer that the metric needs; for independent samples, questions
            without any answer.
        samples: Questions whose rounds are independent samples.
        alone: Questions with at least three answers, all of them different; counted only if the metric is agreement.
        without_gold: Questions without a score because they have no gold answer that can be read.
        scored: Questions whose last answer was compared with a gold answer. For independent samples all answers were
            compared.
        equal: Number of scored answers that equal a gold answer; a question of samples adds its share of such answers.
        contained: Number of scored answers that contain a gold answer.
        said: Number of scored answers that contain a gold answer as whole words, so that "7" is not in "173".
        given: All questions, if the metric could be computed from answers but was read from the log instead; else 0.
        copied: All questions, if the import noted that each row's answer may be a copy of the result of the whole run;
            else 0.
    """

    questions: int = 0
    answered: int = 0
    differing: int = 0
    texts: int = 0
    unread: int = 0
    silent: int = 0
    samples: int = 0
    alone: int = 0
    without_gold: int = 0
    scored: float = 0.0
    equal: float = 0.0
    contained: float = 0.0
    said: float = 0.0
    given: int = 0
    copied: int = 0

    @classmethod
    def of(cls, recording: Recording, metric: str) -> AnswerCounts:
        """Count the answers of a recording."""
        recording = recording.select(recording.ends != "failed") if (recording.ends == "failed").any() else recording
        n = len(recording.question_ids)
        if not n or "answer" not in recording.table.column_names:
            return cls(questions=n)
        texts = [
            [text.strip() if isinstance(text, str) else "" for text in row[seen].tolist()]
            for row, seen in zip(recording.answers, recording.seen, strict=True)
        ]
        of_answers = _is_of_answers(recording, metric)
        skipped = {""} if of_answers else set()  # such a metric skips rounds without an answer, as selectors do
        counts: dict[str, Any] = {
            "questions": n,
            "answered": sum(any(row) for row in texts),
            "differing": sum(len({text.casefold() for text in row} - skipped) > 1 for row in texts),
            "samples": n if recording.independent else 0,
            "given": n if _is_given(recording, metric) else 0,
            "copied": n
            if is_computed(metric) and COPIED_ANSWERS in (recording.metadata.get("reading") or {}).get("cautions", {})
            else 0,
        }
        if metric in _EXACT:
            counts["alone"] = sum(len(row) == len({*row}) >= _SEVERAL for row in _answer_ids(recording))
        if of_answers or recording.independent:
            counts |= _read(recording, texts, metric)
        if of_answers:
            counts |= _scored(recording, texts, metric)
        return cls(**counts)

    def __add__(self, other: AnswerCounts) -> AnswerCounts:
        return AnswerCounts(
            **{item.name: getattr(self, item.name) + getattr(other, item.name) for item in fields(self)}
        )

    def unreadable(self, metric: str) -> str:
        """Return the reason why the metric cannot measure these answers; empty if it can."""
        if self.unread > _MOST_UNREAD * self.texts:
            return (
                f"{_share(self.unread, self.texts)} of the answers cannot be read as the recording's normalizer reads them, so "
                "they are no votes and equal no gold answer. Import the log with a normalizer that reads them (--set normalizer=qa reads any text), or with the "
                "column of the answer alone (--column answer=...)"
            )
        if self.silent > (0.5 if self.samples else _MOST_UNREAD) * self.questions:
            where = "no sample" if self.samples else "the last round"
            return (
                f"{where} has {'an' if self.samples else 'no'} answer in {_share(self.silent, self.questions)} of the questions, and what is "
                "missing everywhere seems to lose nothing. Import the column of the answers (--column answer=...); where the "
                "loop gave none, log a text such as 'no answer'"
            )
        if self.copied > _MOST_UNREAD * self.questions:
            return (
                "all rounds of a question have the same answer while another text of the log varies, so that it may be the result of the "
                "whole run, and no stop would lose it. Log what each round would return; if each round did give this answer, import the "
                f"log again with --expected {COPIED_ANSWERS}"
            )
        if self.without_gold > _MOST_UNREAD * self.questions:
            return (
                f"{_share(self.without_gold, self.questions)} of the questions have no gold answer that can be read. Import the log with "
                "those of all questions (--golds FILE), or judge by something else (metric='agreement', --metric agreement)"
            )
        for held, least in ((self.contained, _LEAST_CONTAINED), (self.said, _LEAST_SAID)):
            if held < least * max(self.scored, 1) or self.equal > _FEWEST_EQUAL * held:
                continue
            return (
                f"{_share(held, self.scored)} of the answers contain a gold answer, and {_share(self.equal, self.scored)} equal one: "
                f"these are whole replies, and {metric} would hardly show a loss. Judge by metric='contains' (--metric contains), "
                "or import the log with --answer-position, which reads the answer inside a reply"
            )
        return ""

    @property
    def all_equal(self) -> bool:
        """True if every question has the same answer in all of its rounds, so that no stop can lose anything."""
        return self.answered == self.questions and not self.differing

    @property
    def never_repeat(self) -> bool:
        """True if in most questions no answer occurs twice.

        The answers are then drafts or whole replies, and agreement would only compare their wording.
        """
        return self.alone > (0.5 if self.samples else 1 - _MOST_UNREAD) * self.questions

    @property
    def often_differ(self) -> bool:
        """True if for more than a few questions the answers differ between rounds or were not recorded."""
        return self.differing + self.questions - self.answered > _MOST_UNREAD * self.questions

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> AnswerCounts:
        """Read the counts of a decision file."""
        numbers: dict[str, Any] = {
            item.name: (float if item.type == "float" else int)(data.get(item.name, 0)) for item in fields(cls)
        }
        return cls(**numbers)


def why_blind(
    answers: AnswerCounts | None, metric: str, constant: float | None, never_varied: bool, n_units: int
) -> str:
    """Return the reason why the metric cannot show a loss; empty if it can.

    A metric cannot show a loss if it does not vary although the answers do.

    If all answers are equal, a stop loses nothing under any metric.

    Args:
        answers: Counts of the answers; None in a file from a release that did not count them.
        metric: The declared metric.
        constant: The score, if all answers score the same.
        never_varied: Whether every question scores the same under all candidates and the baseline.
        n_units: Number of independent questions.
    """
    if answers is None:
        is_blind = constant is not None and constant < 1
    elif answers.never_repeat:
        return (
            f"no answer occurs twice in {_share(answers.alone, answers.questions)} of the questions, so they are drafts or whole replies, and "
            f"{'any sample would pass for the majority' if answers.samples else 'agreement compares their wording'}. Import the answer "
            "inside them (--answer-position, --column answer=COLUMN), or say which are right (--ask FILE)"
        )
    elif is_agreement(metric):  # it is 1 if answers are equal
        is_blind = False
    elif constant is not None:
        is_blind = not answers.all_equal
    else:
        is_given = bool(answers.given) or not is_computed(metric)
        is_blind = never_varied and is_given and answers.often_differ
    if not is_blind:
        return ""
    where = "the same in all rounds of each question"
    if constant is not None:
        where = f"{constant:g} in every answer of {counted(n_units, 'question')}"
    differ = "although the answers differ between rounds"
    if answers is None or not answers.answered:
        differ = "and there are no answers on record that could be compared"
    return (
        f"{metric} is {where}, {differ}, so it cannot show a loss. Check that each round was scored by itself and not the "
        "question as a whole, or judge by something else (metric='agreement', --metric agreement)"
    )


def _is_of_answers(recording: Recording, metric: str) -> bool:
    """Return True if a metric was computed from recorded answers.

    A score above 0 in a round without an answer shows that it was not.
    """
    if not is_computed(metric) or is_agreement(metric):
        return is_agreement(metric)
    return not (outcome(recording, base_name(metric))[_blank(recording)] > 0).any()


def _is_given(recording: Recording, metric: str) -> bool:
    """Return True if a metric that could be computed from answers was read from the log instead.

    This is so if there are no gold answers, or if the import read the metric from a column.
    """
    if not is_computed(metric) or is_agreement(metric):
        return False
    has_golds = "golds" in recording.table.column_names and any(recording.per_question("golds", []).tolist())
    return not has_golds or base_name(metric) in recording.metadata.get("read_from", {})


def _says(text: str, golds: Sequence[str]) -> float:
    """Return 1.0 if a text contains a gold answer as whole words, else 0.0.

    >>> _says("It is 7, I think", ["7"]), _says("173", ["7"])
    (1.0, 0.0)
    """
    words = f" {normalize_answer(text)} "
    return float(any(f" {gold} " in words for gold in map(normalize_answer, golds) if gold))


def _answer_ids(recording: Recording) -> Iterator[list[float]]:
    """Yield the ids of each question's answers; answers that the recording's normalizer makes equal have one id."""
    ids = recording.answer_ids(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)
    given = recording.seen & ~np.isnan(ids)
    return (row[own].tolist() for row, own in zip(ids, given, strict=True))


def _blank(recording: Recording) -> Mask:
    """Return a mask of the recorded rounds without an answer, shape ``(n_questions, n_rounds)``."""
    blank = [[not (isinstance(text, str) and text.strip()) for text in row] for row in recording.answers.tolist()]
    return np.asarray(blank, dtype=np.bool_).reshape(recording.shape) & recording.seen


def _read(recording: Recording, texts: list[list[str]], metric: str) -> dict[str, int]:
    """Return the counts `texts`, `unread` and `silent`."""
    if not recording.independent and base_name(metric) != MATCH:
        return {"silent": sum(not (row and row[-1]) for row in texts)}
    ids = recording.answer_ids(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)
    unread = np.isnan(ids) & recording.seen & ~_blank(recording)
    silent = (
        sum(not any(row) for row in texts) if recording.independent else sum(not (row and row[-1]) for row in texts)
    )
    return {"texts": sum(bool(text) for row in texts for text in row), "unread": int(unread.sum()), "silent": silent}


def _scored(recording: Recording, texts: list[list[str]], metric: str) -> dict[str, float]:
    """Return the counts `without_gold`, `scored`, `equal`, `contained` and `said`."""
    name = base_name(metric)
    if is_agreement(metric):
        return {}
    values: Floats = outcome(recording, name)
    known: Mask = np.isfinite(values) & recording.seen
    without_gold: Mask = np.asarray(~known.any(axis=1))
    if name not in ("em", "f1", MATCH) or "golds" not in recording.table.column_names:
        return {"without_gold": int(without_gold.sum())}
    counts: dict[str, float] = {}
    key_of = normalizer_of(recording.metadata.get("normalizer") or DEFAULT_NORMALIZER)
    listed, last = recording.per_question("golds", []).tolist(), None if recording.independent else -1
    for q, (row, golds) in enumerate(zip(texts, listed, strict=True)):
        if not golds or not row:
            continue
        if name == MATCH and not isinstance(key_of, Grouping) and not np.nansum(values[q]):
            without_gold[q] |= all(key_of(gold) is None for gold in golds)
        answers = row[last:] if last else row
        matches = values[q][recording.seen[q]][last:] if last else values[q][recording.seen[q]]
        equal = matches if name == MATCH else [exact_match(text, golds) for text in answers]
        for field, scores in (
            ("scored", 1.0),
            ("equal", equal),
            ("contained", [contains(text, golds) for text in answers]),
            ("said", [_says(text, golds) for text in answers]),
        ):
            counts[field] = counts.get(field, 0.0) + float(np.mean(np.nan_to_num(scores)))
    return {**counts, "without_gold": int(without_gold.sum())}


def _share(part: float, whole: float) -> str:
    """Return a share in per cent.

    >>> _share(1, 3)
    '33 %'
    """
    return f"{100 * part / whole:.0f} %"
