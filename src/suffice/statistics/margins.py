"""Tests of paired differences against a margin: non-inferiority (one side) and equivalence (both sides)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.rounds import Floats
from suffice.statistics.bootstrap import quantiles, resampled_means
from suffice.statistics.hypotheses import cohens_d_z
from suffice.statistics.paired import FEW_NONZERO, few_warning, json_ready
from suffice.statistics.units import Clusters, Units, check_level, paired_rows, standard_errors

__all__ = ["MarginTest", "both_margin_tests", "equivalence", "non_inferiority"]


@dataclass(frozen=True, slots=True, kw_only=True)
class MarginTest:
    """A test of paired differences against a margin: one-sided (non-inferiority) or both sides (equivalence).

    Attributes:
        kind: `non_inferiority` or `equivalence`.
        margin: The largest loss (and for equivalence gain) that does not matter, in the unit of the metric.
        delta: Mean difference.
        d_z: Mean difference over the standard deviation of the pairs (Cohen); NaN where that is zero.
        level: One-sided confidence of each bound.
        low: Lower bound of the paired t method; equals `delta` where the pairs do not vary.
        high: Upper bound of the paired t method; +inf for non-inferiority, which has none.
        p: p-value of the paired t method, the larger of the two for equivalence; 0 or 1 where the pairs do not vary.
        passed: Whether the paired t bounds lie inside the margin.
        low_bootstrap: Lower bound, percentile bootstrap.
        high_bootstrap: Upper bound, percentile bootstrap; +inf for non-inferiority.
        passed_bootstrap: Whether the bootstrap's bounds lie inside the margin.
        smallest_margin: It passes by both methods at every margin above this one, and at none below; +inf if at none.
        n: Rows.
        n_clusters: Units.
        warning: What limits the test; empty if nothing does.
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
    n: int
    n_clusters: int
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN and infinity become None."""
        return json_ready(asdict(self))


def non_inferiority(
    differences: npt.ArrayLike,
    margin: float,
    *,
    weights: Floats,
    clusters: Clusters = None,
    level: float = 0.95,
) -> MarginTest:
    """Test whether a rule loses less than `margin`: one lower bound against ``-margin``, by paired t and bootstrap.

    The column that TASR publishes as "TOST" is this one-sided test.

    >>> from suffice.statistics.bootstrap import bootstrap_weights
    >>> test = non_inferiority([0.0, 0.0, 0.0], 0.02, weights=bootstrap_weights(3, 10, rng=0))
    >>> test.passed, test.p, test.d_z
    (True, 0.0, nan)

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        margin: The largest loss that does not matter, >= 0.
        weights: From `bootstrap_weights`, shared with the intervals.
        clusters: The unit of each row.
        level: One-sided confidence.

    Raises:
        DataError: A negative margin, NaN differences, a level outside (0, 1).
    """
    return both_margin_tests(differences, [margin], weights=weights, clusters=clusters, level=level)[0][0]


def equivalence(
    differences: npt.ArrayLike,
    margin: float,
    *,
    weights: Floats,
    clusters: Clusters = None,
    level: float = 0.95,
) -> MarginTest:
    """Test whether a rule differs by less than `margin` either way: two one-sided tests (TOST, Schuirmann 1987).

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        margin: The largest difference that does not matter, >= 0.
        weights: From `bootstrap_weights`, shared with the intervals.
        clusters: The unit of each row.
        level: Confidence of each side; the two bounds make an interval of level ``2 * level - 1``.

    Raises:
        DataError: A negative margin, NaN differences, a level outside (0, 1).
    """
    return both_margin_tests(differences, [margin], weights=weights, clusters=clusters, level=level)[0][1]


def both_margin_tests(
    differences: npt.ArrayLike,
    margins: Sequence[float],
    *,
    weights: Floats,
    clusters: Clusters = None,
    level: float = 0.95,
) -> tuple[tuple[MarginTest, MarginTest], ...]:
    """Return `non_inferiority` and `equivalence` at each margin, on the same resampled means."""
    check_level(level)
    (row,), units = paired_rows(np.ravel(differences), clusters)
    means = np.concatenate([block for _, block in resampled_means(row[None, :], weights, units)])
    resampled = tuple(float(bound[0]) for bound in quantiles(means, (1 - level, level)))
    return tuple(
        (
            _margin_test("non_inferiority", row, units, resampled, margin=margin, clusters=clusters, level=level),
            _margin_test("equivalence", row, units, resampled, margin=margin, clusters=clusters, level=level),
        )
        for margin in margins
    )


def _margin_test(
    kind: str,
    row: Floats,
    units: Units,
    resampled: tuple[float, ...],
    *,
    margin: float,
    clusters: Clusters,
    level: float,
) -> MarginTest:
    if not margin >= 0:
        raise DataError(f"a margin is a size >= 0, not {margin!r}: write 0.02 for a loss of two points")
    both = kind == "equivalence"
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
