"""Draws by question: a bootstrap whose sums add up over parts, beside the one that has all questions at once."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.stats import chisquare, poisson

from suffice.errors import DataError
from suffice.evaluation.statistics import (
    DrawnSums,
    Draws,
    Resampling,
    Units,
    keyed_numbers,
    keys_of,
    poisson_weights,
)
from suffice_papers.family_tests import max_statistic
from tests.support.reference import bootstrap_weights

RNG = np.random.default_rng(3)
DELTAS = np.stack([RNG.normal(0.02, 0.4, 500), RNG.choice([-1.0, 0.0, 1.0], 500, p=[0.1, 0.8, 0.1]), np.ones(500)])
KEYS = keys_of(f"q{i}" for i in range(500))


def sums_of(deltas=DELTAS, keys=KEYS, n_resamples=4000, seed=1):
    return DrawnSums.of(deltas, poisson_weights(keys, n_resamples, seed=seed))


def test_weights_are_poisson_and_independent_of_each_other():
    weights = poisson_weights(KEYS, 4000, seed=9)
    counts = np.bincount(weights.astype(int).ravel(), minlength=12)
    expected = poisson.pmf(np.arange(12), 1.0)
    groups = [slice(k, k + 1) for k in range(7)] + [slice(7, None)]
    seen, wanted = (np.array([values[group].sum() for group in groups]) for values in (counts, expected))
    assert chisquare(seen, wanted / wanted.sum() * seen.sum()).pvalue > 1e-4
    for matrix in (weights[:, :200], weights[:200, :].T):  # questions among each other, draws among each other
        correlations = np.corrcoef(matrix, rowvar=False)[np.triu_indices(200, 1)]
        assert abs(correlations.mean() * np.sqrt(len(correlations) * len(matrix))) < 5
        assert abs(correlations).max() < 6 / np.sqrt(len(matrix))


def test_a_question_has_its_draws_whatever_is_around_it():
    weights = poisson_weights(KEYS, 10, seed=4)
    order = np.random.default_rng(0).permutation(500)[:77]
    assert np.array_equal(poisson_weights(KEYS[order], 10, seed=4), weights[:, order])
    assert np.array_equal(poisson_weights(KEYS, 7, seed=4), weights[:7])
    assert not np.array_equal(poisson_weights(KEYS, 10, seed=5), weights)
    assert keyed_numbers(KEYS, 1, seed=4).ravel().tolist() != keyed_numbers(KEYS, 1, seed=-4).ravel().tolist()


@given(cuts=st.sets(st.integers(1, 499), max_size=6), seed=st.integers(0, 2**32))
@settings(max_examples=25, deadline=None)
def test_any_division_into_parts_gives_the_same_figures(cuts, seed):
    order = np.random.default_rng(seed).permutation(500)
    ends = [0, *sorted(cuts), 500]
    parts = [sums_of(DELTAS[:, order[a:b]], KEYS[order[a:b]], 50) for a, b in itertools.pairwise(ends)]
    total, whole = parts[0], sums_of(n_resamples=50)
    for part in parts[1:]:
        total = total + part
    assert (total.n, total.nonzero.tolist(), total.sizes.tolist()) == (
        500,
        whole.nonzero.tolist(),
        whole.sizes.tolist(),
    )
    assert np.array_equal(total.drawn[1:], whole.drawn[1:])  # whole numbers
    for name in ("sums", "squares", "drawn", "errors"):
        assert np.allclose(getattr(total, name), getattr(whole, name), rtol=1e-12, atol=1e-12), name
    resampling = Resampling(n_resamples=50)
    for ours, theirs in zip(total.paired(resampling), whole.paired(resampling), strict=True):
        assert ours.triple == pytest.approx(theirs.triple, abs=1e-12)


@pytest.mark.parametrize("interval", ["expanded", "percentile"])
def test_intervals_match_the_full_bootstrap_up_to_noise(interval):
    resampling = Resampling(n_resamples=4000, interval=interval)
    draws = Draws(
        resampling=resampling, clusters=None, units=Units.of(500), weights=bootstrap_weights(500, 4000, rng=2)
    )
    for ours, delta, error in zip(sums_of().paired(resampling), DELTAS, sums_of().errors, strict=True):
        theirs = draws.paired(delta)
        assert ours.delta == pytest.approx(theirs.delta, abs=1e-12)
        assert (ours.n, ours.n_clusters, ours.n_nonzero, ours.n_resamples) == (500, 500, theirs.n_nonzero, 4000)
        # The end of an interval is a quantile of 4,000 draws: its noise is about 0.043 standard errors.
        assert ours.low == pytest.approx(theirs.low, abs=0.25 * error)
        assert ours.high == pytest.approx(theirs.high, abs=0.25 * error)


def test_the_largest_p_value_matches_the_max_statistic_up_to_noise():
    rng = np.random.default_rng(8)
    deltas = rng.normal(0.0, 1.0, (40, 300)) + 0.15 * (np.arange(40) == 7)[:, None]
    keys = keys_of(f"question {i}" for i in range(300))
    ours = sums_of(deltas, keys)
    best = int(np.argmax(deltas.mean(axis=1) / deltas.std(axis=1)))
    family = max_statistic(deltas, bootstrap_weights(300, 4000, rng=5))
    alone = max_statistic(deltas[best : best + 1], bootstrap_weights(300, 4000, rng=5))
    assert ours.p_of_largest(best) == pytest.approx(family.p[best], abs=0.04)
    assert sums_of(deltas[best : best + 1], keys).p_of_largest(0) == pytest.approx(alone.p[0], abs=0.02)
    assert np.allclose(ours.errors, family.error, rtol=1e-12)


def test_differences_without_variance_decide_by_their_sign():
    same = sums_of(np.stack([np.full(20, 0.1), np.zeros(20), np.full(20, -0.1)]), KEYS[:20], 30)
    assert same.errors.tolist() == [0, 0, 0]
    assert [same.p_of_largest(i) for i in range(3)] == [0.0, 1.0, 1.0]


def test_few_differences_have_the_exact_test_and_one_question_has_no_interval():
    deltas = np.zeros((1, 60))
    deltas[0, [3, 20, 41]] = 1.0
    resampling = Resampling(n_resamples=30)
    total = sums_of(deltas[:, :30], KEYS[:30], 30) + sums_of(deltas[:, 30:], KEYS[30:60], 30)
    (ours,), theirs = total.paired(resampling), resampling.draws(range(60)).paired(deltas[0])
    assert (ours.p_exact, ours.warning) == (theirs.p_exact, theirs.warning) == (0.25, theirs.warning)
    (alone,) = sums_of(deltas[:, :1], KEYS[:1], 30).paired(resampling)
    assert np.isnan([alone.low, alone.high]).all()
    assert alone.warning


def test_draws_without_a_question_have_no_mean_and_are_left_out():
    keys, deltas = keys_of("abc"), np.array([[0.1, 0.4, 0.7]])
    weights = poisson_weights(keys, 1000, seed=3)
    some = weights[weights.sum(axis=1) > 0]
    assert 0 < len(some) < 1000
    sums = DrawnSums.of(deltas, weights)
    (result,) = sums.paired(Resampling(interval="percentile"))
    means = (some @ deltas[0]) / some.sum(axis=1)
    assert (result.low, result.high) == pytest.approx(tuple(np.quantile(means, [0.025, 0.975])), abs=1e-12)
    at_least = (means - 0.4 >= 0.4 - 1e-9).sum()
    assert sums.p_of_largest(0) == pytest.approx((1 + at_least) / (1 + len(some)))
    (none,) = DrawnSums.of(deltas, np.zeros((1, 3))).paired(Resampling(n_resamples=1))
    assert np.isnan([none.low, none.high]).all()


def test_what_needs_all_questions_at_once_is_refused():
    with pytest.raises(DataError, match="'bca'"):
        sums_of(n_resamples=20).paired(Resampling(n_resamples=20, interval="bca"))
    with pytest.raises(DataError, match="resamples"):
        poisson_weights(KEYS, 0, seed=1)
