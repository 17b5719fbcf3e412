"""Intervals of mean paired differences for many rules at once: bootstrap methods and the paired t."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import Weights, count_of, products, quantiles, resampled_means
from suffice.evaluation.statistics.units import ROUNDING, Clusters, Units, check_level, paired_rows, standard_errors
from suffice.policy.rounds import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Mean paired differences of several rules with intervals; every array has shape ``(n_rules,)``.

    Attributes:
        delta: Mean difference, in the unit of the metric.
        low: Lower end of the interval; -inf if the method gives no lower bound.
        high: Upper end; +inf if the method gives no upper bound.
        level: Nominal coverage.
        n_resamples: Number of draws; 0 for a method without draws.
        method: A key of `INTERVALS`, or `paired_t`.
    """

    delta: Floats
    low: Floats
    high: Floats
    level: float
    n_resamples: int
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Resampled:
    """A block of rules with its resampled means, the input of a method of intervals.

    Attributes:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``.
        means: Resampled means, shape ``(n_rules, n_resamples)``; a method may reorder them.
        weights: Number of times that each unit was drawn, shape ``(n_resamples, n_units)``.
    """

    deltas: Floats
    means: Floats
    weights: Weights
    units: Units

    @property
    def away(self) -> Floats:
        """Resampled mean minus the mean of the data, for each rule and draw; exactly 0 if only rounding differs."""
        away: Floats = self.means - self.deltas.mean(axis=-1, keepdims=True)
        away[np.abs(away) <= ROUNDING * np.abs(self.deltas).mean(axis=-1, keepdims=True)] = 0.0
        return away


def _percentile(block: Resampled, tail: float) -> tuple[Floats, Floats]:
    return quantiles(block.means, (tail, 1 - tail))


def _expanded(block: Resampled, tail: float) -> tuple[Floats, Floats]:
    """Return the percentile interval, expanded because it is too narrow in small samples; see `expanded_tail`."""
    tail = expanded_tail(tail, block.units.n_units)
    return quantiles(block.means, (tail, 1 - tail))


def expanded_tail(tail: float, n: int) -> float:
    """Return the share of draws beyond each end of an expanded percentile interval.

    Hesterberg (2015), "What teachers should know about the bootstrap", section 3.2: the plain percentile interval is
    too narrow in small samples, by the factor ``sqrt((n - 1) / n)`` and by its use of the normal quantile.

    Args:
        tail: The share in each tail, (1 - level) / 2.
        n: Number of units.
    """
    from scipy.special import ndtr, stdtrit

    return float(ndtr(math.sqrt(n / (n - 1)) * stdtrit(n - 1, tail))) if n > 1 else tail


def _bca(block: Resampled, tail: float) -> tuple[Floats, Floats]:
    """Return the bias-corrected and accelerated interval (Efron 1987; Efron and Tibshirani 1993, eq. 14.9-14.15)."""
    from scipy.special import ndtr, ndtri

    n_resamples = block.means.shape[-1]
    away = block.away
    below = (away < 0).mean(axis=-1) + (away == 0).mean(axis=-1) / 2
    bias = ndtri(np.clip(below, 0.5 / n_resamples, 1 - 0.5 / n_resamples))
    acceleration = _acceleration(block.units.sums(block.deltas), block.units)
    ordered = np.sort(block.means, axis=-1)
    low, high = (
        _quantile_of_each(ordered, ndtr(bias + _accelerated(bias + ndtri(level), acceleration)))
        for level in (tail, 1 - tail)
    )
    return low, high


def _acceleration(sums: Floats, units: Units) -> Floats:
    """Return the acceleration, from the skewness of the jackknife; 0 where nothing varies."""
    if units.n_units == 1:
        return np.zeros(len(sums))
    left_out = (sums.sum(axis=-1, keepdims=True) - sums) / (units.n_rows - units.sizes)
    spread = left_out.mean(axis=-1, keepdims=True) - left_out
    squares = (spread**2).sum(axis=-1)
    cubes, scale = (spread**3).sum(axis=-1), 6 * squares**1.5
    skewness: Floats = np.divide(cubes, scale, out=np.zeros(len(sums)), where=scale > 0)
    return skewness


def _accelerated(score: Floats, acceleration: Floats) -> Floats:
    """Return ``score / (1 - acceleration * score)``; infinite beyond the pole, where the correction is undefined."""
    rest = 1 - acceleration * score
    moved: Floats = np.divide(score, rest, out=np.copysign(np.inf, score), where=rest > 0)
    return moved


def _quantile_of_each(ordered: Floats, levels: Floats) -> Floats:
    """Return one quantile of each sorted row, at a level of its own, interpolated linearly as in `quantiles`."""
    exact = levels * (ordered.shape[-1] - 1)
    place = np.minimum(np.floor(exact).astype(np.int64), max(ordered.shape[-1] - 2, 0))
    following = np.minimum(place + 1, ordered.shape[-1] - 1)
    rows = np.arange(len(ordered))
    first: Floats = ordered[rows, place]
    values: Floats = first + (exact - place) * (ordered[rows, following] - first)
    return values


