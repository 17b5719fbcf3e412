"""Confidence sequences: intervals for a mean that may drift, valid after every observation at once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.restarts import share
from suffice.policy.rounds import Floats

_NARROWEST_AT = 12.5
"""The default of `narrowest_at` in squares of the range: it suits 1,000 losses in [-1, 1] of which one in twenty is not 0."""
_NEWTON_STEPS = 60  # most steps of Newton's method, which needs about eight
_PRECISION = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceSequence:
    """A confidence sequence for the running mean of expectations, from observations in a known range.

    Given all earlier observations, observation i has an expectation, which may differ between observations.  After n
    observations, the interval is about the mean of the first n expectations.  With probability at least 1 - alpha, it
    contains this running mean after *every* observation: one may look at any time, as often as one likes, and stop for any
    reason.
    Observations need not be independent or identically distributed.  Earlier intervals concern other means, so do not
    intersect them.

    This is the empirical-Bernstein sequence (Howard, Ramdas, McAuliffe and Sekhon 2021, "Time-uniform, nonparametric,
    nonasymptotic confidence sequences", theorem 4) with the gamma-exponential mixture (proposition 9) for each end at
    alpha / 2.  Each observation is compared with a prediction: the mean of the earlier observations and of one more
    value in the middle of `predictions`.  Each end of the interval has a scale, which is the largest distance of an
    observation from its prediction on that side.  In the theorem the scale is the whole range.  The scale is smaller if
    predictions are confined, since the proof (lemma 4.1 of Fan et al. 2015) needs only one side.

    >>> import numpy as np
    >>> losses = np.tile([0.0, 0.0, 0.0, 1.0, 0.0, 0.0, 0.0, -1.0, 0.0, 0.0], 100)
    >>> sequence = ConfidenceSequence.start(-1.0, 1.0).observe(losses[:300]).observe(losses[300:])
    >>> sequence.n, round(float(sequence.low_end), 3), round(float(sequence.high_end), 3)
    (1000, -0.052, 0.052)

    Attributes:
        low: The smallest possible observation.
        high: The largest possible observation.
        alpha: Probability that any of the intervals misses.
        predictions: The range of predictions, which must be fixed beforehand.  The intervals are valid for any range; if
            the mean lies outside, they are only wider.
        narrowest_at: The sum of squares for which the width of the interval is optimised.
        n: Number of observations so far.
        total: The sum of the observations, any shape, with one sequence for each entry.
        squares: The sum of squared differences between observations and predictions, shape of `total`.
    """

    low: float
    high: float
    alpha: float
    predictions: tuple[float, float]
    narrowest_at: float
    n: int | npt.NDArray[np.int64]
    total: Floats
    squares: Floats

    @classmethod
    def start(
        cls,
        low: float,
        high: float,
        alpha: float = 0.05,
        *,
        predictions: tuple[float, float] | None = None,
        narrowest_at: float | None = None,
        shape: tuple[int, ...] = (),
    ) -> ConfidenceSequence:
        """Return the state before the first observation.

        Example: audited losses lie in [-1, 1] and are weighted by the rate of audits, A L / pi.  If pi is at least 0.1,
        the observations lie in [-10, 10], which are `low` and `high`.  Their expectations lie in [-1, 1], so give this
        range as `predictions`.

        Args:
            low: The smallest possible observation.
            high: The largest possible observation.
            alpha: Probability that any of the intervals misses, in (0, 1).
            predictions: The range in which the mean is expected, inside [low, high]; by default the whole range.
            narrowest_at: The sum of squares for which the width is optimised; by default 12.5 squares of the range.
            shape: Shape of many parallel sequences, for simulations.

        Raises:
            DataError: The range is empty or not finite, alpha is outside (0, 1), or `predictions` is outside the range.
        """
        if not (math.isfinite(low) and math.isfinite(high) and low < high):
            raise DataError(f"observations need a finite range with low < high, not [{low!r}, {high!r}]")
        if not 0 < alpha < 1:
            raise DataError(f"alpha must lie between 0 and 1, both excluded, not {alpha!r}: 0.05 is a sequence of 95 %")
        first, last = (low, high) if predictions is None else predictions
        if not low <= first <= last <= high:
            raise DataError(f"predictions {predictions!r} must lie in the range [{low:g}, {high:g}]")
        squares = _NARROWEST_AT * (high - low) ** 2 if narrowest_at is None else narrowest_at
        if not 0 < squares < math.inf:
            raise DataError(f"narrowest_at, a sum of squares, must be positive and finite, not {narrowest_at!r}")
        return cls(
            low=float(low),
            high=float(high),
            alpha=alpha,
            predictions=(float(first), float(last)),
            narrowest_at=squares,
            n=0,
            total=np.zeros(shape),
            squares=np.zeros(shape),
        )

    def observe(self, values: npt.ArrayLike) -> ConfidenceSequence:
        """Return the state after further observations.

        Args:
            values: Shape ``(*shape, n)``, in the order of the questions; this order must not depend on the values.

        Raises:
            DataError: A value is undefined or outside the range.
        """
        looks = self.looks(values)
        if not looks.total.shape[-1]:
            return self
        return replace(
            self,
            n=self.n + looks.total.shape[-1],
            total=looks.total[..., -1],
            squares=looks.squares[..., -1],
        )

    def looks(self, values: npt.ArrayLike) -> ConfidenceSequence:
        """Return the states after each of these observations, along a new last axis, for a plot.

        Args:
            values: See `observe`.

        Raises:
            DataError: See `observe`.
        """
        observations = np.asarray(values, dtype=np.float64)
        if not ((observations >= self.low) & (observations <= self.high)).all():  # also where undefined
            raise DataError(
                f"observations must lie in [{self.low:g}, {self.high:g}] and be defined: what is unknown counts at its worst"
            )
        n = self.n + np.arange(1, observations.shape[-1] + 1)
        # Earlier sums come first in each cumulated sum, so that splitting the observations changes no rounding.
        totals = np.cumsum(np.concatenate([self.total[..., None], observations], axis=-1), axis=-1)
        before = np.clip((sum(self.predictions) / 2 + totals[..., :-1]) / n, *self.predictions)
        errors = (observations - before) ** 2
        squares = np.cumsum(np.concatenate([self.squares[..., None], errors], axis=-1), axis=-1)
        return replace(self, n=n, total=totals[..., 1:], squares=squares[..., 1:])

    @property
    def mean(self) -> Floats:
        """The mean of the observations, shape of `total`; NaN before the first."""
        n = np.asarray(self.n, dtype=np.float64)
        mean: Floats = np.divide(self.total, n, out=np.full(self.total.shape, np.nan), where=n > 0)
        return mean

    @property
    def low_end(self) -> Floats:
        """The lower end for the mean of the expectations, shape of `total`; `low` before the first observation."""
        return self._end(-1, self.predictions[1] - self.low)

    @property
    def high_end(self) -> Floats:
        """The upper end, shape of `total`; `high` before the first observation."""
        return self._end(1, self.high - self.predictions[0])

    def _end(self, side: int, scale: float) -> Floats:
        rho = rho_of(self.narrowest_at, self.alpha)
        radius = mixture_bound(self.squares, self.alpha / 2, rho, scale)
        end = np.where(np.asarray(self.n) > 0, self.total + side * radius, side * np.inf) / np.maximum(self.n, 1)
        return np.asarray(np.clip(end, self.low, self.high), dtype=np.float64)


def window_sequences(
    values: npt.ArrayLike, lengths: Sequence[int], start: ConfidenceSequence
) -> list[ConfidenceSequence]:
    """Return a confidence sequence for each of several consecutive windows.

    The number of windows is unlimited, so they share alpha: the k-th gets ``alpha * share(k)``.  With probability at
    least 1 - alpha, every interval of every window, looked at at any time, contains the mean of the expectations in
    that window.  A later window has wider intervals than an early one, but only by the logarithm of its number: with an
    alpha of 5 %, the hundredth window is as wide as a single window with an alpha of 0.0016 %.

    >>> import numpy as np
    >>> start = ConfidenceSequence.start(0.0, 1.0)
    >>> [(window.n, round(float(window.high_end), 2)) for window in window_sequences(np.zeros(250), [100, 150, 0], start)]
    [(100, 0.07), (150, 0.06), (0, 1.0)]

    Args:
        values: Observations from the first one on, shape ``(*shape, n)``.
        lengths: Number of observations in each window, which must not depend on their values.
        start: A sequence before its first observation, with the alpha of all windows together.

    Raises:
        DataError: `start` already has observations, the lengths do not sum to n, or an observation is invalid, see
            `ConfidenceSequence.observe`.
    """
    observations = np.asarray(values, dtype=np.float64)
    if np.any(start.n):
        raise DataError("windows begin with a sequence without observations")
    if min(lengths, default=0) < 0 or sum(lengths) != observations.shape[-1]:
        raise DataError(
            f"the windows have {sum(lengths)} of {observations.shape[-1]} observations: each must be in one"
        )
    ends = np.cumsum([0, *lengths])
    return [
        replace(start, alpha=start.alpha * float(share(number))).observe(observations[..., first:last])
        for number, (first, last) in enumerate(pairwise(ends), 1)
    ]


def rho_of(squares: float, alpha: float) -> float:
    """Return the parameter rho that makes the interval (alpha / 2 for each end) narrowest for a given sum of squares.

    Source: Howard et al., section 3.5.
    """
    log = 2 * math.log(1 / alpha)
    return squares / (log + math.log1p(log))


def mixture_bound(squares: Floats, alpha: float, rho: float, scale: float) -> Floats:
    """Return a bound on the sums of observations minus expectations.

    The probability that the sums ever exceed the bound is at most alpha.

    The bound is the root of ``log_mixture = log(1 / alpha)``.  The function is convex and increasing, so Newton's method
    from above approaches the root from above: if it ends early, the bound is too wide, never too narrow.

    Args:
        squares: Sums of squares so far, any shape.
        alpha: Probability, in (0, 1).
        rho: Parameter of the mixture.
        scale: The largest distance by which an observation can fall below its prediction.
    """
    target = math.log(1 / alpha)
    nearly = target + 0.5 * np.log1p(squares / rho)
    sums = scale * nearly + np.sqrt(2 * (squares + rho) * nearly)
    value, slope = log_mixture(sums, squares, rho, scale)
    while (value < target).any():
        sums = np.where(value < target, 2 * sums, sums)
        value, slope = log_mixture(sums, squares, rho, scale)
    for _ in range(_NEWTON_STEPS):
        step = (value - target) / slope
        if (step <= _PRECISION * sums).all():
            break
        sums = sums - np.maximum(step, 0.0)
        value, slope = log_mixture(sums, squares, rho, scale)
    return np.asarray(sums, dtype=np.float64)


def log_mixture(sums: Floats, squares: Floats, rho: float, scale: float) -> tuple[Floats, Floats]:
    """Return the logarithm of the gamma-exponential mixture, and its derivative by the sum (Howard et al., equation 26).

    Args:
        sums: Sums of observations minus their expectations, at least 0, any shape.
        squares: Sums of squared differences between observations and predictions, shape of `sums`.
        rho: Parameter of the mixture.
        scale: The largest distance by which an observation can fall below its prediction.
    """
    from scipy.special import gammainc, gammaln

    start, shape, rate = rho / scale**2, (squares + rho) / scale**2, (scale * sums + squares + rho) / scale**2
    constant = start * math.log(start) - gammaln(start) - math.log(gammainc(start, start))
    lower = gammainc(shape, rate)  # at least about one half
    value = constant + gammaln(shape) + np.log(lower) - shape * np.log(rate) + rate - start
    density = np.exp((shape - 1) * np.log(rate) - rate - gammaln(shape))
    return value, (density / lower - shape / rate + 1) / scale
