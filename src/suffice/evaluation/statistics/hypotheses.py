"""Tests of a mean paired difference of zero: sign flips, paired t, Wilcoxon; and Cohen's d_z.

All are two-sided.  For constant differences, p is 1 if they are 0; otherwise the t test gives 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import blocks
from suffice.evaluation.statistics.keyed import Keys, keyed_bits
from suffice.evaluation.statistics.rounding import ROUNDING
from suffice.evaluation.statistics.units import Clusters, paired_rows, standard_errors
from suffice.policy.rounds import Floats

_ENUMERABLE = 20
"""Most non-zero pairs whose sign patterns are enumerated: 2**20 sums take 8 MiB."""

_COUNTABLE = 50
"""Most distinct signed ranks whose sums are counted, as scipy's `wilcoxon` does: 2**50 sets are exact in doubles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SignFlip:
    """The result of a two-sided paired permutation test of a zero mean.

    Attributes:
        p: The p-value.
        test: `mcnemar` (all non-zero differences have one size: an exact binomial test), `sign_flip` (exact: every
            pattern of signs is enumerated), or `monte_carlo` (random patterns of signs).
        n_nonzero: Number of units whose difference is not zero.
        n_resamples: Number of random patterns; 0 if the test is exact.
    """

    p: float
    test: str
    n_nonzero: int
    n_resamples: int


def permutation_tests(
    deltas: Floats,
    *,
    n_resamples: int = 10_000,
    rng: np.random.Generator | int,
    clusters: Clusters = None,
    keys: Keys | None = None,
) -> list[SignFlip]:
    """Return the paired permutation test of each rule: exact where possible, otherwise with random signs.

    Under the hypothesis, each unit's difference could equally have the opposite sign (McNemar's hypothesis for binary
    outcomes; in general, symmetry).  Random signs are shared by all rules; their p-value counts the observed pattern
    too, ``(1 + as extreme) / (1 + n_resamples)``, so that it is never zero (Phipson and Smyth 2010).

    >>> [result] = permutation_tests([[1.0, 1.0, 0.0, 1.0]], rng=0)
    >>> result.p, result.test
    (0.25, 'mcnemar')

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        n_resamples: Random patterns of signs, >= 1.
        rng: A generator, or the seed of one; unused if every test is exact.
        clusters: The unit of each row; a unit's rows change sign together.
        keys: Keys of the units, in the order of their first rows; signs then depend on the seed and the names, and not
            on the order of the rows.  None = signs depend on the positions of the units.

    Raises:
        DataError: No rows, NaN or infinite differences, no resamples, or keys beside a generator.
    """
    deltas, units = paired_rows(deltas, clusters)
    if n_resamples < 1:
        raise DataError(f"a permutation test needs resamples, not {n_resamples!r}; allowed: >= 1")
    sums = units.sums(deltas)
    tests = [_exact(row) for row in sums]
    inexact = [position for position, test in enumerate(tests) if test is None]
    if keys is None:
        drawn = _signs_by_place(sums.shape[-1], np.random.default_rng(rng))
    elif isinstance(rng, np.random.Generator):
        raise DataError(f"signs that follow from names need a seed, not {rng!r}: give a whole number")
    else:
        drawn = _signs_by_name(keys, rng)
    p_values = iter(_random_signs(sums[inexact], n_resamples, drawn) if inexact else ())
    return [
        test
        if test is not None
        else SignFlip(
            p=next(p_values), test="monte_carlo", n_nonzero=int(np.count_nonzero(row)), n_resamples=n_resamples
        )
        for row, test in zip(sums, tests, strict=True)
    ]


def _exact(row: Floats) -> SignFlip | None:
    sizes = np.abs(row[row != 0])
    n = len(sizes)
    if n == 0 or sizes.max() - sizes.min() <= ROUNDING * sizes.max():
        return SignFlip(p=_binomial(int((row > 0).sum()), n), test="mcnemar", n_nonzero=n, n_resamples=0)
    if n <= _ENUMERABLE:
        return SignFlip(p=sign_flip_test(row), test="sign_flip", n_nonzero=n, n_resamples=0)
    return None


Signed = Callable[[Floats, int], Iterator[Floats]]
"""Yields the sums of rows under blocks of random signs, shape ``(n_rules, n_resamples_in_block)``."""


def _random_signs(sums: Floats, n_resamples: int, signed: Signed) -> list[float]:
    extreme = np.zeros(len(sums), dtype=np.int64)
    slack = ROUNDING * np.abs(sums).sum(axis=-1, keepdims=True)
    reached = np.abs(sums.sum(axis=-1, keepdims=True)) - slack
    for totals in signed(sums, n_resamples):
        extreme += (np.abs(totals) >= reached).sum(axis=-1)
    return [float(count) for count in (1 + extreme) / (1 + n_resamples)]


def _signs_by_place(n_units: int, rng: np.random.Generator) -> Signed:
    def signed(sums: Floats, n_resamples: int) -> Iterator[Floats]:
        for block in blocks(n_resamples, max(sums.shape)):
            yield sums @ (2.0 * rng.integers(0, 2, size=(block.stop - block.start, n_units)) - 1.0).T

    return signed


