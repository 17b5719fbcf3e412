"""Test a family of rules by the largest of their statistics; the p-values and bounds hold for all rules together."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import Weights, blocks, check_weights, count_of, products
from suffice.evaluation.statistics.units import Clusters, Units, check_level, paired_rows, standard_errors
from suffice.policy.rounds import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxStatistic:
    """Tests of all rules of a family against one baseline, corrected together.

    Arrays have shape ``(n_rules,)``.

    Attributes:
        delta: Mean difference, in the unit of the metric.
        error: Standard error of the difference; 0 without variance, NaN for a single unit.
        low: Lower bounds that hold for all rules at once with confidence `level`, and therefore also for a rule that is
            selected afterwards.
        p: One-sided p-values of the hypothesis "no better than the baseline", adjusted in a single step.
        p_step_down: The p-values adjusted by the step-down procedure: never larger than `p`, but without matching
            bounds.
        critical: The number of standard errors between `delta` and `low`.
        level: Simultaneous confidence.
        n_resamples: Number of draws.
    """

    delta: Floats
    error: Floats
    low: Floats
    p: Floats
    p_step_down: Floats
    critical: float
    level: float
    n_resamples: int


def max_statistic(deltas: Floats, weights: Weights, *, clusters: Clusters = None, level: float = 0.95) -> MaxStatistic:
    """Test every rule of a family at once by the largest of their statistics on shared draws.

    From each resampled mean, the estimate is subtracted, and the result is divided by the rule's standard error.  The
    largest value over the rules shows how the best rule would look if no rule had an effect (Westfall and Young 1993;
    Romano and Wolf 2005, algorithms 3.1 and 4.1).  Unlike Holm's correction, this one accounts for similar rules: a
    rule that stops like another rule adds no penalty.  For losses ("no worse by more than a margin") add the margin to
    `deltas`; to test the opposite side, change the sign of `deltas`.

    A rule whose differences do not vary is not resampled: its p-value is 0 if it is better, else 1.  As with any
    bootstrap, the result is approximate, and poor if few pairs differ.

    >>> from suffice.evaluation.statistics import Resampling
    >>> rng = np.random.default_rng(0)
    >>> deltas = rng.normal([[0.0], [0.0], [1.0]], 1.0, size=(3, 50))
    >>> result = max_statistic(deltas, Resampling(n_resamples=500).draws(range(50)).weights)
    >>> (result.low > 0).tolist(), (result.p < 0.05).tolist()
    ([False, False, True], [False, False, True])

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        weights: Weights from `Resampling.draws`, shape ``(n_resamples, n_units)``.
        clusters: The unit of each row.
        level: Simultaneous confidence, in (0, 1).

    Raises:
        DataError: There are no rules, the shapes do not fit, a difference is NaN or infinite, or the level is outside
            (0, 1).
    """
    if len(deltas) == 0:
        raise DataError("no rules to compare: a family has at least one")
    check_level(level)
    deltas, units = paired_rows(deltas, clusters)
    check_weights(weights, units)
    delta = deltas.mean(axis=-1)
    error = np.concatenate([standard_errors(deltas[block], units) for block in blocks(*deltas.shape)])
    varies = np.flatnonzero(error > 0)
    scores = delta[varies] / error[varies]
    order = varies[np.argsort(scores, kind="stable")]
    exceeded, largest = _running_maxima(deltas, order, delta, error, weights=weights, units=units)

    decided = np.where(np.isnan(error) | (delta <= 0), 1.0, 0.0)
    p, p_step_down = decided.copy(), decided.copy()
    n_below = np.searchsorted(np.sort(largest), scores, side="left")
    p[varies] = (1 + count_of(weights) - n_below) / (1 + count_of(weights))
    # Down from the best rule, no p-value may be smaller than that of a better one.
    p_step_down[order] = np.maximum.accumulate(((1 + exceeded) / (1 + count_of(weights)))[::-1])[::-1]
    critical = float(np.quantile(largest, level)) if len(varies) else 0.0
    low = np.where(np.isnan(error), -np.inf, delta - critical * np.nan_to_num(error))
    return MaxStatistic(
        delta=delta,
        error=error,
        low=low,
        p=p,
        p_step_down=p_step_down,
        critical=critical,
        level=level,
        n_resamples=count_of(weights),
    )


def _running_maxima(
    deltas: Floats, order: npt.NDArray[np.int64], delta: Floats, error: Floats, *, weights: Weights, units: Units
) -> tuple[npt.NDArray[np.int64], Floats]:
    """Count, for each rule, the draws in which this rule or a worse one reaches the rule's score.

    Also return the largest score of each draw.  Rules are processed in blocks in the order of their scores, so that
    only the running maximum over worse rules is kept in memory.
    """
    exceeded = np.zeros(len(order), dtype=np.int64)
    largest = np.full(count_of(weights), -np.inf)
    rows = products(units.sizes, weights)
    for block in blocks(len(order), count_of(weights)):
        rules = order[block]
        scale = error[rules, None]
        sums = units.sums((deltas[rules] - delta[rules, None]) / scale)
        scores = products(sums, weights)
        scores /= rows
        np.maximum(scores[0], largest, out=scores[0])
        np.maximum.accumulate(scores, axis=0, out=scores)
        exceeded[block] = (scores >= (delta[rules] / error[rules])[:, None]).sum(axis=-1)
        largest = scores[-1].copy()
    return exceeded, largest
