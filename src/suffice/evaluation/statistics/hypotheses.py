"""Two-sided permutation tests of a mean paired difference of zero, by sign flips; and Cohen's d_z."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.bootstrap import blocks
from suffice.evaluation.statistics.keyed import Keys, keyed_bits
from suffice.evaluation.statistics.units import ROUNDING, Clusters, paired_rows, standard_errors
from suffice.policy.rounds import Floats

ENUMERABLE = 20
"""Most non-zero pairs whose sign patterns are enumerated: 2**20 sums take 8 MiB."""


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
    outcomes; in general, symmetry).  Random signs are shared by all rules.  A p-value from random signs also counts the
    observed pattern, ``(1 + as extreme) / (1 + n_resamples)``, so that it is never zero (Phipson and Smyth 2010).

    >>> [result] = permutation_tests([[1.0, 1.0, 0.0, 1.0]], rng=0)
    >>> result.p, result.test
    (0.25, 'mcnemar')

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        n_resamples: Random patterns of signs, >= 1.
        rng: A generator, or the seed of one; unused if every test is exact.
        clusters: The unit of each row; a unit's rows change sign together.
        keys: Keys of the units, in the order of their first rows; signs then depend on the seed and the keys, and not
            on the order of the rows.  None = signs depend on the positions of the units.

    Raises:
        DataError: No rows, NaN or infinite differences, no resamples, or keys together with a generator.
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
    if n <= ENUMERABLE:
        return SignFlip(p=sign_flip_test(row), test="sign_flip", n_nonzero=n, n_resamples=0)
    return None


Signed = Callable[[Floats, int], Iterator[Floats]]
"""Function that yields the sums of rows with random signs, in blocks of shape ``(n_rules, n_resamples_in_block)``."""


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
    if k > ENUMERABLE:
        raise DataError(
            f"{k} non-zero pairs have 2**{k} sign patterns; the exact test takes at most {ENUMERABLE}: "
            "permutation_tests draws them"
        )
    reached = abs(values.sum()) - ROUNDING * np.abs(values).sum()
    if reached <= 0:
        return 1.0
    # Every total is a sum of one half of the values plus one of the other, and sorted sums need no comparison each.
    first, second = _signed_sums(values[: k // 2]), np.sort(_signed_sums(values[k // 2 :]))
    below = np.searchsorted(second, -reached - first, side="right").sum()
    above = (len(second) - np.searchsorted(second, reached - first, side="left")).sum()
    return float(below + above) / 2.0**k


def _signed_sums(values: Floats) -> Floats:
    totals = np.zeros(1)
    for value in values:
        totals = np.concatenate([totals + value, totals - value])
    return totals


def _binomial(wins: int, n: int) -> float:
    """Return the two-sided p-value of `wins` heads in `n` tosses of a fair coin."""
    from scipy.special import bdtr

    return min(1.0, 2 * float(bdtr(min(wins, n - wins), n, 0.5))) if n else 1.0


def cohens_d_z(differences: npt.ArrayLike, *, clusters: Clusters = None) -> float:
    """Return the mean difference divided by the standard deviation of the pairs (Cohen 1988); NaN if that is zero.

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
