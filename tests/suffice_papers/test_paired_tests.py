"""Paired t and Wilcoxon's test, against scipy and statsmodels."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats
from statsmodels.regression.linear_model import OLS

from suffice.errors import DataError
from suffice.evaluation.statistics import sign_flip_test
from suffice_papers.paired_tests import paired_t_test, wilcoxon_test


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(1.0, 1.0, n) - 0.8


def quarters(n: int, seed: int, zeros: float) -> np.ndarray:
    """Return sparse differences whose sums are exact."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < zeros, 0.0, rng.integers(-4, 5, n) / 4)


def test_the_paired_t_test_equals_scipys():
    rows = np.stack([skewed(50, seed) for seed in range(3)])
    assert paired_t_test(rows).tolist() == pytest.approx(scipy.stats.ttest_1samp(rows, 0.0, axis=1).pvalue, abs=1e-12)
    assert paired_t_test(np.array([[0.0, 0.0], [0.5, 0.5]])).tolist() == [1.0, 0.0]
    assert paired_t_test(np.array([[0.5]])).tolist() == [1.0]


def test_the_paired_t_test_of_clusters_has_the_robust_error_of_statsmodels():
    row, clusters = skewed(80, 3), np.random.default_rng(4).integers(0, 20, 80)
    peer = OLS(row, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    assert paired_t_test(row, clusters=clusters)[0] == pytest.approx(peer.pvalues[0], abs=1e-12)


@pytest.mark.parametrize("n", [1, 2, 20, 21, 32, 49, 50, 51, 60])
@pytest.mark.parametrize("shift", [0.0, 0.4, 3.0])
def test_wilcoxon_without_ties_is_exact_to_50_pairs_as_scipys(n, shift):
    for seed in range(3):
        row = np.random.default_rng([n, seed]).normal(shift, 1.0, n)
        assert len(np.unique(np.abs(row))) == n
        method = "exact" if n <= 50 else "asymptotic"
        for other in (row, np.append(row, [0.0, 0.0])):
            assert wilcoxon_test(other) == pytest.approx(scipy.stats.wilcoxon(row, method=method).pvalue, rel=1e-9)


def test_wilcoxon_with_ties_is_enumerated_to_20_pairs_and_approximated_beyond():
    tied = quarters(60, 1, 0.0)
    tied = tied[tied != 0][:30]
    assert len(tied) == 30
    peer = scipy.stats.wilcoxon(tied, method="asymptotic", zero_method="wilcox", correction=False)
    assert wilcoxon_test(tied) == pytest.approx(peer.pvalue, rel=1e-9)


def test_wilcoxon_equals_scipys_exact_and_asymptotic_and_leaves_zeros_out():
    for seed in range(4):
        row = skewed(15, seed)
        assert wilcoxon_test(row) == pytest.approx(scipy.stats.wilcoxon(row, method="exact").pvalue, abs=1e-12)
        long = quarters(120, seed, 0.5)
        peer = scipy.stats.wilcoxon(long, method="asymptotic", zero_method="wilcox")
        assert wilcoxon_test(long) == pytest.approx(peer.pvalue, abs=1e-12)
        assert wilcoxon_test(long) == wilcoxon_test(long[long != 0])
    tied = np.array([1.0, 1.0, -1.0, 2.0, 2.0, -0.5, 0.0])
    peer = scipy.stats.permutation_test(
        (np.sign(tied) * np.where(tied == 0, 0, scipy.stats.rankdata(np.abs(tied))),),
        np.sum,
        permutation_type="samples",
        n_resamples=np.inf,
    )
    ranks_of_nonzero = scipy.stats.rankdata(np.abs(tied[:-1])) * np.sign(tied[:-1])
    assert wilcoxon_test(tied) == sign_flip_test(ranks_of_nonzero)
    assert wilcoxon_test(tied) == pytest.approx(peer.pvalue, abs=0.1)
    assert wilcoxon_test(np.zeros(9)) == 1.0
    row = skewed(24, 8)
    clusters = np.repeat(np.arange(8), 3)
    assert wilcoxon_test(row, clusters=clusters) == wilcoxon_test(row.reshape(8, 3).mean(axis=1))


@pytest.mark.parametrize("test", [paired_t_test, wilcoxon_test])
def test_differences_that_cannot_be_tested_are_refused(test):
    with pytest.raises(DataError, match="infinite"):
        test(np.array([0.0, np.nan]))
    with pytest.raises(DataError, match="no questions"):
        test(np.array([]))
