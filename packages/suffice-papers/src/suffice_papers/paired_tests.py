"""Two-sided paired tests that papers report: the paired t test and Wilcoxon's signed-rank test.

If all differences are 0, p is 1.  If all are equal but not 0, the t test returns 0.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from suffice.evaluation.statistics import Clusters, sign_flip_test
from suffice.evaluation.statistics.hypotheses import ENUMERABLE
from suffice.evaluation.statistics.units import paired_rows, standard_errors
from suffice.policy.rounds import Floats

_COUNTABLE = 50
"""Most distinct signed ranks whose sums are counted, as scipy's `wilcoxon` does: 2**50 sets are exact in doubles."""


def paired_t_test(deltas: Floats, *, clusters: Clusters = None) -> Floats:
    """Return the two-sided p-value of each rule's paired t test, shape ``(n_rules,)``.

    >>> paired_t_test(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.1, 0.1, 0.1]])).round(3).tolist()
    [0.225, 1.0, 0.0]

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        clusters: The resampling unit of each row.  The standard error is then that of a ratio, with (units - 1) degrees
            of freedom.

    Returns:
        The p-values; 1 for a single unit, whose spread is unknown.

    Raises:
        DataError: There are no rows, or a difference is NaN or infinite.
    """
    from scipy.special import stdtr

    deltas, units = paired_rows(deltas, clusters)
    if units.n_units == 1:
        return np.ones(len(deltas))
    delta, error = np.abs(deltas.mean(axis=-1)), standard_errors(deltas, units)
    beyond = np.where(delta == 0, 0.0, np.inf)
    p: Floats = 2 * stdtr(units.n_units - 1, -np.divide(delta, error, out=beyond, where=error > 0))
    return p


def wilcoxon_test(differences: npt.ArrayLike, *, clusters: Clusters = None) -> float:
    """Return the two-sided p-value of Wilcoxon's signed-rank test; zeros are left out (Wilcoxon 1945).

    The test uses ranks to decide whether the non-zero differences are symmetric about zero, so a single large loss
    hardly affects it, although it shifts the mean. With ties, the distribution is exact for up to 20 non-zero
    differences, by enumeration. Without ties, it is exact for up to 50, as in scipy. For more differences, the normal
    approximation with a correction for ties is used, without continuity correction. Without non-zero differences, p is
    1.

    >>> wilcoxon_test([0.5, 0.25, 0.0, 1.0])
    0.25

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        clusters: The unit of each row; the test then ranks the means of the units.

    Raises:
        DataError: There are no rows, or a difference is NaN or infinite.
    """
    from scipy.special import ndtr
    from scipy.stats import rankdata

    (row,), units = paired_rows(np.ravel(differences), clusters)
    means = units.sums(row) / units.sizes
    nonzero = means[means != 0]
    ranks = np.sign(nonzero) * rankdata(np.abs(nonzero))
    if len(ranks) <= ENUMERABLE:
        return sign_flip_test(ranks)
    if len(ranks) <= _COUNTABLE and len(np.unique(np.abs(ranks))) == len(ranks):
        return _signed_rank_p(ranks)
    return float(2 * ndtr(-abs(ranks.sum()) / math.sqrt(float(ranks @ ranks))))


def _signed_rank_p(ranks: Floats) -> float:
    """Return the exact two-sided p-value of n distinct signed ranks from 1 to n, shape ``(n,)``, with n at most 50.

    The function counts the sets of positive ranks whose sum is at least as extreme, among 2**n equally likely sets. The
    counts are integers below 2**53, so doubles are exact.
    """
    n = len(ranks)
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    positive = int(ranks[ranks > 0].sum())
    smaller = min(positive, n * (n + 1) // 2 - positive)
    return min(1.0, float(2 * counts[: smaller + 1].sum() / 2.0**n))
