"""The question-only gates that every comparison shows, fitted on tune questions or cross-fitted."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask
from suffice.policy.signals import SIGNALS
from suffice_gates.gates.answered import questions_of
from suffice_gates.gates.compare import GatePrice, ScoredGate
from suffice_gates.gates.evaluation import GateEvaluation
from suffice_gates.gates.features import question_features
from suffice_gates.gates.question_only import Fitted, Reader, adaptive_labels, fit_gate, question_folds
from suffice_gates.gates.threshold import BothWays, cross_fit


@dataclass(frozen=True, slots=True)
class QuestionOnly:
    """A question-only gate before it is fitted.

    Attributes:
        name: Name in reports.
        reads: Its input, `embedding` or `features`.
        labels: Function from answers to the class of each question.
        wanted: The class that answers directly.
        source: Paper, or other origin.
    """

    name: str
    reads: str
    labels: Callable[[BothWays], npt.ArrayLike]
    wanted: int
    source: str


def _closed_book_right(answers: BothWays) -> npt.ArrayLike:
    return answers.right[0]


def _not_needed(answers: BothWays) -> npt.ArrayLike:
    return answers.not_needed


def _adaptive(answers: BothWays) -> npt.ArrayLike:
    return adaptive_labels(*answers.right)


_CBDR_LABEL = "label of CBDR (section 3.1)"
_FEATURES_SOURCE = "after Marina et al. (2025)"

QUESTION_GATES = (
    QuestionOnly("embedding, known", "embedding", _closed_book_right, 1, f"logistic regression, {_CBDR_LABEL}"),
    QuestionOnly("embedding, not needed", "embedding", _not_needed, 1, "logistic regression on what retrieval changes"),
    QuestionOnly("features, known", "features", _closed_book_right, 1, f"{_FEATURES_SOURCE}, {_CBDR_LABEL}"),
    QuestionOnly("features, not needed", "features", _not_needed, 1, f"{_FEATURES_SOURCE}, on what retrieval changes"),
    QuestionOnly("adaptive-rag", "embedding", _adaptive, 0, "none / single / multi, Jeong et al. (2024)"),
)
"""The standard gates.  They predict whether the direct answer is right, whether retrieval gains nothing, or the smallest
number of retrievals for a right answer.
"""


class _TimedReader:
    """A reader that reads each question only once, and measures the seconds per question."""

    def __init__(self, read: Reader, questions: Sequence[str]) -> None:
        listed = list(dict.fromkeys(questions))
        began = time.perf_counter()
        self._values = dict(zip(listed, np.asarray(read(listed), dtype=np.float64), strict=True))
        self.seconds = (time.perf_counter() - began) / max(1, len(listed))

    def __call__(self, questions: Sequence[str]) -> npt.NDArray[np.floating]:
        return np.stack([self._values[question] for question in questions])


def _readings(embed: Reader, questions: Sequence[str]) -> dict[str, _TimedReader]:
    return {"embedding": _TimedReader(embed, questions), "features": _TimedReader(question_features, questions)}


def question_gates(
    tune: GateEvaluation, evaluation: GateEvaluation, embed: Reader, kinds: Sequence[QuestionOnly] = QUESTION_GATES
) -> list[ScoredGate]:
    """Fit question-only gates on tune questions, and score the tune questions and the evaluation questions.

    Args:
        tune: Tune questions.
        evaluation: The evaluation questions.
        embed: Turns questions into vectors, for example `MiniLM().embed`.
        kinds: The gates to fit.

    Raises:
        DataError: The recordings have no question texts, or all labels are of one class.
    """
    tune_texts, texts = questions_of(tune.recording), questions_of(evaluation.recording)
    readings = _readings(embed, [*tune_texts, *texts])
    folds = question_folds(tune.recording.question_ids)
    gates = []
    for kind in kinds:
        reading = readings[kind.reads]
        fitted = fit_gate(reading, tune_texts, kind.labels(tune.answers), folds, wanted=kind.wanted)
        began = time.perf_counter()
        scores = fitted.gate.scores(texts)
        deciding = reading.seconds + (time.perf_counter() - began) / len(texts)
        gates.append(
            ScoredGate(
                name=kind.name,
                tune=fitted.cross_fitted,
                evaluation=scores,
                price=_price(fitted, reading, deciding),
                source=kind.source,
            )
        )
    return gates


def held_out_gates(
    evaluation: GateEvaluation,
    embed: Reader,
    kinds: Sequence[QuestionOnly] = QUESTION_GATES,
    *,
    rate: float | None = None,
) -> list[ScoredGate]:
    """Cross-fit question-only gates and their thresholds on a single recording.

    The questions are divided into folds. A question's score and threshold come from a gate that was fitted without the
    question's fold, so that no figure is optimistic. Each fold has its own threshold. Therefore the returned scores are
    scores minus thresholds, and all gates have the threshold 0.

    Args:
        evaluation: The questions, used both for fitting and for evaluation.
        embed: Turns questions into vectors.
        kinds: The gates to fit.
        rate: Choose each fold's threshold for this retrieval rate on the other folds, instead of for the best quality.

    Raises:
        DataError: The recording has no question texts, or all labels are of one class.
    """
    texts = questions_of(evaluation.recording)
    readings = _readings(embed, texts)
    return [_held_out(kind, readings[kind.reads], texts, evaluation, rate) for kind in kinds]


def _held_out(
    kind: QuestionOnly, reading: _TimedReader, texts: Sequence[str], evaluation: GateEvaluation, rate: float | None
) -> ScoredGate:
    """Cross-fit one kind of gate."""
    folds = question_folds(evaluation.recording.question_ids)
    labels = np.asarray(kind.labels(evaluation.answers))
    questions = np.array(texts, dtype=object)
    prices: list[GatePrice] = []

    def fit(rows: Mask) -> tuple[Floats, Callable[[Mask], Floats]]:
        fitted = fit_gate(reading, questions[rows].tolist(), labels[rows], folds[rows], wanted=kind.wanted)
        prices.append(_price(fitted, reading, reading.seconds))
        return fitted.cross_fitted, lambda others: fitted.gate.scores(questions[others].tolist())

    above, ranks = cross_fit(folds, fit, evaluation.answers, rate=rate)
    return ScoredGate(
        name=kind.name,
        tune=np.full(len(above), np.nan),
        evaluation=above,
        beta=0.0,
        ranks=ranks,
        price=replace(prices[0], n_labels=round(float(np.mean([price.n_labels for price in prices])))),
        source=kind.source,
    )


def _price(fitted: Fitted, reading: _TimedReader, deciding: float) -> GatePrice:
    return GatePrice(
        n_labels=fitted.n_labels,
        fit_seconds=fitted.seconds + reading.seconds * fitted.n_labels,
        seconds=deciding,
    )


def column_gate(
    name: str, evaluation: GateEvaluation, tune: GateEvaluation | None, *, rate: float | None = None
) -> ScoredGate:
    """Use a recorded signal of round 0 as a gate.

    Args:
        name: The column; with the suffix ``:low``, low values answer directly, as for an uncertainty.
        evaluation: Evaluation questions.
        tune: Tune questions, whose recording must have the column too; None to cross-fit the threshold.
        rate: If the threshold is cross-fitted, choose it for this retrieval rate instead of for the best quality.

    Raises:
        UnknownSignalError: A recording does not have the column.
        DataError: The suffix is not ``low``, or the column is undefined at round 0 of every question.
    """
    column, _, side = name.partition(":")
    if side not in ("", "low"):
        raise DataError(f"{name!r}: write NAME, or NAME:low where low values answer directly")
    low = side == "low"
    scores = _first_scores(column, evaluation)
    source = f"the column {column!r}, {'low' if low else 'high'} values answer directly"
    recorded = evaluation.recording.signal_components.get(column)
    component = recorded or (SIGNALS[column].component if column in SIGNALS else f"judge:{column}")
    if tune is not None:
        tune_scores = _first_scores(column, tune)
        return ScoredGate(
            name=column,
            tune=tune_scores,
            evaluation=scores,
            low=low,
            component=component,
            price=_RECORDED,
            source=source,
        )
    folds = question_folds(evaluation.recording.question_ids)
    above, _ = cross_fit(
        folds, lambda rows: (scores[rows], lambda rest: scores[rest]), evaluation.answers, low=low, rate=rate
    )
    return ScoredGate(
        name=f"{column}, cross-fitted",
        tune=scores,
        evaluation=above,
        beta=0.0,
        ranks=-scores if low else scores,
        component=component,
        price=_RECORDED,
        source=source,
    )


def _first_scores(column: str, evaluation: GateEvaluation) -> Floats:
    scores = evaluation.recording.column(column)[:, 0]
    if not np.isfinite(scores).any():
        raise DataError(
            f"{column!r} is undefined at round 0 of all {evaluation.n} questions, so it cannot decide whether to retrieve: "
            "compare a column that is known there, or leave this one out"
        )
    return scores


_RECORDED = GatePrice(n_labels=float("nan"), fit_seconds=float("nan"), seconds=float("nan"))
"""Price of a recorded gate: its decisions are in the recording and charged by replay; the cost of its fit is unknown."""
