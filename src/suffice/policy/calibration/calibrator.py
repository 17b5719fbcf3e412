"""Calibrators: maps from a raw signal to P(correct), one for each round or one for all rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np
import numpy.typing as npt

from suffice.common.json_text import check_types, number_from_json
from suffice.common.results import Tagged
from suffice.errors import DataError, NotFittedError, SchemaError
from suffice.policy.rounds import Floats


class CalibrationMap(Protocol):
    """A fitted monotone map with values in [0, 1]; it maps NaN to NaN."""

    def predict(self, values: Floats) -> Floats:
        """Return the probability for each value, in the shape of `values`.

        A value outside the fitted range gets the probability at the nearest end of the range.
        """
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values that `map_from_dict` reads."""
        ...


@dataclass(frozen=True, slots=True)
class Constant(Tagged):
    """The fallback map for a round where no curve can be fitted: it always returns the mean target (TASR section 3.3)."""

    tag = ("map", "constant")
    value: float

    def predict(self, values: Floats) -> Floats:
        return np.where(np.isnan(values), np.nan, self.value)


@dataclass(frozen=True, slots=True)
class PiecewiseLinear(Tagged):
    """The isotonic map: linear between knots and constant beyond the outermost knots.

    scikit-learn's default returns NaN outside the fitted range, and ``nan > 0.25`` is False: with such a map, a policy
    would silently never stop there.

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
    """Fit a logistic curve (Platt scaling) with a very weak penalty; the arguments are those of `fit_isotonic`.

    A decreasing curve is replaced by the mean target as a constant, since a calibrator must never decrease.
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
    """Read the map that `CalibrationMap.to_dict` wrote; raise if `data` is anything else."""
    try:
        if data["map"] == "constant" and set(data) == {"map", "value"}:
            return Constant(_probabilities([data["value"]])[0])
        if data["map"] == "piecewise_linear" and set(data) == {"map", "x", "y"}:
            return _piecewise(data["x"], data["y"])
        if data["map"] == "sigmoid" and set(data) == {"map", "slope", "intercept"}:
            return _sigmoid(number_from_json(data["slope"]), number_from_json(data["intercept"]))
    except (KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"a calibration map does not read: {error}") from None
    raise SchemaError(f"unknown calibration map {dict(data)!r}: constant, piecewise_linear or sigmoid expected")


def _probabilities(values: Any) -> list[float]:
    numbers = [*map(number_from_json, values)]
    if not all(0.0 <= number <= 1.0 for number in numbers):
        raise ValueError(f"probabilities must lie in [0, 1], not {numbers!r}")
    return numbers


def _sigmoid(slope: float, intercept: float) -> Sigmoid:
    if not (np.isfinite(slope) and np.isfinite(intercept) and slope > 0):
        raise ValueError(f"slope {slope!r} and intercept {intercept!r} must be finite, the slope positive")
    return Sigmoid(slope, intercept)


def _piecewise(x: Any, y: Any) -> PiecewiseLinear:
    knots, levels = [*map(number_from_json, x)], _probabilities(y)
    if len(knots) != len(levels) or len(knots) < 2:  # noqa: PLR2004
        raise ValueError(f"{len(knots)} knots for {len(levels)} values; as many of each, at least 2")
    if not (np.isfinite(knots).all() and (np.diff(knots) > 0).all() and (np.diff(levels) >= 0).all()):
        raise ValueError("knots must be finite and increase, their values must not decrease")
    return PiecewiseLinear(tuple(knots), tuple(levels))


Method = Literal["isotonic", "platt"]