def _signs_by_name(keys: Keys, seed: int) -> Signed:
    def signed(sums: Floats, n_resamples: int) -> Iterator[Floats]:
        positive = np.zeros((len(sums), n_resamples))
        for units in blocks(len(keys), n_resamples):
            positive += sums[:, units] @ keyed_bits(keys[units], n_resamples, seed=seed).astype(np.float64)
        yield 2 * positive - sums.sum(axis=-1, keepdims=True)

    return signed


def sign_flip_test(differences: npt.ArrayLike) -> float:
    """Return the two-sided p-value of the exact sign-flip (paired permutation) test of a zero mean.

    Under the hypothesis, each difference could equally have the opposite sign; all ``2**k`` sign patterns of the k
    non-zero differences are enumerated.

    >>> sign_flip_test([1.0, 1.0, 0.0, 1.0])
    0.25

    Raises:
        DataError: More than 20 non-zero differences: too many to enumerate.
    """
    values = np.asarray(differences, dtype=np.float64).ravel()
    values = values[values != 0]
    k = len(values)
    if k > _ENUMERABLE:
        raise DataError(
            f"{k} non-zero pairs have 2**{k} sign patterns; the exact test takes at most {_ENUMERABLE}: "
            "permutation_tests draws them"
        )
    totals = np.zeros(1)
    for value in values:
        totals = np.concatenate([totals + value, totals - value])
    slack = ROUNDING * np.abs(values).sum()
    return float(np.mean(np.abs(totals) >= abs(values.sum()) - slack))


def _binomial(wins: int, n: int) -> float:
    """Return the two-sided p-value of `wins` heads in `n` tosses of a fair coin."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, n - wins), n, 0.5))) if n else 1.0


def paired_t_test(deltas: Floats, *, clusters: Clusters = None) -> Floats:
    """Return the two-sided p-value of each rule's paired t test, shape ``(n_rules,)``.

    >>> paired_t_test(np.array([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [0.1, 0.1, 0.1]])).round(3).tolist()
    [0.225, 1.0, 0.0]

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        clusters: The unit of each row; the standard error is then that of a ratio, with (units - 1) degrees of freedom.

    Returns:
        The p-values; 1 for a single unit, whose spread is unknown.

    Raises:
        DataError: No rows, NaN or infinite differences.
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
    hardly affects it, although it shifts the mean.  The distribution is enumerated for up to 20 non-zero differences
    (with ties), and computed exactly for up to 50 without ties, as in scipy; for more, the normal approximation with
    ties is used, without continuity correction.  Without non-zero differences, p is 1.

    >>> wilcoxon_test([0.5, 0.25, 0.0, 1.0])
    0.25

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        clusters: The unit of each row; the test then ranks the units' means.

    Raises:
        DataError: No rows, NaN or infinite differences.
    """
    from scipy.special import ndtr
    from scipy.stats import rankdata

    (row,), units = paired_rows(np.ravel(differences), clusters)
    means = units.sums(row) / units.sizes
    nonzero = means[means != 0]
    ranks = np.sign(nonzero) * rankdata(np.abs(nonzero))
    if len(ranks) <= _ENUMERABLE:
        return sign_flip_test(ranks)
    if len(ranks) <= _COUNTABLE and len(np.unique(np.abs(ranks))) == len(ranks):
        return _signed_rank_p(ranks)
    return float(2 * ndtr(-abs(ranks.sum()) / math.sqrt(float(ranks @ ranks))))


def _signed_rank_p(ranks: Floats) -> float:
    """Return the exact two-sided p-value of distinct signed ranks 1..n, shape ``(n,)``, with n at most 50.

    It counts, among the 2**n equally likely sets of positive ranks, those with a sum at least as extreme; the counts
    are integers below 2**53, so doubles are exact.
    """
    n = len(ranks)
    counts = np.ones(1)
    for rank in range(1, n + 1):
        counts = np.pad(counts, (0, rank)) + np.pad(counts, (rank, 0))
    positive = int(ranks[ranks > 0].sum())
    smaller = min(positive, n * (n + 1) // 2 - positive)
    return min(1.0, float(2 * counts[: smaller + 1].sum() / 2.0**n))


def cohens_d_z(differences: npt.ArrayLike, *, clusters: Clusters = None) -> float:
    """Return the mean difference over the pairs' standard deviation (Cohen 1988); NaN if that is zero.

    >>> round(cohens_d_z([1.0, 0.0, 2.0]), 3)
    1.0

    Args:
        differences: Rule minus baseline, shape ``(n_rows,)``, no NaN.
        clusters: The unit of each row; the standard deviation is then taken over units.

    Raises:
        DataError: No rows, NaN or infinite differences.
    """
    (row,), units = paired_rows(np.ravel(differences), clusters)
    error = float(standard_errors(row[None, :], units)[0])
    return float(row.mean()) / (error * math.sqrt(units.n_units)) if error > 0 else math.nan
