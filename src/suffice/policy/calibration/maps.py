"""Monotone maps from a raw signal to a probability: two short arrays or two numbers, applied with numpy alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from suffice.common.results import Tagged
from suffice.errors import SchemaError
from suffice.policy.rounds import Floats


class CalibrationMap(Protocol):
    """A fitted map: monotone, with values in [0, 1], NaN for NaN."""

    def predict(self, values: Floats) -> Floats:
        """Return the probability for each value, any shape; clipped outside the fitted range."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values that `map_from_dict` reads."""
        ...


@dataclass(frozen=True, slots=True)
class Constant(Tagged):
    """The fallback map for a round where no curve can be fitted: the constant mean (TASR section 3.3)."""

    tag = ("map", "constant")
    value: float

    def predict(self, values: Floats) -> Floats:
        return np.where(np.isnan(values), np.nan, self.value)


@dataclass(frozen=True, slots=True)
class PiecewiseLinear(Tagged):
    """The isotonic map: linear between knots, clipped outside them.

    scikit-learn's default returns NaN outside the fitted range, and ``nan > 0.25`` is False: such a policy would
    silently never stop there.

    Attributes:
        x: Knots, increasing, in the signal's unit.
        y: Probabilities at the knots, non-decreasing, in [0, 1].
    """

    tag = ("map", "piecewise_linear")
    x: tuple[float, ...]
    y: tuple[float, ...]
    _knots: tuple[Floats, Floats] = field(init=False, repr=False, compare=False)  # arrays once, not at each decision

    def __post_init__(self) -> None:
        object.__setattr__(self, "_knots", (np.asarray(self.x, dtype=np.float64), np.asarray(self.y, dtype=np.float64)))

    def predict(self, values: Floats) -> Floats:
        return np.interp(values, *self._knots)  # NaN stays NaN


@dataclass(frozen=True, slots=True)
class Sigmoid(Tagged):
    """The logistic map of Platt scaling: 1 / (1 + exp(-(slope * value + intercept)))."""

    tag = ("map", "sigmoid")
    slope: float
    intercept: float

    def predict(self, values: Floats) -> Floats:
        scores = np.clip(self.slope * np.asarray(values) + self.intercept, -700.0, 700.0)  # exp() stays finite
        return np.asarray(1.0 / (1.0 + np.exp(-scores)))


def fit_isotonic(values: Floats, target: Floats, weights: Floats) -> CalibrationMap:
    """Fit isotonic regression by pool-adjacent-violators (TASR section 3.3).

    Args:
        values: Raw signal, shape ``(n,)``, finite.
        target: Outcome in [0, 1], shape ``(n,)``.
        weights: Positive weights, shape ``(n,)``; weight 2 counts like two equal rows.
    """
    # Rows with equal values form one block with their mean, as pooling would do anyway.
    knots, inverse = np.unique(values, return_inverse=True)
    total = np.bincount(inverse, weights)
    means = np.bincount(inverse, weights * target) / total
    if len(knots) == 1:
        return Constant(float(means[0]))
    from scipy.optimize import isotonic_regression

    levels = np.clip(isotonic_regression(means, weights=total).x, 0.0, 1.0)
    keep = np.ones(len(knots), dtype=np.bool_)  # inside a plateau only its ends matter
    keep[1:-1] = (levels[1:-1] != levels[:-2]) | (levels[1:-1] != levels[2:])
    return PiecewiseLinear(tuple(knots[keep].tolist()), tuple(levels[keep].tolist()))


def fit_platt(values: Floats, target: Floats, weights: Floats) -> CalibrationMap:
    """Fit a logistic curve (Platt scaling), barely regularised; arguments as for `fit_isotonic`.

    A decreasing curve is replaced by the mean, since a calibrator must be increasing.
    """
    from suffice.policy.calibration.logistic import fit_logistic

    mean = float(np.average(target, weights=weights))
    center = float(np.average(values, weights=weights))
    spread = float(np.sqrt(np.average((values - center) ** 2, weights=weights)))
    if values.min() == values.max() or mean in (0.0, 1.0):
        return Constant(mean)
    # A target between 0 and 1 counts as both outcomes, in proportion.
    rows = np.concatenate([values, values])
    labels = np.concatenate([np.ones(len(values)), np.zeros(len(values))])
    shares = np.concatenate([weights * target, weights * (1 - target)])
    used = shares > 0
    scaled = ((rows[used] - center) / spread)[:, None]
    fitted = fit_logistic(scaled, labels[used], strength=1e4, shares=shares[used], most=1000)
    slope = float(fitted.weights[0, 0]) / spread
    if slope <= 0:
        return Constant(mean)
    return Sigmoid(slope, float(fitted.intercepts[0]) - slope * center)


def map_from_dict(data: Mapping[str, Any]) -> CalibrationMap:
    """Read the map that `CalibrationMap.to_dict` wrote; raise for anything else."""
    try:
        if data["map"] == "constant" and set(data) == {"map", "value"}:
            return Constant(_probabilities([data["value"]])[0])
        if data["map"] == "piecewise_linear" and set(data) == {"map", "x", "y"}:
            return _piecewise(data["x"], data["y"])
        if data["map"] == "sigmoid" and set(data) == {"map", "slope", "intercept"}:
            return _sigmoid(float(data["slope"]), float(data["intercept"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"a calibration map does not read: {error}") from None
    raise SchemaError(f"unknown calibration map {dict(data)!r}: constant, piecewise_linear or sigmoid expected")


def _probabilities(values: Any) -> list[float]:
    numbers = [float(value) for value in values]
    if not all(0.0 <= number <= 1.0 for number in numbers):
        raise ValueError(f"probabilities must lie in [0, 1], not {numbers!r}")
    return numbers


def _sigmoid(slope: float, intercept: float) -> Sigmoid:
    if not (np.isfinite(slope) and np.isfinite(intercept) and slope > 0):
        raise ValueError(f"slope {slope!r} and intercept {intercept!r} must be finite, the slope positive")
    return Sigmoid(slope, intercept)


def _piecewise(x: Any, y: Any) -> PiecewiseLinear:
    knots, levels = [float(value) for value in x], _probabilities(y)
    if len(knots) != len(levels) or len(knots) < 2:  # noqa: PLR2004
        raise ValueError(f"{len(knots)} knots for {len(levels)} values; as many of each, at least 2")
    if not (np.isfinite(knots).all() and (np.diff(knots) > 0).all() and (np.diff(levels) >= 0).all()):
        raise ValueError("knots must be finite and increase, their values must not decrease")
    return PiecewiseLinear(tuple(knots), tuple(levels))