_FITS = {"isotonic": fit_isotonic, "platt": fit_platt}
_CALIBRATOR_FIELDS = {"output", "signal", "method", "per_round", "unseen_round", "maps", "rounds_fitted", "target"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibrator:
    """A monotone map from a raw signal to the probability that the round's answer is correct.

    By default each round has its own map, because the same margin means more after five passages than after one (TASR
    section 3.3).

    >>> import numpy as np
    >>> margins, correct = np.array([[0.1, 0.5], [2.0, 3.0]]), np.array([[0, 0], [1, 1]])
    >>> calibrator = Calibrator().fit(margins, correct, index=[1, 2])
    >>> calibrator.predict(np.array([0.0, 1.75, 9.0]), index=[1, 2, 2]).tolist()
    [0.0, 0.5, 1.0]

    Attributes:
        output: The calibrated signal.
        signal: The raw signal.
        method: `isotonic` or `platt`.
        per_round: Whether each round has its own map, instead of one for all rounds.
        unseen_round: The reaction to a round that was not fitted: `error`, or `nearest` (use the nearest fitted round's map).
        target: The name of the column of outcomes that the maps were fitted to, for reports.
        maps: Fitted maps by round; the key -1 holds the map for all rounds.
        rounds_fitted: Number of rows with a defined signal, by round.
    """

    output: str = "p_correct"
    signal: str = "answer_margin"
    method: Method = "isotonic"
    per_round: bool = True
    unseen_round: Literal["error", "nearest"] = "error"
    target: str = "em"
    maps: Mapping[int, CalibrationMap] | None = None
    rounds_fitted: Mapping[int, int] | None = None

    def fit(
        self,
        values: npt.ArrayLike,
        target: npt.ArrayLike,
        *,
        index: npt.ArrayLike,
        weights: npt.ArrayLike | None = None,
    ) -> Calibrator:
        """Fit the maps, and return a fitted copy.

        Args:
            values: Raw signal, shape ``(..., n_rounds)``. Rounds with a NaN signal are left out.
            target: Outcome in [0, 1], same shape. Rounds with a NaN outcome are left out.
            index: The round of each entry of the last axis, shape ``(n_rounds,)``.
            weights: Positive weights, same shape as `values`; None = 1.

        Raises:
            DataError: A target outside [0, 1], shapes that differ, or no usable row at all.
        """
        x = np.asarray(values, dtype=np.float64)
        y = np.asarray(target, dtype=np.float64)
        w = np.ones(x.shape) if weights is None else np.asarray(weights, dtype=np.float64)
        rounds = np.broadcast_to(np.asarray(index, dtype=np.int64), x.shape)
        if x.shape != y.shape or x.shape != w.shape:
            raise DataError(f"values, target and weights must have one shape, not {x.shape}, {y.shape}, {w.shape}")
        labelled = np.isfinite(y) & (w > 0)
        if ((y[labelled] < 0) | (y[labelled] > 1)).any():
            raise DataError("a calibration target must lie in [0, 1]: use EM, or a metric with a threshold")
        usable = np.isfinite(x) & labelled
        if not usable.any():
            lacks = (
                "no row has a target: record questions with gold answers, or use the target agreement"
                if not labelled.any()
                else f"{self.signal!r} is undefined in every row that has a target; `suffice doctor` shows whether an "
                "endpoint gives log-probabilities"
            )
            raise DataError(f"nothing to fit {self.output!r} on: {lacks}.")
        groups = np.unique(rounds[labelled]).tolist() if self.per_round else [-1]
        maps: dict[int, CalibrationMap] = {}
        counts: dict[int, int] = {}
        for group in groups:
            rows = usable if group == -1 else usable & (rounds == group)
            counts[group] = int(rows.sum())
            if rows.any():
                maps[group] = _FITS[self.method](x[rows], y[rows], w[rows])
            else:  # no signal in the whole round, such as overlap at round 1
                fallback = labelled & (rounds == group)
                maps[group] = Constant(float(np.average(y[fallback], weights=w[fallback])))
        return replace(self, maps=maps, rounds_fitted=counts)

    def predict(self, values: npt.ArrayLike, *, index: npt.ArrayLike) -> Floats:
        """Return probabilities in the shape of `values`; a NaN value gets NaN.

        A value outside the fitted range gets the probability at the nearest end of the range.

        Args:
            values: Raw signal, shape ``(..., n_rounds)``.
            index: The round of each entry of the last axis, shape ``(n_rounds,)``.

        Raises:
            NotFittedError: `fit` has not run, or a defined value belongs to a round that was not fitted.
        """
        if self.maps is None:
            raise NotFittedError(f"the calibrator of {self.output!r} is not fitted: call fit, or `suffice calibrate`")
        x = np.asarray(values, dtype=np.float64)
        if not self.per_round:
            return self.maps[-1].predict(x)
        out = np.full(x.shape, np.nan)
        for position, r in enumerate(np.asarray(index).tolist()):
            column = x[..., position]
            fitted = self.maps.get(r)
            if fitted is None:
                if np.isnan(column).all():
                    continue
                fitted = self._unseen(r)
            out[..., position] = fitted.predict(column)
        return out

    def _unseen(self, r: int) -> CalibrationMap:
        assert self.maps is not None
        if self.unseen_round == "error":
            raise NotFittedError(
                f"the calibrator of {self.output!r} was not fitted for round {r}, only for {sorted(self.maps)}. "
                "Record those rounds on the tune split, lower max_rounds, or fit with unseen_round='nearest'."
            )
        return self.maps[min(self.maps, key=lambda fitted: (abs(fitted - r), fitted))]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values.

        Raises:
            NotFittedError: `fit` has not run.
        """
        if self.maps is None:
            raise NotFittedError(f"the calibrator of {self.output!r} is not fitted: there is nothing to save")
        return {
            "output": self.output,
            "signal": self.signal,
            "method": self.method,
            "per_round": self.per_round,
            "unseen_round": self.unseen_round,
            "target": self.target,
            "maps": {str(r): fitted.to_dict() for r, fitted in self.maps.items()},
            "rounds_fitted": {str(r): count for r, count in (self.rounds_fitted or {}).items()},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Calibrator:
        """Return the calibrator that `to_dict` wrote.

        Raises:
            SchemaError: Missing or unknown fields, or values that are not allowed.
        """
        if set(data) != _CALIBRATOR_FIELDS:
            raise SchemaError(f"a calibrator has the fields {sorted(_CALIBRATOR_FIELDS)}, not {sorted(data)}")
        if data["method"] not in _FITS or data["unseen_round"] not in ("error", "nearest"):
            raise SchemaError(f"unknown method {data['method']!r} or unseen_round {data['unseen_round']!r}")
        try:
            check_types(cls, data)
            maps = {int(r): map_from_dict(fitted) for r, fitted in data["maps"].items()}
            counts = {int(r): _count(count) for r, count in data["rounds_fitted"].items()}
        except (AttributeError, TypeError, ValueError) as error:
            raise SchemaError(f"a calibrator does not read: {error}") from None
        if not maps or (not data["per_round"] and set(maps) != {-1}):
            raise SchemaError(
                f"a calibrator with per_round={data['per_round']!r} cannot have the rounds {sorted(maps)}"
            )
        scalars = {name: data[name] for name in ("output", "signal", "method", "per_round", "unseen_round", "target")}
        return cls(**scalars, maps=maps, rounds_fitted=counts)


def _count(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"rounds_fitted counts rows, not {value!r:.40}")
    return value
