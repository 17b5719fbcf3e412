"""The upper hull of quality against cost, and the mixtures on it."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.evaluation.replay.front import Mixture, best_mixture, upper_hull
from tests.support import reference

POINTS = st.lists(
    st.tuples(st.integers(0, 8).map(lambda q: q / 8), st.integers(1, 6).map(float)), min_size=1, max_size=7
)


@settings(max_examples=80, deadline=None)
@given(POINTS, st.integers(0, 28).map(lambda c: c / 4))
def test_the_best_mixture_is_the_best_coin_between_any_two(points, budget):
    quality, cost = np.array(points).T
    labels = [str(place) for place in range(len(points))]
    mixture = best_mixture(labels, quality, cost, budget)
    best = reference.best_mixture(dict(zip(labels, points, strict=True)), budget)
    if mixture is None:
        assert best == -math.inf
        return
    assert mixture.quality == pytest.approx(best, abs=1e-12)
    (low, cheap), (high, dear) = (points[int(label)] for label in (mixture.cheap, mixture.dear))
    assert mixture.quality == pytest.approx((1 - mixture.share) * low + mixture.share * high)
    assert (1 - mixture.share) * cheap + mixture.share * dear <= budget + 1e-12
    assert (mixture.cheap == mixture.dear) == (mixture.share == 0)


@settings(max_examples=80, deadline=None)
@given(POINTS)
def test_hull_points_rise_ever_less_and_no_coin_does_better(points):
    quality, cost = np.array(points).T
    hull = list(upper_hull(quality, cost))
    slopes = np.diff(quality[hull]) / np.diff(cost[hull])
    assert (slopes > 0).all()
    assert (np.diff(slopes) < 0).all()
    for place in hull:
        others = {str(k): points[k] for k in range(len(points)) if points[k] != points[place]}
        assert reference.best_mixture(others, cost[place]) < quality[place]


def test_one_of_two_equal_policies_needs_no_coin():
    assert best_mixture("ab", np.array([0.5, 0.5]), np.array([2.0, 2.0]), 2.0) == Mixture(
        cheap="a", dear="a", share=0.0, quality=0.5
    )
