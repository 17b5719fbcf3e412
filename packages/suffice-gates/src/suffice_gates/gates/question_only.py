"""Gates that read only the question; they are fitted on answers to tune questions, and need only numpy afterwards.

There are three kinds, all logistic regressions:

- on the question's embedding, with the label "the closed-book answer was right" (CBDR);
- on features of its text (`suffice_gates.gates.features`), with the same label;
- Adaptive-RAG's classifier into none, single and multi (Jeong et al. 2024, section 3.2), here on embeddings.  The label
  is the smallest number of retrievals that led to a right answer.  If no answer was right, the label is multi for
  multi-hop questions and single for others.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics import hash_folds
from suffice.policy.calibration.calibrator import CalibrationMap, Constant, fit_platt
from suffice.policy.calibration.logistic import fit_logistic
from suffice.policy.rounds import Floats, Mask

Classes = npt.NDArray[np.int64]
Reader = Callable[[Sequence[str]], npt.NDArray[np.floating]]
"""Turns questions into numbers, shape ``(n, width)``: an embedder's `embed`, or `question_features`."""

_REGULARISATIONS = (1e-3, 1e-2, 1e-1, 1.0, 10.0)
"""Inverse strengths of regularisation that cross-validation chooses among."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionGate:
    """A fitted gate: maps questions to the probability that the closed-book answer is enough, with numpy alone.

    Attributes:
        read: Turns questions into numbers.
        mean: Mean of each number, subtracted first, shape ``(width,)``.
        scale: Standard deviation of each number, which divides it after the subtraction; infinite for constant numbers,
            so that they have no effect.
        weights: Weights of the regression, shape ``(n_classes, width)``; one row for two classes.
        intercepts: Intercepts, shape ``(n_classes,)``.
        classes: The classes in the labels of the fit, ascending.
        wanted: Index of the class that answers directly.
        calibration: Maps the raw score to the probability.
        strength: The chosen inverse strength of regularisation.
    """

    read: Reader
    mean: Floats
    scale: Floats
    weights: Floats
    intercepts: Floats
    classes: tuple[int, ...]
    wanted: int
    calibration: CalibrationMap
    strength: float

    def scores(self, questions: Sequence[str]) -> Floats:
        """Return the calibrated probability of each question, shape ``(n,)``; NaN if `read` returns NaN for it."""
        return self.calibration.predict(self.raw(np.asarray(self.read(questions), dtype=np.float64)))

    def raw(self, values: Floats) -> Floats:
        """Return the uncalibrated score, which is the log odds of the wanted class, for numbers that `read` returned."""
        logits = self._logits(values)
        if logits.shape[1] == 1:
            odds: Floats = logits[:, 0] if self.wanted == 1 else -logits[:, 0]
            return odds
        others = np.delete(logits, self.wanted, axis=1)
        top = others.max(axis=1)
        rest: Floats = top + np.log(np.exp(others - top[:, None]).sum(axis=1))
        margin: Floats = logits[:, self.wanted] - rest
        return margin

    def likeliest(self, values: Floats) -> Floats:
        """Return the most probable class from numbers that `read` returned, shape ``(n,)``; NaN if a number is NaN."""
        logits = self._logits(values)
        both = np.column_stack([np.zeros(len(logits)), logits]) if logits.shape[1] == 1 else logits
        classes = np.asarray(self.classes, dtype=np.float64)[both.argmax(axis=1)]
        return np.where(np.isfinite(both).all(axis=1), classes, np.nan)

    def _logits(self, values: Floats) -> Floats:
        logits: Floats = ((values - self.mean) / self.scale) @ self.weights.T + self.intercepts
        return logits


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A fitted gate, with its out-of-fold scores of the tune questions and the cost of the fit.

    Attributes:
        gate: The gate, for other questions.
        cross_fitted: Scores of the tune questions, each from a gate fitted on the other folds, shape ``(n_tune,)``.
        n_labels: Number of labelled questions.
        seconds: Seconds to read the questions and to fit, including cross-fits.
    """

    gate: QuestionGate
    cross_fitted: Floats
    n_labels: int
    seconds: float


