"""A probe under another prompt than it was fitted on: how much of it is left.

CBDR fits its probe on states of questions alone and applies it to states of questions with passages.  Whether the
increases that this gives mean anything depends on how well the probe does there: against the model's own answers with
the same passages, its AUROC and its calibration error, beside those of the prompt without passages.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.errors import DataError
from suffice.llm.base import Answerer
from suffice.metrics import normalize_answer
from suffice.probes import LabelRule, ProbeMeasures, is_right, measure_probe
from suffice.retrieval import PoolBM25, Question, Retriever
from suffice.rounds import Passage, Reply
from suffice.tables import Column, Table
from suffice.train.confidence import Confidence
from suffice.train.preferences import candidates_of

__all__ = ["Shift", "measure_shift"]

_CONTAINS = LabelRule("contains")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Confidence under the prompt without passages and under the one with a passage, on the same questions.

    Attributes:
        qa: Without passages, against the answers without passages.
        rag: With one candidate passage each, drawn at random, against the answers with it.
        label: When an answer counted as right.
    """

    qa: ProbeMeasures
    rag: ProbeMeasures
    label: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {"label": self.label, "qa": self.qa.to_dict(), "rag": self.rag.to_dict()}

    def table(self) -> Table:
        """Return the two prompts as a table."""
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
    retriever: Retriever | None = None,
    candidates: int = 8,
    label: LabelRule = _CONTAINS,
) -> Shift:
    """Let the model answer each question without passages and with one candidate, and compare its confidence with that.

    Args:
        questions: With gold answers; those without candidates or answers are left out.  None that the probe was fitted
            on.
        confidence: The model's confidence.
        model: The same model, answering.
        rng: Draws one candidate for each question.
        retriever: Finds the candidates; default: BM25 over a question's pool.
        candidates: Candidates to draw from.
        label: When an answer is right; default: it contains a gold answer.

    Raises:
        DataError: No question has both gold answers and candidates.
        ModelError: The model failed.
    """
    retriever = retriever or PoolBM25()
    asked: list[tuple[Question, Passage]] = []
    for question in questions:
        pool, _, _ = candidates_of(question, retriever, candidates)
        if pool and any(map(normalize_answer, question.answers)):
            asked.append((question, pool[int(rng.integers(len(pool)))]))
    if not asked:
        raise DataError("no question has both gold answers and candidate passages: nothing tells right from wrong")
    texts = [question.question for question, _ in asked]
    measured = []
    alone: list[tuple[Passage, ...]] = [() for _ in asked]
    for passages in (alone, [(passage,) for _, passage in asked]):
        confident = confidence.of(texts, None if passages is alone else passages)
        replies = _replies(model, texts, passages)
        right = [is_right(reply.answer, item.answers, label) for reply, (item, _) in zip(replies, asked, strict=True)]
        measured.append(measure_probe(confident, right, rng=rng))
    return Shift(qa=measured[0], rag=measured[1], label=str(label))


def _replies(model: Answerer, texts: Sequence[str], passages: Sequence[tuple[Passage, ...]]) -> list[Reply]:
    """Return the model's replies; a local model's many at a time."""
    together: Callable[..., list[Reply]] | None = getattr(model, "answers", None)
    if together is not None:
        return together(texts, passages)
    return [model.answer(text, given) for text, given in zip(texts, passages, strict=True)]
