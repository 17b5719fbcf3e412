"""The information score and the distance between drafts: definitions, laws, bad input."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from scipy.spatial.distance import cosine

from suffice.errors import DataError
from suffice.policy.metrics import EQUAL_WEIGHTS, information_score
from suffice.policy.signals.semantic import semantic_distance

NAMES = tuple(EQUAL_WEIGHTS)
unit = st.floats(0, 1)


@given(st.tuples(unit, unit, unit, unit))
def test_equal_weights_give_the_mean_of_the_four_marks(marks):
    assert information_score(dict(zip(NAMES, marks, strict=True))) == pytest.approx(math.fsum(marks) / 4)


@given(st.tuples(unit, unit, unit, unit), st.tuples(unit, unit, unit, unit).filter(lambda w: sum(w) > 1e-3))
def test_the_score_lies_between_the_lowest_and_the_highest_mark(marks, raw):
    weights = {name: w / sum(raw) for name, w in zip(NAMES, raw, strict=True)}
    score = information_score(dict(zip(NAMES, marks, strict=True)), weights)
    counted = [mark for mark, w in zip(marks, raw, strict=True) if w > 0]
    assert min(counted) - 1e-9 <= score <= max(counted) + 1e-9


def test_the_score_never_leaves_its_range_by_rounding():
    weights = {"a": 0.1, "b": 0.7 + 1e-10, "c": 0.2}
    assert information_score(dict.fromkeys(weights, 1.0), weights) == 1.0


@pytest.mark.parametrize("mark", [math.nan, math.inf, -math.inf, -0.01, 1.01])
def test_an_undefined_mark_makes_the_score_undefined_unless_its_weight_is_zero(mark):
    marks = {**dict.fromkeys(NAMES, 0.5), "context_recall": mark}
    assert math.isnan(information_score(marks))
    assert information_score(marks, {**dict.fromkeys(NAMES[:3], 1 / 3), "context_recall": 0.0}) == pytest.approx(0.5)


def test_a_missing_mark_is_undefined():
    assert math.isnan(information_score({"faithfulness": 1.0}))


@pytest.mark.parametrize(
    "weights", [{}, {"a": 0.5}, {"a": 1.5, "b": -0.5}, {"a": math.nan, "b": 1.0}, {"a": math.inf}, {"a": 1 + 1e-6}]
)
def test_weights_off_the_simplex_are_refused(weights):
    with pytest.raises(DataError, match="add up"):
        information_score({"a": 0.5, "b": 0.5}, weights)


vectors = arrays(np.float64, 5, elements=st.floats(-1e3, 1e3))


def long_enough(vector):
    return float(np.linalg.norm(vector)) > 1e-3


@given(vectors.filter(long_enough), vectors.filter(long_enough))
def test_the_distance_is_that_of_scipy(a, b):
    assert semantic_distance(a, b) == pytest.approx(cosine(a, b), abs=1e-9)
    assert semantic_distance(a, b) == semantic_distance(b, a)


@given(vectors.filter(long_enough), st.floats(1e-6, 1e6))
def test_length_does_not_count(a, scale):
    assert semantic_distance(a, scale * a) == pytest.approx(0.0, abs=1e-12)
    assert semantic_distance(a, -scale * a) == pytest.approx(2.0, abs=1e-12)


@given(arrays(np.float64, 4, elements=st.floats()), arrays(np.float64, 4, elements=st.floats()))
def test_any_numbers_give_a_distance_in_range_or_nothing(a, b):
    distance = semantic_distance(a, b)
    defined = bool(np.isfinite(a).all() and np.isfinite(b).all())
    assert 0 <= distance <= 2 if defined else math.isnan(distance)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_tiny_and_huge_embeddings_are_no_zero_vectors_and_do_not_overflow(scale):
    assert semantic_distance([scale, 0.0], [0.0, scale]) == 1.0
    assert semantic_distance([scale, scale], [scale, scale]) == pytest.approx(0.0, abs=1e-12)


def test_a_zero_vector_has_not_converged():
    assert semantic_distance([0.0, 0.0], [0.0, 0.0]) == 1.0
    assert semantic_distance([1.0, 0.0], [0.0, 0.0]) == 1.0


@pytest.mark.parametrize(("a", "b"), [([1.0], [1.0, 2.0]), ([], []), ([[1.0]], [[1.0]]), (1.0, 1.0)])
def test_embeddings_of_different_widths_are_refused(a, b):
    with pytest.raises(DataError, match="same width"):
        semantic_distance(a, b)
