"""Logistic regression with an L2 penalty, with the same loss, start and stopping rule as scikit-learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.policy.rounds import Floats

_GRADIENT = 1e-4
"""Largest gradient at which the search may end; scikit-learn's default."""


@dataclass(frozen=True, slots=True)
class Logistic:
    """A fitted logistic regression.

    Attributes:
        classes: The labels, ascending, shape ``(n_classes,)``.
        weights: Weights of the features, shape ``(1, n_features)`` for two classes (positive weights favour the second
            class), else ``(n_classes, n_features)``.
    """

    classes: npt.NDArray[np.generic]
    weights: Floats
    intercepts: Floats


def fit_logistic(
    values: npt.ArrayLike,
    labels: npt.ArrayLike,
    *,
    strength: float,
    shares: npt.ArrayLike | None = None,
    balanced: bool = False,
    intercept: bool = True,
    most: int = 2000,
) -> Logistic:
    """Fit a logistic regression by L-BFGS, with the binary loss for two classes and the multinomial loss for more.

    The penalty ``|weights|^2 / (2 strength)`` is added to the summed loss; intercepts are not penalised.  As in
    scikit-learn 1.4 to 1.9 (`LogisticRegression`, solver ``lbfgs``), the loss is divided by the number of rows, the
    start is 0, and scipy's limits apply. So a fit differs from scikit-learn's only by rounding.

    Args:
        values: The features, shape ``(n_rows, n_features)``, finite.
        labels: Labels of shape ``(n_rows,)``, with at least two different ones.
        strength: Inverse strength of the penalty (`C`).
        shares: Weight of each row, shape ``(n_rows,)``; None = equal weights.
        balanced: Whether to weight rows so that all classes count equally.
        intercept: Whether to fit an intercept.
        most: The largest number of iterations.
    """
    from scipy.optimize import minimize
    from scipy.special import expit

    rows = np.asarray(values, dtype=np.float64)
    classes, codes = np.unique(np.asarray(labels), return_inverse=True)
    weight = np.ones(len(rows)) if shares is None else np.asarray(shares, dtype=np.float64)
    if balanced:
        weight = weight * (len(rows) / (len(classes) * np.bincount(codes)))[codes]
    total = float(weight.sum())
    penalty = 1.0 / (strength * total)
    n_sets = 1 if len(classes) == 2 else len(classes)  # noqa: PLR2004 - one set of weights is enough for two classes
    width = rows.shape[1]
    wanted = np.equal.outer(codes, np.arange(n_sets)) if n_sets > 1 else codes[:, None] == 1

    def objective(flat: Floats) -> tuple[float, Floats]:
        sets = flat.reshape(n_sets, -1, order="F")
        weights = sets[:, :width]
        raw = rows @ weights.T + (sets[:, width] if intercept else 0.0)
        if n_sets == 1:
            losses = np.logaddexp(0.0, raw[:, 0]) - codes * raw[:, 0]
            chances = expit(raw)
        else:
            norms = _log_sums(raw)
            losses = (norms - raw)[np.arange(len(rows)), codes]
            chances = np.exp(raw - norms)
        slopes = (weight / total)[:, None] * (chances - wanted)
        gradient = np.empty_like(sets)
        gradient[:, :width] = slopes.T @ rows + penalty * weights
        if intercept:
            gradient[:, width] = slopes.sum(axis=0)
        return float(weight @ losses / total + 0.5 * penalty * (weights**2).sum()), gradient.ravel(order="F")

    limits: Any = {"maxiter": most, "maxls": 50, "gtol": _GRADIENT, "ftol": 64 * np.finfo(np.float64).eps}
    start = np.zeros(n_sets * (width + intercept))
    minimum = minimize(objective, start, method="L-BFGS-B", jac=True, options=limits)
    sets = minimum.x.reshape(n_sets, -1, order="F")
    intercepts = sets[:, width] if intercept else np.zeros(n_sets)
    return Logistic(classes=classes, weights=sets[:, :width].copy(), intercepts=intercepts.copy())


def _log_sums(logits: Floats) -> Floats:
    """Return the log of the sum of exponentials of each row, shape ``(n_rows, 1)``.

    The numbers must be finite. This function takes a third of the time of `scipy.special.logsumexp`.
    """
    top = logits.max(axis=1, keepdims=True)
    is_top = logits == top
    ties = is_top.sum(axis=1, keepdims=True, dtype=np.float64)
    others = np.exp(np.where(is_top, -np.inf, logits) - top).sum(axis=1, keepdims=True) / ties
    sums: Floats = np.log1p(others) + np.log(ties) + top
    return sums
