"""Measure a probe under another prompt than the one it was fitted on.

CBDR fits its probe on states of questions alone and applies it to states of questions with passages. The increases in
confidence mean something only if the probe also works with passages. Therefore the probe's AUROC and calibration error
are measured with passages, against the model's answers with the same passages. They are compared with the AUROC and
calibration error without passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.loops.models.protocols import Answerer
from suffice.loops.retrieval import AsyncRetriever, PoolBM25, Question, Retriever
from suffice.policy.metrics import normalize_answer
from suffice.policy.rounds import Floats, Passage, Reply
from suffice_gates.probes import LabelRule, ProbeMeasures, is_right, measure_probe
from suffice_gates.probes.confidence import Confidence
from suffice_gates.training.preferences import candidates_of

_CONTAINS = LabelRule("contains")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift(Result):
    """The quality of a model's confidence as a predictor of right answers, without and with a passage, on the same questions.

    Attributes:
        label: The rule by which an answer is right.
        qa: Confidence without passages, measured against the answers without passages.
        rag: Confidence with one random candidate passage, measured against the answers with that passage.
    """

    label: str
    qa: ProbeMeasures
    rag: ProbeMeasures

    def table(self) -> Table:
        """Return the measures under both prompts as a table."""
        rows = tuple(
            (name, measured.n, measured.n_known, *((f.value, f.low, f.high) for f in figures))
            for name, measured in (("question alone", self.qa), ("with one passage", self.rag))
            for figures in [(measured["auroc"], measured["ece"])]
        )
        columns = (
            Column("prompt"),
            Column("questions", "d"),
            Column("right", "d"),
            Column("AUROC", ".3f", interval=True),
            Column("ECE", ".3f", interval=True),
        )
        note = "increases in confidence mean as much as the AUROC with a passage is above 0.5"
        return Table(title="the probe under both prompts", columns=columns, rows=rows, notes=(note,))


def measure_shift(
    questions: Sequence[Question],
    confidence: Confidence,
    model: Answerer,
    *,
    rng: np.random.Generator,
    retriever: Retriever | AsyncRetriever | None = None,
    candidates: int = 8,
    label: LabelRule = _CONTAINS,
) -> Shift:
    """Measure how well a model's confidence predicts right answers, without passages and with one candidate passage.

    Args:
        questions: Questions with gold answers, none of them used to fit the probe; those without candidates or answers
            are left out.
        confidence: The model's confidence.
        model: The same model, for its answers.
        rng: Draws one candidate for each question.
        retriever: Finds the candidates; default: BM25 over a question's pool.
        candidates: Candidates to draw from.
        label: The rule by which an answer is right; default: it contains a gold answer.

    Raises:
        DataError: No question has both gold answers and candidates.
        ModelError: The model failed.
    """
    pairs = draw_contexts(questions, rng=rng, retriever=retriever, candidates=candidates)
    texts = [question.question for question, _ in pairs]
    measures = []
    without: list[tuple[Passage, ...]] = [() for _ in pairs]
    for passages in (without, [(passage,) for _, passage in pairs]):
        predicted = confidence.of(texts, None if passages is without else passages)
        answers = [reply.answer for reply in _batched_replies(model, texts, passages)]
        measures.append(measure_prompt(pairs, predicted, answers, label=label))
    return Shift(qa=measures[0], rag=measures[1], label=str(label))


def draw_contexts(
    questions: Sequence[Question],
    *,
    rng: np.random.Generator,
    retriever: Retriever | AsyncRetriever | None = None,
    candidates: int = 8,
) -> list[tuple[Question, Passage]]:
    """Return each question that has gold answers and candidates, together with one of its candidates at random.

    Raises:
        DataError: No question has both.
    """
    retriever = retriever or PoolBM25()
    pairs: list[tuple[Question, Passage]] = []
    for question in questions:
        pool, _, _ = candidates_of(question, retriever, candidates)
        if pool and any(map(normalize_answer, question.answers)):
            pairs.append((question, pool[int(rng.integers(len(pool)))]))
    if not pairs:
        raise DataError("no question has both gold answers and candidate passages, so confidence cannot be checked")
    return pairs


def measure_prompt(
    pairs: Sequence[tuple[Question, Passage]],
    predicted: Floats,
    answers: Sequence[str | None],
    *,
    label: LabelRule,
) -> ProbeMeasures:
    """Measure how well the confidence under one prompt predicts right answers to this prompt.

    `predicted` contains the confidence, shape ``(n,)``.
    """
    right = [is_right(answer, question.answers, label) for answer, (question, _) in zip(answers, pairs, strict=True)]
    return measure_probe(predicted, right, names=[question.question_id for question, _ in pairs])


def _batched_replies(model: Answerer, texts: Sequence[str], passages: Sequence[tuple[Passage, ...]]) -> list[Reply]:
    """Return the model's replies, in one batch if the model supports it."""
    answer_all: Callable[..., list[Reply]] | None = getattr(model, "answers", None)
    if answer_all is not None:
        return answer_all(texts, passages)
    return [model.answer(text, context) for text, context in zip(texts, passages, strict=True)]
