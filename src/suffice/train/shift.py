"""A probe under another prompt than it was fitted on: how much of it is left.

CBDR fits its probe on states of questions alone and applies it to states of questions with passages.  Whether the
increases that this gives mean anything depends on how well the probe does there: against the model's own answers with
the same passages, its AUROC and its calibration error, beside those of the prompt without passages.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from suffice.calibration import calibration_report
from suffice.errors import DataError
from suffice.llm.base import Answerer
from suffice.metrics import contains
from suffice.retrieval import PoolBM25, Question, Retriever
from suffice.rounds import Floats, Passage
from suffice.statistics import Area, area_under_roc
from suffice.train.confidence import Confidence
from suffice.train.preferences import candidates_of

__all__ = ["PromptFit", "Shift", "measure_shift"]

Label = Callable[[str | None, Sequence[str]], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptFit:
    """How well confidence tells right answers from wrong ones under one prompt.

    Attributes:
        n: Questions with a defined confidence and gold answers.
        right: Share of them that the model answers rightly under this prompt.
        mean: Mean confidence.
        auroc: How often a right answer has the larger confidence; NaN where all are right or all wrong.
        low: Lower end of its 95 % interval.
        high: Upper end.
        ece: Expected calibration error, ten bins; NaN without a question.
    """

    n: int
    right: float
    mean: float
    auroc: float
    low: float
    high: float
    ece: float

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in asdict(self).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """Confidence under the prompt without passages and under the one with a passage, on the same questions.

    Attributes:
        qa: Without passages.
        rag: With one candidate passage each, drawn at random.
        label: What counted as right.
    """

    qa: PromptFit
    rag: PromptFit
    label: str

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {"label": self.label, "qa": self.qa.to_dict(), "rag": self.rag.to_dict()}


def measure_shift(
    questions: Sequence[Question],
    confidence: Confidence,
    model: Answerer,
    *,
    rng: np.random.Generator,
    retriever: Retriever | None = None,
    candidates: int = 8,
    label: Label = contains,
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
        label: Whether an answer is right, 0 or 1; default: it contains a gold answer.

    Raises:
        DataError: No question has both gold answers and candidates.
        ModelError: The model failed.
    """
    retriever = retriever or PoolBM25()
    asked: list[tuple[Question, Passage]] = []
    for question in questions:
        pool, _, _ = candidates_of(question, retriever, candidates)
        if pool and question.answers:
            asked.append((question, pool[int(rng.integers(len(pool)))]))
    if not asked:
        raise DataError("no question has both gold answers and candidate passages: nothing tells right from wrong")
    texts = [question.question for question, _ in asked]
    fits = []
    for passages in ([()] * len(asked), [(passage,) for _, passage in asked]):
        confident = confidence.of(texts, passages if any(passages) else None)
        replies = [model.answer(text, given) for text, given in zip(texts, passages, strict=True)]
        right = [label(reply.answer, question.answers) for reply, (question, _) in zip(replies, asked, strict=True)]
        fits.append(_fit(confident, np.asarray(right)))
    return Shift(qa=fits[0], rag=fits[1], label=getattr(label, "__name__", repr(label)))


def _fit(confident: Floats, right: Floats) -> PromptFit:
    known = ~np.isnan(confident)
    confident, right = confident[known], right[known]
    area: Area = area_under_roc(confident, right)
    some = len(confident) > 0
    return PromptFit(
        n=len(confident),
        right=float(right.mean()) if some else math.nan,
        mean=float(confident.mean()) if some else math.nan,
        auroc=area.value,
        low=area.low,
        high=area.high,
        ece=calibration_report(confident, right).ece if some else math.nan,
    )
