"""Which questions change sides between neighbouring thresholds, and whether that does them good (CBDR, Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.policy.rounds import Mask
from suffice_gates.gates.evaluation import GateEvaluation, gate_rule

__all__ = ["Transition", "Transitions", "transitions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A question that changes sides between two thresholds: it is answered directly at the lower, retrieved at the higher.

    Attributes:
        question_id: The question.
        question: Its text; empty where not recorded.
        direct: The answer without retrieval.
        retrieved: The answer with it.
        before: The metric without retrieval.
        after: The metric with it.
    """

    question_id: str
    question: str
    direct: str | None
    retrieved: str | None
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """What a step from one threshold to the next, stricter one changes (CBDR, Figure 8).

    Attributes:
        low: The threshold before.
        high: The one after: more questions are retrieved for.
        gained: Questions whose metric rises with retrieval: wrong -> right where the metric is 0 or 1.
        lost: Questions whose metric falls: right -> wrong.
        same: How many change sides without a change of the metric.
    """

    low: float
    high: float
    gained: tuple[Transition, ...]
    lost: tuple[Transition, ...]
    same: int


def transitions(
    evaluation: GateEvaluation, signal: str, betas: Sequence[float], *, low: bool = False
) -> tuple[Transitions, ...]:
    """Return what each step between neighbouring thresholds changes, in the order of retrieval.

    Args:
        evaluation: The questions.
        signal: What the gate reads.
        betas: The thresholds.
        low: Whether low values answer directly.

    Raises:
        UnknownSignalError: The signal was not recorded.
    """
    ordered = sorted(set(map(float, betas)), reverse=low)
    retrieved = [evaluation.run(gate_rule(signal, beta, low=low))[1] for beta in ordered]
    steps = zip(ordered, ordered[1:], retrieved, retrieved[1:], strict=False)
    return tuple(_step(evaluation, a, b, after & ~before) for a, b, before, after in steps)


def _step(evaluation: GateEvaluation, low: float, high: float, moved: Mask) -> Transitions:
    before, after = evaluation.answers.direct, evaluation.answers.retrieved
    recording, rounds = evaluation.recording, evaluation.always.rounds
    texts = recording.per_question("question", [""] * evaluation.n)
    answers = recording.answers
    assert rounds is not None

    def transition(q: int) -> Transition:
        return Transition(
            question_id=recording.question_ids[q],
            question=texts[q] or "",
            direct=answers[q, 0],
            retrieved=answers[q, int(rounds[q])],
            before=float(before[q]),
            after=float(after[q]),
        )

    return Transitions(
        low=low,
        high=high,
        gained=tuple(transition(q) for q in np.flatnonzero(moved & (after > before)).tolist()),
        lost=tuple(transition(q) for q in np.flatnonzero(moved & (after < before)).tolist()),
        same=int((moved & (after == before)).sum()),
    )