def adaptive_labels(
    direct: npt.ArrayLike,
    single: npt.ArrayLike,
    multi: npt.ArrayLike | None = None,
    *,
    multi_hop: npt.ArrayLike = True,
) -> Classes:
    """Return Adaptive-RAG's labels: 0 none, 1 single, 2 multi, shape ``(n,)``.

    The label is the smallest number of retrievals with a right answer.  If no answer is right, the label is 2 where
    `multi_hop` is true, else 1.

    >>> adaptive_labels([1, 0, 0], [0, 1, 0]).tolist()
    [0, 1, 2]
    >>> adaptive_labels([0, 0], [0, 0], [1, 0], multi_hop=False).tolist()
    [2, 1]

    Args:
        direct: 1 if the answer without retrieval is right, else 0.
        single: 1 if the answer after a single retrieval is right, else 0.
        multi: 1 if the answer after all retrievals is right, else 0; None if there is only one retrieval.
        multi_hop: True if the data set's questions need several retrievals; one value for all, or one for each question.
    """
    masks = [np.asarray(mask, dtype=np.bool_) for mask in (direct, single, np.zeros(1) if multi is None else multi)]
    where_wrong = np.where(np.asarray(multi_hop, dtype=np.bool_), 2, 1)
    return np.asarray(np.select(np.broadcast_arrays(*masks), [0, 1, 2], where_wrong), dtype=np.int64)


def question_folds(question_ids: Sequence[str], n: int = 5) -> Classes:
    """Return the fold of each question, 0..n - 1, by a hash of its id, independent of order and seed."""
    return hash_folds(question_ids, n, width=8)


def fit_gate(
    read: Reader, questions: Sequence[str], labels: npt.ArrayLike, folds: npt.ArrayLike, *, wanted: int = 1
) -> Fitted:
    """Fit a question-only gate on tune questions.

    Each fold is scored by a gate fitted on the other folds.  These scores are used to choose the regularisation, to fit
    the calibration (Platt), and later to choose the threshold.

    Args:
        read: Turns questions into numbers.
        questions: Tune questions.
        labels: The class of each question, from 0 on.
        folds: The fold of each question, from `question_folds`.
        wanted: The class that answers directly.

    Raises:
        DataError: There are fewer than two classes or folds, or labels and questions differ in number.
    """
    began = time.perf_counter()
    classes, fold = np.asarray(labels, dtype=np.int64), np.asarray(folds, dtype=np.int64)
    if not len(classes) == len(questions) == len(fold):
        raise DataError(f"{len(questions)} questions, {len(classes)} labels and {len(fold)} folds: give one of each")
    present = np.unique(classes)
    if len(present) < 2:  # noqa: PLR2004
        raise DataError(
            f"all {len(classes)} labels are {present.tolist()}: a gate is fitted on questions of both outcomes. "
            "Retrieve always or never, or label more questions"
        )
    if wanted not in present:
        raise DataError(f"no question has the label {wanted}; there are: {present.tolist()}")
    parts = np.unique(fold)
    others = [set(classes[fold != part].tolist()) for part in parts]  # a rare third class may be missing in a fold
    if len(parts) < 2 or any(wanted not in held or len(held) < 2 for held in others):  # noqa: PLR2004
        raise DataError(
            f"too few questions: each fold's other questions must hold the label {wanted} and another. Label more questions"
        )
    task = _Task(read, np.asarray(read(questions), dtype=np.float64), classes, wanted)
    target = (classes == wanted).astype(np.float64)
    scores = {strength: task.cross_fitted(fold, strength) for strength in _REGULARISATIONS}
    strength = min(scores, key=lambda c: _log_loss(scores[c], target))
    calibration = fit_platt(scores[strength], target, np.ones(len(target)))
    gate = task.fit(np.ones(len(target), dtype=np.bool_), strength, calibration)
    cross_fitted = calibration.predict(scores[strength])
    return Fitted(gate=gate, cross_fitted=cross_fitted, n_labels=len(classes), seconds=time.perf_counter() - began)


@dataclass(frozen=True, slots=True)
class _Task:
    """The vectors of tune questions, with their classes."""

    read: Reader
    values: Floats
    classes: Classes
    wanted: int

    def cross_fitted(self, fold: Classes, strength: float) -> Floats:
        """Return the raw score of each question from a gate fitted on the other folds."""
        raw = np.empty(len(self.values))
        for part in np.unique(fold):
            raw[fold == part] = self.fit(fold != part, strength, Constant(0.0)).raw(self.values[fold == part])
        return raw

    def fit(self, rows: Mask, strength: float, calibration: CalibrationMap) -> QuestionGate:
        """Fit the gate on some of the questions."""
        values = self.values[rows]
        mean, spread = values.mean(axis=0), values.std(axis=0)
        scale = np.where(spread > 1e-12 * (1 + np.abs(mean)), spread, np.inf)
        fitted = fit_logistic((values - mean) / scale, self.classes[rows], strength=strength)
        return QuestionGate(
            read=self.read,
            mean=mean,
            scale=scale,
            weights=fitted.weights,
            intercepts=fitted.intercepts,
            classes=tuple(fitted.classes.tolist()),
            wanted=int(np.searchsorted(fitted.classes, self.wanted)),
            calibration=calibration,
            strength=strength,
        )


def _log_loss(raw: Floats, target: Floats) -> float:
    odds = np.where(target == 1, raw, -raw)
    return float(np.logaddexp(0.0, -odds).mean())
