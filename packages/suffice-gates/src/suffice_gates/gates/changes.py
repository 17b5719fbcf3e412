"""Questions whose decision changes between neighbouring thresholds, with gains and losses (CBDR, Figure 8)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.common.tables import Column, Table
from suffice.policy.rounds import Mask
from suffice_gates.gates.evaluation import GateEvaluation, gate_rule

_ANSWER_WIDTH = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A question that is answered directly at one threshold, but with retrieval at the next, stricter threshold.

    Attributes:
        question_id: The question.
        question: Its text; empty where not recorded.
        direct: The answer without retrieval.
        retrieved: The answer with retrieval.
        before: The metric without retrieval.
        after: The metric with retrieval.
    """

    question_id: str
    question: str
    direct: str | None
    retrieved: str | None
    before: float
    after: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Transitions:
    """Questions that move from a direct answer to retrieval when the threshold rises by one step (CBDR, Figure 8).

    Attributes:
        low: The threshold before the step.
        high: The threshold after it, which retrieves for more questions.
        gained: Moved questions whose metric rises with retrieval (wrong -> right if the metric is 0 or 1).
        lost: Moved questions whose metric falls (right -> wrong).
        same: Number of moved questions with an unchanged metric.
    """

    low: float
    high: float
    gained: tuple[Transition, ...]
    lost: tuple[Transition, ...]
    same: int


def transitions(
    evaluation: GateEvaluation, signal: str, betas: Sequence[float], *, low: bool = False
) -> tuple[Transitions, ...]:
    """Return the questions that move to retrieval at each step to a stricter threshold.

    The steps go from the threshold with the least retrieval to the one with the most.

    Args:
        evaluation: The questions.
        signal: The signal that the gate reads.
        betas: The thresholds.
        low: True if low values answer directly.

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


def transitions_table(title: str, steps: Sequence[Transitions]) -> Table:
    """Tabulate how many moved questions gain, lose or keep their metric at each step."""
    return Table(
        title=title,
        columns=(
            Column("beta from", ".4f"),
            Column("to", ".4f"),
            Column("newly retrieved", ",.0f"),
            Column("wrong -> right", ",.0f"),
            Column("right -> wrong", ",.0f"),
            Column("unchanged", ",.0f"),
        ),
        rows=tuple(
            (s.low, s.high, len(s.gained) + len(s.lost) + s.same, len(s.gained), len(s.lost), s.same) for s in steps
        ),
        notes=("where the metric is graded, a rise counts as wrong -> right and a fall as right -> wrong",),
    )


def examples_table(title: str, steps: Sequence[Transitions], most: int = 3) -> Table:
    """Tabulate the first questions that gain and lose by retrieval at each step."""
    rows = []
    for step in steps:
        for change, listed in (("wrong -> right", step.gained), ("right -> wrong", step.lost)):
            rows += [
                (change, item.question, _start_of(item.direct), _start_of(item.retrieved), item.question_id)
                for item in listed[:most]
            ]
    columns = (Column("change"), Column("question"), Column("without"), Column("with retrieval"), Column("id"))
    return Table(title=title, columns=columns, rows=tuple(rows))


def _start_of(answer: str | None) -> str:
    """Return an answer, or the start of a long one."""
    text = answer or "(none)"
    return text if len(text) <= _ANSWER_WIDTH else f"{text[:_ANSWER_WIDTH]} ..."