def _studentised(block: Resampled, tail: float) -> tuple[Floats, Floats]:
    """Return the bootstrap-t interval (Efron and Tibshirani 1993, section 12.5), with each draw's own standard error.

    A draw without variance lies infinitely many standard errors away; if one side has more such draws than the tail
    allows, the interval has an infinite end.
    """
    away, error, units = block.away, standard_errors(block.deltas, block.units), block.units
    if units.n_units == 1:
        return np.full(len(away), -np.inf), np.full(len(away), np.inf)
    errors = _resampled_errors(block, away)
    beyond = np.where(away == 0, 0.0, np.copysign(np.inf, away))
    scores = np.divide(away, errors, out=beyond, where=errors > 0)
    scores.sort(axis=-1)
    last = scores.shape[-1] - 1
    reach_high, reach_low = (
        np.multiply(_between(scores, share * last), error, out=np.zeros(len(error)), where=error > 0)
        for share in (tail, 1 - tail)
    )
    delta = block.deltas.mean(axis=-1)
    return delta - reach_low, delta - reach_high


def _resampled_errors(block: Resampled, away: Floats) -> Floats:
    """Return the standard error of the mean in each draw; 0 without variance.

    It is computed for all draws at once, by products of the weights with squared sums of units.
    """
    units, weights = block.units, block.weights
    centred = units.sums(block.deltas) - units.sizes * block.deltas.mean(axis=-1, keepdims=True)
    rows, moments = products(units.sizes, weights), products(centred**2, weights)
    if (
        units.codes is None
    ):  # each unit is one row, so the centred rows of a draw add up to its number of rows times its difference
        squares = moments - rows * away**2
    else:
        crossed = products(centred * units.sizes, weights)
        squares = moments - 2 * away * crossed + away**2 * products(units.sizes**2, weights)
    squares[squares <= 100 * ROUNDING * moments] = 0.0
    errors: Floats = np.sqrt(units.n_units / (units.n_units - 1) * squares) / rows
    return errors


def _between(ordered: Floats, exact: float) -> Floats:
    """Interpolate between two order statistics; the result is infinite if one of them is."""
    place = int(exact)
    first, second = ordered[:, place], ordered[:, min(place + 1, ordered.shape[-1] - 1)]
    finite = np.isfinite(first) & np.isfinite(second)
    step = np.subtract(second, first, out=np.zeros(len(first)), where=finite)
    return np.where(np.isinf(second) & (exact > place), second, first + (exact - place) * step)


INTERVALS: Mapping[str, Callable[[Resampled, float], tuple[Floats, Floats]]] = MappingProxyType(
    {"expanded": _expanded, "percentile": _percentile, "bca": _bca, "t": _studentised}
)
"""Methods of `paired_bootstrap`: each takes a block of resampled means and the share of each tail."""

DEFAULT_INTERVAL = "expanded"
"""The default method; it has nominal coverage from 60 normal or 100 sparse differences on (docs/results/coverage.md)."""


def paired_bootstrap(
    deltas: Floats,
    weights: Weights,
    *,
    clusters: Clusters = None,
    level: float = 0.95,
    method: str = DEFAULT_INTERVAL,
) -> Intervals:
    """Return mean differences with bootstrap intervals, for many rules at once, by a few matrix products.

    >>> import numpy as np
    >>> from suffice.evaluation.statistics import Resampling
    >>> deltas = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    >>> intervals = paired_bootstrap(deltas, Resampling().draws(["q1", "q2", "q3"]).weights)
    >>> intervals.low.tolist(), intervals.high.tolist()
    ([0.0, 0.0], [1.0, 0.0])

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        weights: Weights from `Resampling.draws`, shape ``(n_resamples, n_units)``.
        clusters: The unit of each row; None if each row is its own unit.
        level: Nominal coverage, in (0, 1).
        method: `expanded` (percentile, widened for small samples), `percentile`, `bca`, or `t` (studentised).  Without
            variance, all methods give ``[delta, delta]``; with a single unit, `t` is unbounded and the others are NaN;
            with a single draw, all are NaN.

    Raises:
        DataError: Shapes that do not fit, NaN or infinite differences, a level outside (0, 1), an unknown method.
    """
    if method not in INTERVALS:
        raise DataError(f"{method!r} is not a method of intervals; allowed: {', '.join(INTERVALS)}")
    check_level(level)
    deltas, units = paired_rows(deltas, clusters)
    low, high = np.empty(len(deltas)), np.empty(len(deltas))
    for rows, means in resampled_means(deltas, weights, units):
        block = Resampled(deltas=deltas[rows], means=means, weights=weights, units=units)
        low[rows], high[rows] = INTERVALS[method](block, (1 - level) / 2)
    if count_of(weights) == 1:
        low[:] = high[:] = np.nan
    return Intervals(
        delta=deltas.mean(axis=-1), low=low, high=high, level=level, n_resamples=count_of(weights), method=method
    )


def paired_t(deltas: Floats, *, clusters: Clusters = None, level: float = 0.95) -> Intervals:
    """Return mean differences with paired t intervals, which need no draws and are exact for normal differences.

    >>> import numpy as np
    >>> paired_t(np.array([[1.0, 0.0, -1.0]])).high.round(3).tolist()
    [2.484]

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        clusters: The unit of each row; the standard error is then that of a ratio, with (units - 1) degrees of freedom.
        level: Nominal coverage, in (0, 1).

    Raises:
        DataError: No rows, NaN or infinite differences, a level outside (0, 1).
    """
    from scipy.special import stdtrit

    check_level(level)
    deltas, units = paired_rows(deltas, clusters)
    delta = deltas.mean(axis=-1)
    if units.n_units == 1:
        reach = np.full(len(deltas), np.inf)
    else:
        reach = float(stdtrit(units.n_units - 1, (1 + level) / 2)) * standard_errors(deltas, units)
    return Intervals(delta=delta, low=delta - reach, high=delta + reach, level=level, n_resamples=0, method="paired_t")
