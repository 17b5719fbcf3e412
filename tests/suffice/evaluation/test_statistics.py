"""Statistics against scipy on the same draws, and laws."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from suffice.errors import DataError
from suffice.evaluation.statistics import (
    INTERVALS,
    Resampling,
    Units,
    bootstrap as module,
    both_margin_tests,
    paired_bootstrap,
    paired_results,
    sign_flip_test,
    undefined_notes,
)
from tests.support.reference import bootstrap_weights

SEED = 42


def differences(n: int, seed: int = 0, zeros: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < zeros, 0.0, rng.normal(0.1, 1.0, n))


@pytest.mark.parametrize(("n", "zeros", "level"), [(5, 0.0, 0.95), (60, 0.0, 0.95), (60, 0.9, 0.9), (300, 0.5, 0.99)])
def test_percentile_intervals_equal_scipys_on_the_same_draws(n, zeros, level):
    rule, base = differences(n, 1, zeros), differences(n, 2, zeros) * (zeros == 0)
    ours = paired_bootstrap(rule - base, bootstrap_weights(n, 1000, rng=SEED), level=level, method="percentile")
    peer = scipy.stats.bootstrap(
        (rule, base),
        lambda a, b, axis=-1: (a - b).mean(axis=axis),
        paired=True,
        vectorized=True,
        method="percentile",
        confidence_level=level,
        n_resamples=1000,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    assert ours.low[0] == pytest.approx(peer.low, abs=1e-12)
    assert ours.high[0] == pytest.approx(peer.high, abs=1e-12)
    assert ours.delta[0] == pytest.approx((rule - base).mean(), abs=1e-15)


def test_every_rule_shares_the_draws():
    rows = np.stack([differences(40, seed) for seed in range(5)])
    weights = bootstrap_weights(40, 200, rng=SEED)
    together = paired_bootstrap(rows, weights)
    for position, row in enumerate(rows):
        alone = paired_bootstrap(row, weights)
        assert together.low[position] == pytest.approx(alone.low[0], abs=1e-14)
        assert together.high[position] == pytest.approx(alone.high[0], abs=1e-14)


def test_blocks_of_bounded_memory_change_nothing(monkeypatch):
    rows = np.stack([differences(30, seed) for seed in range(7)])
    weights = bootstrap_weights(30, 100, rng=SEED)
    whole = paired_bootstrap(rows, weights)
    monkeypatch.setattr(module, "_LARGEST_BLOCK", 250)
    blocks = paired_bootstrap(rows, weights)
    np.testing.assert_allclose([blocks.low, blocks.high], [whole.low, whole.high], rtol=0, atol=1e-14)


def test_means_of_whole_numbers_are_exact_whatever_is_resampled_beside_them():
    # Their sums are, in any order: no kernel, number of threads or other rule moves a bound across 0.
    rows = np.random.default_rng(0).integers(-4, 5, size=(9, 47))
    weights = bootstrap_weights(47, 300, rng=SEED)
    exact = np.sort((rows @ weights.T.astype(int)) / 47, axis=-1)
    for part in (rows, rows[:1], rows[3:5]):
        ((_, means),) = module.resampled_means(part.astype(float), weights, Units.of(47))
        assert (np.sort(means, axis=-1) == exact[[rows.tolist().index(row) for row in part.tolist()]]).all()


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.integers(2, 20), elements=st.floats(-1, 1)), st.floats(-3, 3))
def test_intervals_hold_the_resampled_quantiles_and_move_with_the_data(row, shift):
    weights = bootstrap_weights(len(row), 200, rng=SEED)
    result = paired_bootstrap(row, weights, level=0.9, method="percentile")
    low, high = np.percentile(weights @ row / len(row), [5, 95])
    assert result.low[0] == pytest.approx(low, abs=1e-12)
    assert result.high[0] == pytest.approx(high, abs=1e-12)
    moved = paired_bootstrap(row + shift, weights, level=0.9, method="percentile")
    assert moved.low[0] == pytest.approx(low + shift, abs=1e-9)


def test_clusters_are_drawn_whole():
    clusters = ["a", "b", "a", "c", "b", "b"]
    rows = np.array([1.0, 0.0, 2.0, -1.0, 0.5, 0.5])
    weights = bootstrap_weights(3, 500, rng=SEED)
    drawn = np.random.default_rng(SEED).integers(0, 3, size=(500, 3))
    members = {0: [1.0, 2.0], 1: [0.0, 0.5, 0.5], 2: [-1.0]}
    means = [np.mean([value for code in draw for value in members[code]]) for draw in drawn.tolist()]
    result = paired_bootstrap(rows, weights, clusters=clusters, method="percentile")
    assert result.low[0] == pytest.approx(np.percentile(means, 2.5), abs=1e-12)
    assert result.high[0] == pytest.approx(np.percentile(means, 97.5), abs=1e-12)
    assert paired_results(rows, weights, clusters=clusters)[0].n_clusters == 3


def test_clusters_that_do_not_repeat_are_the_rows_themselves():
    row = differences(20)
    weights = bootstrap_weights(20, 100, rng=SEED)
    named = paired_results(row, weights, clusters=list(range(20)))[0]
    assert named.to_dict() == paired_results(row, weights)[0].to_dict()


def test_the_sign_flip_test_equals_scipys_exact_permutation_test():
    for seed in range(5):
        row = differences(9, seed)
        peer = scipy.stats.permutation_test(
            (row,), np.mean, permutation_type="samples", n_resamples=np.inf, alternative="two-sided"
        )
        assert sign_flip_test(row) == pytest.approx(peer.pvalue, abs=1e-12)
    assert sign_flip_test([0.0, 0.0]) == 1.0
    with pytest.raises(DataError, match="21 non-zero"):
        sign_flip_test(np.ones(21))


def test_fewer_than_twenty_pairs_that_differ_warn_and_get_an_exact_test():
    row = np.zeros(60)
    row[:19] = 1.0
    weights = bootstrap_weights(60, 100, rng=SEED)
    few = paired_results(row, weights)[0]
    assert few.n_nonzero == 19
    assert few.p_exact == 2 / 2**19
    assert "only 19 pairs differ (fewer than 20)" in few.warning
    row[19] = 1.0
    enough = paired_results(row, weights)[0]
    assert (enough.n_nonzero, enough.warning) == (20, "")
    assert math.isnan(enough.p_exact)
    assert json.loads(json.dumps(enough.to_dict(), allow_nan=False))["p_exact"] is None


def test_the_exact_test_flips_clusters_not_rows():
    row = np.array([1.0, -1.0, 1.0, 1.0])
    result = paired_results(row, bootstrap_weights(2, 50, rng=0), clusters=["a", "a", "b", "b"])[0]
    assert (result.n_nonzero, result.p_exact) == (1, 1.0)


@pytest.mark.parametrize("margin", [0.0, 0.1, 0.3])
def test_non_inferiority_equals_scipys_one_sided_paired_t(margin):
    rule, base = differences(50, 3), differences(50, 4)
    [(test, _)] = both_margin_tests(rule - base, [margin], weights=bootstrap_weights(50, 1000, rng=SEED))
    peer = scipy.stats.ttest_rel(rule, base - margin, alternative="greater")
    assert test.p == pytest.approx(peer.pvalue, abs=1e-12)
    interval = scipy.stats.ttest_1samp(rule - base, 0.0, alternative="greater").confidence_interval(0.95)
    assert test.low == pytest.approx(interval.low, abs=1e-12)
    assert test.passed == (test.low > -margin) == (test.p < 0.05)
    assert test.high == math.inf
    assert test.to_dict()["high"] is None
    assert test.d_z == pytest.approx((rule - base).mean() / (rule - base).std(ddof=1), abs=1e-12)


def test_the_bootstrap_bound_of_non_inferiority_is_one_sided():
    row = differences(50, 3)
    weights = bootstrap_weights(50, 1000, rng=SEED)
    [(test, _)] = both_margin_tests(row, [0.1], weights=weights)
    assert test.low_bootstrap == pytest.approx(np.percentile(weights @ row / 50, 5), abs=1e-12)
    assert test.passed_bootstrap == (test.low_bootstrap > -0.1)


@pytest.mark.parametrize("margin", [0.05, 0.2, 0.6])
def test_equivalence_is_both_one_sided_tests(margin):
    row = differences(80, 5)
    weights = bootstrap_weights(80, 1000, rng=SEED)
    [(_, test)] = both_margin_tests(row, [margin], weights=weights)
    below = scipy.stats.ttest_1samp(row, -margin, alternative="greater").pvalue
    above = scipy.stats.ttest_1samp(row, margin, alternative="less").pvalue
    assert test.p == pytest.approx(max(below, above), abs=1e-12)
    assert test.passed == (test.p < 0.05)
    low, high = scipy.stats.ttest_1samp(row, 0.0).confidence_interval(0.90)
    assert (test.low, test.high) == pytest.approx((low, high), abs=1e-12)
    assert test.high_bootstrap == pytest.approx(np.percentile(weights @ row / 80, 95), abs=1e-12)


def test_without_variance_the_sign_of_delta_plus_margin_decides():
    weights = bootstrap_weights(20, 50, rng=SEED)
    for value, margin, passed, equal in [
        (0.0, 0.02, True, True),
        (-0.02, 0.02, False, False),
        (0.1, 0.02, True, False),
    ]:
        row = np.full(20, value)
        [(test, both)] = both_margin_tests(row, [margin], weights=weights)
        assert (test.passed, test.passed_bootstrap, test.p) == (passed, passed, 0.0 if passed else 1.0)
        assert (both.passed, both.passed_bootstrap, both.p) == (equal, equal, 0.0 if equal else 1.0)
        assert math.isnan(test.d_z)
        assert test.to_dict()["d_z"] is None


def test_one_question_proves_nothing():
    [(test, _)] = both_margin_tests([0.5], [0.02], weights=bootstrap_weights(1, 10, rng=0))
    assert (test.passed, test.p, test.low) == (False, 1.0, -math.inf)


def test_margin_tests_of_equal_clusters_are_the_t_test_of_cluster_means():
    rows, clusters = differences(40, 6), np.repeat(np.arange(20), 2)
    [(test, _)] = both_margin_tests(rows, [0.1], weights=bootstrap_weights(20, 50, rng=0), clusters=clusters)
    peer = scipy.stats.ttest_1samp(rows.reshape(20, 2).mean(axis=1), -0.1, alternative="greater")
    assert test.p == pytest.approx(peer.pvalue, abs=1e-12)


def test_what_cannot_be_compared_is_refused():
    weights = bootstrap_weights(3, 10, rng=0)
    with pytest.raises(DataError, match="infinite"):
        paired_bootstrap(np.array([0.0, np.nan, 1.0]), weights)
    with pytest.raises(DataError, match="strictly"):
        paired_bootstrap(np.zeros(3), weights, level=95)
    with pytest.raises(DataError, match="3 units|4 units"):
        paired_bootstrap(np.zeros(4), weights)
    with pytest.raises(DataError, match="margin"):
        both_margin_tests(np.zeros(3), [-0.02], weights=weights)
    with pytest.raises(DataError, match="resamples"):
        Resampling(n_resamples=0).draws("abc")
    with pytest.raises(DataError, match="2 clusters"):
        Units.of(3, ["a", "b"])
    with pytest.raises(DataError, match="no questions"):
        Units.of(0)


@pytest.mark.parametrize("method", [*INTERVALS])
def test_one_draw_has_no_interval(method):
    rows = np.random.default_rng(0).normal(size=(2, 30))
    one, many = (Resampling(n_resamples=n, interval=method).draws(range(30)) for n in (1, 50))
    assert not np.isnan(many.intervals(rows).low).any()
    assert np.isnan(one.intervals(rows).low).all()
    assert np.isnan(one.intervals(rows).high).all()
    assert np.isnan(paired_bootstrap(rows, bootstrap_weights(30, 1, rng=0), method=method).low).all()
    assert np.isnan(one.ratio(rows[0] + 9, rows[1] + 9)[0][1])
    assert len({*undefined_notes(30, 1), *undefined_notes(1, 50)}) == 2
    assert undefined_notes(30, 50) == []
