"""Corrections for many rules and margins, against scipy, statsmodels and plain loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays
from statsmodels.stats.multitest import multipletests

from suffice.errors import DataError
from suffice.evaluation.statistics import (
    bootstrap as module,
    both_margin_tests,
    hash_order,
    holm,
    net_p_value,
)
from suffice_papers.family_tests import max_statistic
from tests.support.reference import bootstrap_weights

pytestmark = pytest.mark.usefixtures("no_collecting")

SEED = 42


def non_inferiority(row, margin, **how):
    return both_margin_tests(row, [margin], **how)[0][0]


def equivalence(row, margin, **how):
    return both_margin_tests(row, [margin], **how)[0][1]


def skewed(n: int, seed: int = 0, zeros: float = 0.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(n) < zeros, 0.0, rng.gamma(1.0, 1.0, n) - 0.8)


@settings(max_examples=60, deadline=None)
@given(arrays(np.float64, st.integers(1, 30), elements=st.floats(0, 1) | st.sampled_from([0.0, 0.01, 1.0])))
def test_holm_equals_statsmodels(p):
    np.testing.assert_allclose(holm(p), multipletests(p, method="holm")[1], rtol=0, atol=1e-12)


def test_a_test_that_was_not_made_does_not_count():
    p = [0.01, math.nan, 0.04]
    assert holm(p).tolist() == pytest.approx([0.02, math.nan, 0.04], nan_ok=True)
    assert holm([]).tolist() == []
    with pytest.raises(DataError, match="not 1.5"):
        holm([0.1, 1.5])


def max_statistic_by_loops(deltas, weights, level):
    n = deltas.shape[1]
    error = deltas.std(axis=1, ddof=1) / math.sqrt(n)
    delta = deltas.mean(axis=1)
    draws = np.array([[(w @ row / n - row.mean()) / e for row, e in zip(deltas, error, strict=True)] for w in weights])
    score = delta / error
    critical = np.quantile(draws.max(axis=1), level)
    single = [(1 + np.sum(draws.max(axis=1) >= s)) / (1 + len(weights)) for s in score]
    left, down, floor = list(np.argsort(-score)), {}, 0.0
    while left:
        best = left[0]
        floor = max(floor, (1 + np.sum(draws[:, left].max(axis=1) >= score[best])) / (1 + len(weights)))
        down[best] = floor
        left = left[1:]
    return delta - critical * error, single, [down[i] for i in range(len(deltas))]


def test_the_max_statistic_equals_plain_loops_in_blocks_too(monkeypatch):
    rng = np.random.default_rng(3)
    deltas = rng.normal(0.0, 1.0, (12, 40)) + 0.5 * rng.normal(size=40) + np.linspace(-0.3, 0.7, 12)[:, None]
    weights = bootstrap_weights(40, 300, rng=SEED)
    low, single, down = max_statistic_by_loops(deltas, weights, 0.9)
    for size in (2**23, 1000):
        monkeypatch.setattr(module, "_LARGEST_BLOCK", size)
        found = max_statistic(deltas, weights, level=0.9)
        np.testing.assert_allclose(found.low, low, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.p, single, rtol=0, atol=1e-12)
        np.testing.assert_allclose(found.p_step_down, down, rtol=0, atol=1e-12)
    assert (found.p_step_down <= found.p + 1e-15).all()
    assert (found.p_step_down < found.p).any()


def test_one_rules_max_statistic_is_its_bound_and_copies_are_free():
    row = skewed(50, 4) + 0.3
    weights = bootstrap_weights(50, 400, rng=SEED)
    one = max_statistic(row, weights)
    assert one.low[0] == pytest.approx(2 * row.mean() - np.quantile(weights @ row / 50, 0.95), abs=1e-12)
    many = max_statistic(np.tile(row, (30, 1)), weights)
    np.testing.assert_allclose(many.low, one.low[0], rtol=0, atol=1e-12)
    assert len(set(many.p.round(12)) | set(one.p.round(12))) == 1


def test_the_max_statistic_of_clusters_draws_them_whole():
    rows, clusters = np.stack([skewed(40, seed) for seed in range(3)]), np.repeat(np.arange(10), 4)
    weights = bootstrap_weights(10, 200, rng=SEED)
    found = max_statistic(rows, weights, clusters=clusters)
    of_means = max_statistic(rows.reshape(3, 10, 4).mean(axis=-1), weights)
    np.testing.assert_allclose(found.low, of_means.low, rtol=0, atol=1e-12)
    np.testing.assert_allclose(found.p, of_means.p, rtol=0, atol=1e-12)

    clusters = np.repeat(np.arange(10), [1, 3, 2, 4, 1, 2, 5, 3, 2, 17])
    found = max_statistic(rows[:1], weights, clusters=clusters)
    means = (weights[:, clusters] @ rows[0]) / weights[:, clusters].sum(axis=1)
    residuals = np.array([np.sum(rows[0][clusters == c] - rows[0].mean()) for c in range(10)])
    error = math.sqrt(10 / 9 * np.sum(residuals**2)) / 40
    assert found.error[0] == pytest.approx(error, abs=1e-12)
    assert found.low[0] == pytest.approx(rows[0].mean() - np.quantile(means - rows[0].mean(), 0.95), abs=1e-12)


def test_rules_without_variance_are_decided_by_their_sign():
    rows = np.stack([np.zeros(20), np.full(20, 0.1), np.full(20, -0.1), skewed(20)])
    found = max_statistic(rows, bootstrap_weights(20, 100, rng=SEED))
    assert found.p[:3].tolist() == [1.0, 0.0, 1.0] == found.p_step_down[:3].tolist()
    assert found.low[:3].tolist() == pytest.approx([0.0, 0.1, -0.1], abs=1e-15)
    flat = max_statistic(rows[:1], bootstrap_weights(20, 100, rng=SEED))
    assert (flat.critical, flat.low[0], flat.p[0]) == (0.0, 0.0, 1.0)
    one = max_statistic(np.array([[0.5]]), bootstrap_weights(1, 10, rng=0))
    assert (one.low[0], one.p[0]) == (-math.inf, 1.0)


def test_the_smallest_margin_is_where_the_verdict_turns():
    row, weights = skewed(60, 3) - 0.2, bootstrap_weights(60, 500, rng=SEED)
    least = non_inferiority(row, 0.02, weights=weights).smallest_margin
    for margin, passed in [(least * 0.999, False), (least * 1.001, True)]:
        test = non_inferiority(row, margin, weights=weights)
        assert (test.passed and test.passed_bootstrap) == passed
        assert test.smallest_margin == least
    one_loss = np.where(np.arange(20) == 0, -1.0, 0.0)
    bounds = []
    for turned in (one_loss, -one_loss):  # the bootstrap's lower bound reaches further, then that of the t
        test = non_inferiority(turned, 0.02, weights=bootstrap_weights(20, 500, rng=SEED))
        both = equivalence(turned, 0.02, weights=bootstrap_weights(20, 500, rng=SEED))
        bounds.append(test.low_bootstrap < test.low)
        assert test.smallest_margin == max(-test.low, -test.low_bootstrap)
        assert both.smallest_margin == max(-test.low, -test.low_bootstrap, both.high, both.high_bootstrap)
    assert bounds == [True, False]
    shifted = equivalence(row + 5, 0.02, weights=weights)
    assert shifted.smallest_margin == max(shifted.high, shifted.high_bootstrap)
    assert non_inferiority(row + 5, 0.02, weights=weights).smallest_margin == 0.0
    assert non_inferiority([0.5], 0.02, weights=bootstrap_weights(1, 5, rng=0)).smallest_margin == math.inf


def test_ties_alone_show_nothing_until_there_are_many_of_them():
    for n, shown in [(3, False), (60, False), (150, False), (400, True)]:
        weights = bootstrap_weights(n, 5, rng=0)
        test, both = (
            non_inferiority(np.zeros(n), 0.02, weights=weights),
            equivalence(np.zeros(n), 0.02, weights=weights),
        )
        assert (test.passed, test.p) == (True, 0.0)  # as papers publish it
        assert (test.shown, both.shown) == (shown, shown)
        assert test.p_exact == both.p_exact > 0
    assert not non_inferiority([0.0], 0.5, weights=bootstrap_weights(1, 5, rng=0)).shown


@pytest.mark.parametrize("n", [50, 100, 200, 400])
def test_a_loss_of_exactly_the_margin_is_rarely_shown(n):
    rng, weights, runs = np.random.default_rng(n), bootstrap_weights(n, 2, rng=0), 300
    rare = -(rng.random((runs, n)) < 0.02).astype(float)
    drawn = rng.random((runs, n))
    mixed = np.where(drawn < 0.08, -1.0, np.where(drawn > 0.94, 1.0, 0.0))
    for rows in (rare, mixed):
        assert sum(non_inferiority(row, 0.02, weights=weights).shown for row in rows) <= 28  # 15 expected at most


def test_the_exact_p_value_is_the_net_test_on_cluster_means():
    rng = np.random.default_rng(SEED)
    row = rng.choice([-1.0, 0.0, 0.0, 0.0, 1.0], 120)
    clusters = np.repeat([f"c{i}" for i in range(40)], 3)
    weights = bootstrap_weights(40, 5, rng=0)
    order = hash_order(clusters, salt="margin, order:")
    losses = -row.reshape(40, 3).mean(axis=1)[order]
    test, both = (claim(row, 0.3, weights=weights, clusters=clusters) for claim in (non_inferiority, equivalence))
    assert test.p_exact == net_p_value(losses, 0.3)
    assert both.p_exact == max(net_p_value(losses, 0.3), net_p_value(-losses, 0.3))
    for claim, above in ((non_inferiority, test.shown_above), (equivalence, both.shown_above)):
        assert 0 < above < 1
        verdicts = [claim(row, above * x, weights=weights, clusters=clusters).shown for x in (0.5, 0.999, 1.001, 1.2)]
        assert verdicts == [False, False, True, True]


def test_nothing_is_shown_of_differences_or_margins_outside_the_range():
    weights = bootstrap_weights(60, 5, rng=0)
    for row, margin in [(np.full(60, 1.5), 0.02), (np.zeros(60), 1.0)]:
        test = non_inferiority(row, margin, weights=weights)
        assert math.isnan(test.p_exact)
        assert not test.shown
    assert non_inferiority(np.full(60, 1.5), 0.02, weights=weights).shown_above == math.inf
    assert non_inferiority(np.ones(60), 0.02, weights=weights).shown_above == 0.0
