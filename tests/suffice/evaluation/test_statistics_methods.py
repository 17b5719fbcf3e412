"""BCa, bootstrap-t and tests, against scipy, statsmodels and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from statsmodels.regression.linear_model import OLS
from statsmodels.stats.contingency_tables import mcnemar

from suffice.errors import DataError
from suffice.evaluation.statistics import (
    INTERVALS,
    ONE_UNIT,
    bootstrap as module,
    both_margin_tests,
    cohens_d_z,
    paired_bootstrap,
    paired_results,
    paired_t,
    permutation_tests,
    sign_flip_test,
)
from suffice_papers.family_tests import max_statistic
from tests.support.reference import bootstrap_weights

SEED = 42


def skewed(n: int, seed: int = 0, zeros: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < zeros, 0.0, rng.gamma(1.0, 1.0, n) - 0.8)


def quarters(n: int, seed: int, zeros: float) -> np.ndarray:
    """Return sparse differences whose sums are exact, so that a resample can tie with the estimate."""
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < zeros, 0.0, rng.integers(-4, 5, n) / 4)


ROWS = [skewed(60), skewed(300, 1, 0.9), quarters(64, 2, 0.7), quarters(100, 3, 0.9)]


@pytest.mark.parametrize("row", ROWS, ids=len)
@pytest.mark.parametrize("level", [0.8, 0.95, 0.99])
def test_bca_intervals_equal_scipys_on_the_same_draws(row, level):
    ours = paired_bootstrap(row, bootstrap_weights(len(row), 1000, rng=SEED), level=level, method="bca")
    peer = scipy.stats.bootstrap(
        (row,),
        np.mean,
        vectorized=True,
        method="BCa",
        confidence_level=level,
        n_resamples=1000,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    assert (ours.low[0], ours.high[0]) == pytest.approx((peer.low, peer.high), abs=1e-12)
    assert ours.method == "bca"


@pytest.mark.parametrize("n", [2, 12, 60])
def test_the_expanded_interval_is_scipys_percentile_at_the_t_level(n):
    row = skewed(n, 7)
    reach = scipy.stats.t(n - 1).ppf(0.95) * math.sqrt(n / (n - 1))
    peer = scipy.stats.bootstrap(
        (row,),
        np.mean,
        vectorized=True,
        method="percentile",
        confidence_level=2 * scipy.stats.norm.cdf(reach) - 1,
        n_resamples=1000,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    ours = paired_bootstrap(row, bootstrap_weights(n, 1000, rng=SEED), level=0.9, method="expanded")
    assert (ours.low[0], ours.high[0]) == pytest.approx((peer.low, peer.high), abs=1e-12)
    plain = paired_bootstrap(row, bootstrap_weights(n, 1000, rng=SEED), level=0.9, method="percentile")
    assert ours.low[0] <= plain.low[0] <= plain.high[0] <= ours.high[0]
    assert paired_bootstrap(row, bootstrap_weights(n, rng=SEED)).method == "expanded"


def studentised_by_loops(row, drawn, level, groups):
    """Return the bootstrap-t interval by loops over draws; `groups` holds the rows of each unit."""

    def mean_and_error(units):
        rows = np.concatenate([groups[u] for u in units])
        residuals = np.array([np.sum(groups[u] - rows.mean()) for u in units])
        k = len(units)
        return rows.mean(), math.sqrt(k / (k - 1) * np.sum(residuals**2)) / len(rows)

    delta, error = mean_and_error(range(len(groups)))
    scores = []
    for units in drawn:
        mean, its_error = mean_and_error(units)
        scores.append((mean - delta) / its_error)
    low, high = np.percentile(scores, [50 * (1 - level), 50 * (1 + level)])
    return delta - high * error, delta - low * error


@pytest.mark.parametrize("level", [0.8, 0.95])
def test_bootstrap_t_equals_plain_loops_with_and_without_clusters(level):
    row = skewed(40, 5)
    drawn = np.random.default_rng(SEED).integers(0, 40, size=(300, 40))
    expected = studentised_by_loops(row, drawn, level, [row[[i]] for i in range(40)])
    ours = paired_bootstrap(row, bootstrap_weights(40, 300, rng=SEED), level=level, method="t")
    assert (ours.low[0], ours.high[0]) == pytest.approx(expected, abs=1e-12)

    clusters = np.random.default_rng(1).integers(0, 15, 40)
    names = list(dict.fromkeys(clusters.tolist()))
    drawn = np.random.default_rng(SEED).integers(0, len(names), size=(300, len(names)))
    expected = studentised_by_loops(row, drawn, level, [row[clusters == name] for name in names])
    weights = bootstrap_weights(len(names), 300, rng=SEED)
    ours = paired_bootstrap(row, weights, clusters=clusters, level=level, method="t")
    assert (ours.low[0], ours.high[0]) == pytest.approx(expected, abs=1e-12)


def test_bca_of_clusters_leaves_out_whole_clusters():
    row, clusters = skewed(30, 6), np.repeat(np.arange(10), 3)
    weights = bootstrap_weights(10, 500, rng=SEED)
    ours = paired_bootstrap(row, weights, clusters=clusters, method="bca")
    of_means = paired_bootstrap(row.reshape(10, 3).mean(axis=1), weights, method="bca")
    assert (ours.low[0], ours.high[0]) == pytest.approx((of_means.low[0], of_means.high[0]), abs=1e-12)

    sizes = np.array([1, 3, 2, 4, 1, 2, 5, 3, 2, 7])  # of unequal sizes: the jackknife by loops
    clusters = np.repeat(np.arange(10), sizes)
    ours = paired_bootstrap(row, weights, clusters=clusters, method="bca")
    means = (weights[:, clusters] @ row) / (weights @ sizes)
    left = np.array([row[clusters != c].mean() for c in range(10)])
    spread = left.mean() - left
    acceleration = np.sum(spread**3) / (6 * np.sum(spread**2) ** 1.5)
    tied = np.abs(means - row.mean()) < 1e-12
    bias = scipy.stats.norm.ppf(np.mean((means < row.mean()) & ~tied) + tied.mean() / 2)
    ends = [scipy.stats.norm.ppf(q) + bias for q in (0.025, 0.975)]
    levels = [scipy.stats.norm.cdf(bias + end / (1 - acceleration * end)) for end in ends]
    assert (ours.low[0], ours.high[0]) == pytest.approx(tuple(np.quantile(means, levels)), abs=1e-12)


@pytest.mark.parametrize("method", INTERVALS)
def test_every_method_treats_many_rules_as_one_by_one_in_blocks_too(method, monkeypatch):
    rows = np.stack([skewed(50, seed, 0.3) for seed in range(7)])
    weights = bootstrap_weights(50, 200, rng=SEED)
    alone = [paired_bootstrap(row, weights, method=method) for row in rows]
    monkeypatch.setattr(module, "_LARGEST_BLOCK", 450)
    together = paired_bootstrap(rows, weights, method=method)
    np.testing.assert_allclose(together.low, [i.low[0] for i in alone], rtol=0, atol=1e-12)
    np.testing.assert_allclose(together.high, [i.high[0] for i in alone], rtol=0, atol=1e-12)


@pytest.mark.parametrize("method", INTERVALS)
@pytest.mark.parametrize("value", [0.0, 0.1, -1 / 3])
def test_differences_without_variance_have_an_interval_without_width(method, value):
    row = np.full(30, value)
    found = paired_bootstrap(row, bootstrap_weights(30, 100, rng=SEED), method=method)
    assert found.low[0] == pytest.approx(value, abs=1e-15)
    assert found.high[0] == pytest.approx(value, abs=1e-15)
    clusters = np.repeat(np.arange(10), 3)
    found = paired_bootstrap(row, bootstrap_weights(10, 100, rng=SEED), method=method, clusters=clusters)
    assert (found.low[0], found.high[0]) == pytest.approx((value, value), abs=1e-15)


@pytest.mark.parametrize("clusters", [None, ["same"] * 3])
def test_one_unit_gives_infinite_t_intervals_and_no_others(clusters):
    weights, row = bootstrap_weights(1, 10, rng=0), np.array([0.5] * (3 if clusters else 1))
    ends = {name: paired_bootstrap(row, weights, method=name, clusters=clusters) for name in INTERVALS}
    assert (ends["t"].low[0], ends["t"].high[0]) == (-math.inf, math.inf)
    assert all(math.isnan(ends[name].low[0]) and math.isnan(ends[name].high[0]) for name in set(INTERVALS) - {"t"})
    [result] = paired_results(row, weights, clusters=clusters)
    assert result.warning == ONE_UNIT
    [(test, _)] = both_margin_tests(row, [0.02], weights=weights, clusters=clusters)
    assert (test.passed, test.passed_bootstrap) == (False, False)
    found = paired_t(np.array([0.5]))
    assert (found.low[0], found.high[0]) == (-math.inf, math.inf)


def test_bootstrap_t_says_when_it_cannot_bound_sparse_differences():
    # A third of the draws of two non-zero pairs hold none or both alike: an infinite number of errors from the mean.
    row = np.zeros(40)
    row[0] = 1.0
    found = paired_bootstrap(row, bootstrap_weights(40, 500, rng=SEED), method="t")
    assert found.high[0] == math.inf
    assert -1 < found.low[0] <= 0.025
    for n in (23, 37, 41, 59):  # a third of the draws hold no non-zero pair, whatever their sums round to
        sparse, weights = np.where(np.arange(n) == 3, 0.7, 0.0), bootstrap_weights(n, 500, rng=SEED)
        assert paired_bootstrap(sparse, weights, method="t", level=0.4).high[0] == math.inf
    mirrored = paired_bootstrap(-row, bootstrap_weights(40, 500, rng=SEED), method="t")
    assert (mirrored.low[0], mirrored.high[0]) == (-math.inf, -found.low[0])


@settings(max_examples=60, deadline=None)
@given(
    arrays(np.float64, st.integers(2, 20), elements=st.floats(-1, 1)),
    st.sampled_from(sorted(INTERVALS)),
    st.floats(0.5, 0.999),
)
def test_every_method_gives_ordered_ends_that_turn_with_the_sign(row, method, level):
    weights = bootstrap_weights(len(row), 100, rng=SEED)
    found = paired_bootstrap(row, weights, method=method, level=level)
    turned = paired_bootstrap(-row, weights, method=method, level=level)
    assert found.low[0] <= found.high[0]
    assert not np.isnan([found.low[0], found.high[0]]).any()
    assert (turned.low[0], turned.high[0]) == pytest.approx((-found.high[0], -found.low[0]), abs=1e-6)


def test_the_paired_t_interval_equals_scipys():
    rows = np.stack([skewed(50, seed) for seed in range(3)])
    found = paired_t(rows, level=0.9)
    for position, row in enumerate(rows):
        peer = scipy.stats.ttest_1samp(row, 0.0)
        ends = peer.confidence_interval(0.9)
        assert (found.low[position], found.high[position]) == pytest.approx((ends.low, ends.high), abs=1e-12)


def test_clusters_of_unequal_sizes_have_the_cluster_robust_error_of_statsmodels():
    row, clusters = skewed(80, 3), np.random.default_rng(4).integers(0, 20, 80)
    peer = OLS(row, np.ones(80)).fit(cov_type="cluster", cov_kwds={"groups": clusters}, use_t=True)
    low, high = peer.conf_int(0.1)[0]
    found = paired_t(row, clusters=clusters, level=0.9)
    assert (found.low[0], found.high[0]) == pytest.approx((low, high), abs=1e-12)


def test_random_sign_flips_are_close_to_scipys_permutation_test_and_never_zero():
    rows = np.stack([skewed(60, seed) + 0.1 * seed for seed in range(4)])
    found = permutation_tests(rows, n_resamples=9999, rng=SEED)
    for row, test in zip(rows, found, strict=True):
        peer = scipy.stats.permutation_test(
            (row,), np.mean, permutation_type="samples", n_resamples=9999, rng=np.random.default_rng(1), vectorized=True
        )
        assert (test.test, test.n_resamples, test.n_nonzero) == ("monte_carlo", 9999, 60)
        # scipy doubles the smaller tail of the same distribution, by draws of its own
        assert test.p == pytest.approx(peer.pvalue, abs=0.02)
    [sure] = permutation_tests(np.linspace(1, 2, 50), n_resamples=99, rng=SEED)
    assert sure.p == 0.01
    again = permutation_tests(rows, n_resamples=9999, rng=np.random.default_rng(SEED))
    assert again == found


def test_random_signs_in_blocks_count_the_observed_pattern_once(monkeypatch):
    rows = np.stack([skewed(30, seed) for seed in range(3)])
    whole = permutation_tests(rows, n_resamples=500, rng=SEED)
    monkeypatch.setattr(module, "_LARGEST_BLOCK", 30 * 77)
    assert permutation_tests(rows, n_resamples=500, rng=SEED) == whole


def test_few_pairs_are_enumerated_and_clusters_flip_whole():
    row = skewed(12, 3)
    [test] = permutation_tests(row, rng=0)
    assert (test.test, test.n_resamples) == ("sign_flip", 0)
    assert test.p == sign_flip_test(row)
    [clustered] = permutation_tests(row, rng=0, clusters=np.repeat(np.arange(4), 3))
    assert clustered.p == sign_flip_test(row.reshape(4, 3).sum(axis=1))
    assert clustered.n_nonzero == 4


def test_sizes_that_differ_by_a_rounding_are_one_size():
    row = np.array([0.3, 0.1 + 0.2, -0.3, 0.0] * 30)
    [found] = permutation_tests(row, rng=0)
    assert (found.test, found.n_nonzero) == ("mcnemar", 90)


@pytest.mark.parametrize(("gained", "lost"), [(0, 0), (1, 0), (7, 7), (3, 12), (40, 22), (300, 250)])
def test_mcnemar_equals_statsmodels_and_the_permutation_test_of_binary_outcomes(gained, lost):
    rule = np.array([1] * gained + [0] * lost + [1] * 5 + [0] * 5)
    base = np.array([0] * gained + [1] * lost + [1] * 5 + [0] * 5)
    [flips] = permutation_tests(rule - base, rng=0)
    assert flips.test == "mcnemar"
    if gained + lost:
        assert flips.p == pytest.approx(mcnemar([[5, gained], [lost, 5]], exact=True).pvalue, abs=1e-12)
    if 0 < gained + lost <= 20:
        assert flips.p == pytest.approx(sign_flip_test(rule - base), abs=1e-12)


def test_cohens_d_z_is_the_mean_over_the_deviation_of_the_pairs():
    row = skewed(40, 2)
    assert cohens_d_z(row) == pytest.approx(row.mean() / row.std(ddof=1), abs=1e-12)
    means = row.reshape(10, 4).mean(axis=1)
    clusters = np.repeat(np.arange(10), 4)
    assert cohens_d_z(row, clusters=clusters) == pytest.approx(means.mean() / means.std(ddof=1), abs=1e-12)
    assert math.isnan(cohens_d_z(np.full(5, 0.1)))
    assert math.isnan(cohens_d_z([0.5]))


def test_what_cannot_be_tested_is_refused():
    weights = bootstrap_weights(3, 10, rng=0)
    with pytest.raises(DataError, match="'student'"):
        paired_bootstrap(np.zeros(3), weights, method="student")
    with pytest.raises(DataError, match="no rules"):
        max_statistic(np.empty((0, 3)), weights)
    with pytest.raises(DataError, match="units"):
        max_statistic(np.zeros(4), weights)
    with pytest.raises(DataError, match="resamples"):
        permutation_tests(np.zeros(3), n_resamples=0, rng=0)
    for test in (paired_t, cohens_d_z):
        with pytest.raises(DataError, match="infinite"):
            test(np.array([0.0, np.nan]))
        with pytest.raises(DataError, match="no questions"):
            test(np.array([]))
