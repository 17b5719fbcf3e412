"""Logistic regression with an L2 penalty, as scikit-learn fits it: the same loss, start and stopping rule."""

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
        weights: Shape ``(1, n_features)`` for two classes, where the second is what they speak for; else
            ``(n_classes, n_features)``.
        intercepts: One for each row of weights.
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
    """Fit by L-BFGS: two classes by the binary loss, more by the multinomial one.

    The penalty, ``|weights|^2 / (2 strength)`` beside the summed loss, spares the intercepts.  A loss per row instead of
    a sum, the start at 0 and scipy's own limits are what scikit-learn 1.4 to 1.9 do (`LogisticRegression`, solver
    ``lbfgs``), so that a fit is the same as there but for rounding.

    Args:
        values: Shape ``(n_rows, n_features)``, finite.
        labels: Shape ``(n_rows,)``, two different ones at least.
        strength: Inverse strength of the penalty (`C`).
        shares: Weight of each row, shape ``(n_rows,)``; None = all alike.
        balanced: Weigh rows so that all classes count alike.
        intercept: Fit one.
        most: Iterations.
    """
    from scipy.optimize import minimize
    from scipy.special import expit, logsumexp

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
            norms = logsumexp(raw, axis=1, keepdims=True)
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
