"""Tests of paired differences against a margin: non-inferiority (one-sided) and equivalence (two-sided)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.results import jsonable
from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import Weights, quantiles, resampled_means
from suffice.evaluation.statistics.hypotheses import cohens_d_z
from suffice.evaluation.statistics.paired import FEW_NONZERO, few_warning
from suffice.evaluation.statistics.pvalues import p_of_stakes, stakes_on
from suffice.evaluation.statistics.units import Clusters, Units, check_level, hash_order, paired_rows, standard_errors
from suffice.policy.rounds import Floats

_ORDER_SALT = "margin, order:"
_HALVINGS = 20
"""Number of bisection steps for the smallest margin, which is then exact to a millionth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginTest:
    """A test of paired differences against a margin: one-sided (non-inferiority) or two-sided (equivalence).

    Papers publish the bounds and p-values of paired t and bootstrap, which are too optimistic if few pairs differ.
    `shown` depends only on an exact test, which bets on the means of the units, as for a certificate.  This test is valid
    for every distribution of differences in [-1, 1] and every number of questions.  A few pairs without any difference
    show nothing.

    Attributes:
        kind: `non_inferiority` or `equivalence`.
        margin: The largest loss (for equivalence also gain) that does not matter, in the unit of the metric.
        delta: Mean difference.
        d_z: Mean difference divided by the standard deviation of the pairs (Cohen); NaN where that is zero.
        level: One-sided confidence of each bound.
        low: Lower bound of the paired t method; equals `delta` where the pairs do not vary.
        high: Upper bound of the paired t method; +inf for non-inferiority, which has none.
        p: p-value of the paired t method, the larger of the two for equivalence; 0 or 1 where the pairs do not vary.
        passed: Whether the paired t bounds lie inside the margin.
        low_bootstrap: Lower bound, percentile bootstrap.
        high_bootstrap: Upper bound, percentile bootstrap; +inf for non-inferiority.
        passed_bootstrap: Whether the bootstrap's bounds lie inside the margin.
        smallest_margin: The smallest margin at which both methods pass; +inf if there is none.
        p_exact: p-value of the exact test, the larger of the two for equivalence.  NaN if a difference lies outside
            [-1, 1] or the margin outside [0, 1); nothing is shown then.
        shown: Whether the exact test shows non-inferiority (or equivalence): `p_exact` is at most 1 - `level`.
        shown_above: The smallest margin at which `shown` is True; +inf if there is none.
        n: Number of rows.
        n_clusters: Number of units.
        warning: The limits of the test, in words; empty if there are none.
    """

    kind: str
    margin: float
    delta: float
    d_z: float
    level: float
    low: float
    high: float
    p: float
    passed: bool
    low_bootstrap: float
    high_bootstrap: float
    passed_bootstrap: bool
    smallest_margin: float
    p_exact: float
    shown: bool
    shown_above: float
    n: int
    n_clusters: int
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN and infinity become None."""
        result: dict[str, Any] = jsonable(asdict(self))
        return result


def both_margin_tests(
    differences: npt.ArrayLike,
    margins: Sequence[float],
    *,
    weights: Weights,
    clusters: Clusters = None,
    level: float = 0.95,
    order: npt.NDArray[np.int64] | None = None,
) -> tuple[tuple[MarginTest, MarginTest], ...]:
    """Test non-inferiority and equivalence at each margin, by paired t, bootstrap and betting.

    Non-inferiority compares one lower bound with ``-margin``.  With paired t, this is the test that TASR publishes as
    "TOST".  Equivalence consists of the two one-sided tests of Schuirmann (1987).

    >>> from suffice.evaluation.statistics import Resampling
    >>> [(test, _)] = both_margin_tests([0.0, 0.0, 0.0], [0.02], weights=Resampling().draws("abc").weights)
    >>> test.passed, test.p, test.d_z  # as published: three ties pass
    (True, 0.0, nan)
    >>> test.shown, round(test.p_exact, 2)  # which three ties cannot show
    (False, 0.94)

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        margins: The largest losses (or differences) that do not matter, >= 0.
        weights: Weights from `Resampling.draws`, shared with the intervals.
        clusters: The unit of each row.
        level: One-sided confidence; the two bounds of equivalence make an interval of level ``2 * level - 1``.
        order: The order in which the exact test bets on the units, see `bets_in_order`; None = by the hashes of
            `clusters`, or of row numbers.

    Raises:
        DataError: A negative margin, NaN differences, a level outside (0, 1).
    """
    check_level(level)
    (row,), units = paired_rows(np.ravel(differences), clusters)
    means = np.concatenate([block for _, block in resampled_means(row[None, :], weights, units)])
    resampled = tuple(float(bound[0]) for bound in quantiles(means, (1 - level, level)))
    exact = _Betting.on(row, units, bets_in_order(clusters, len(row)) if order is None else order, level)
    return tuple(
        (
            _margin_test("non_inferiority", row, units, resampled, exact, margin=margin, clusters=clusters),
            _margin_test("equivalence", row, units, resampled, exact, margin=margin, clusters=clusters),
        )
        for margin in margins
    )


def bets_in_order(names: Clusters, n_rows: int) -> npt.NDArray[np.int64]:
    """Return the order in which an exact test bets on the units: by the hashes of their names.

    Args:
        names: The name of each row's unit; None = each row is its own unit, named by its number.
        n_rows: Number of rows.
    """
    return hash_order(list(range(n_rows) if names is None else names), salt=_ORDER_SALT)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Betting:
    """The exact test: betting on the mean loss of each unit, in an order that does not depend on the losses.

    Attributes:
        losses: The mean losses of the units in the first row, and their mean gains in the second, both rescaled to
            [0, 1]; shape ``(2, n_units)``.  Empty if a difference lies outside [-1, 1]; nothing can be shown then.
        stakes: The stakes on `losses`, same shape, see `stakes_on`.
        shown_above: The smallest margins at which non-inferiority, and equivalence, are shown; +inf if there is none.
    """

    losses: Floats
    stakes: Floats
    level: float
    shown_above: tuple[float, float] = (math.inf, math.inf)

    @property
    def delta(self) -> float:
        """The risk of a false proof, 1 - `level`."""
        return round(1 - self.level, 12)  # rounded, because 1 - 0.95 is slightly more than 0.05

    @classmethod
    def on(cls, row: Floats, units: Units, order: npt.NDArray[np.int64], level: float) -> _Betting:
        """Build the test for differences of shape ``(n_rows,)``, which bets on the units in this order."""
        losses = -units.sums(row) / units.sizes
        if np.abs(losses).max() > 1:
            return cls(losses=np.empty(0), stakes=np.empty(0), level=level)
        sides = (np.stack([losses[order], -losses[order]]) + 1) / 2
        betting = cls(losses=sides, stakes=stakes_on(sides, round(1 - level, 12)), level=level)
        loss, gain = betting._smallest(0), betting._smallest(1)
        return replace(betting, shown_above=(loss, max(loss, gain)))

    def p(self, margin: float, *, both: bool) -> float:
        """Return the p-value at a margin; NaN if it is undefined there."""
        if not self.losses.size or not 0 <= margin < 1:
            return math.nan
        return max(self._p(side, margin) for side in range(2 if both else 1))

    def _p(self, side: int, margin: float) -> float:
        """Return the p-value of one side: 0 for the losses, 1 for the gains."""
        return float(p_of_stakes(self.losses[side], self.stakes[side], (margin + 1) / 2))

    def _smallest(self, side: int) -> float:
        """Return the smallest margin that is shown on one side, by bisection: the wealth grows with the margin."""
        low, high = 0.0, 1.0
        if self._p(side, low) <= self.delta:
            return 0.0
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            low, high = (low, middle) if self._p(side, middle) <= self.delta else (middle, high)
        return high if high < 1 else math.inf


def _margin_test(
    kind: str,
    row: Floats,
    units: Units,
    resampled: tuple[float, ...],
    exact: _Betting,
    *,
    margin: float,
    clusters: Clusters,
) -> MarginTest:
    if not margin >= 0:
        raise DataError(f"a margin is a size >= 0, not {margin!r}: write 0.02 for a loss of two points")
    both, level = kind == "equivalence", exact.level
    p_exact = exact.p(margin, both=both)
    delta = float(row.mean())
    error = float(standard_errors(row[None, :], units)[0])
    low, high, p = _t_bounds(delta, error, margin, units.n_units - 1, level)
    low_b, high_b = resampled
    nonzero = int(np.count_nonzero(units.sums(row)))
    return MarginTest(
        kind=kind,
        margin=float(margin),
        delta=delta,
        d_z=cohens_d_z(row, clusters=clusters),
        level=level,
        low=low,
        high=high if both else math.inf,
        p=max(p) if both else p[0],
        passed=low > -margin and (not both or high < margin),
        low_bootstrap=low_b,
        high_bootstrap=high_b if both else math.inf,
        passed_bootstrap=low_b > -margin and (not both or high_b < margin),
        smallest_margin=max(0.0, -low, -low_b, *((high, high_b) if both else ())),
        p_exact=p_exact,
        shown=p_exact <= exact.delta,
        shown_above=exact.shown_above[both],
        n=len(row),
        n_clusters=units.n_units,
        warning=few_warning(nonzero, units.n_units) if nonzero < FEW_NONZERO else "",
    )


def _t_bounds(
    delta: float, error: float, margin: float, freedom: int, level: float
) -> tuple[float, float, tuple[float, float]]:
    if math.isnan(error):  # one unit: nothing is known about its spread
        return -math.inf, math.inf, (1.0, 1.0)
    if error == 0:
        return delta, delta, (0.0 if delta > -margin else 1.0, 0.0 if delta < margin else 1.0)
    from scipy.special import stdtr, stdtrit

    reach = float(stdtrit(freedom, level)) * error
    p_low = float(stdtr(freedom, -(delta + margin) / error))
    p_high = float(stdtr(freedom, (delta - margin) / error))
    return delta - reach, delta + reach, (p_low, p_high)
