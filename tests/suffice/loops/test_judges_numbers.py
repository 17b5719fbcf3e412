"""Judges without a model, weights and noise: against reference implementations, plain loops and laws."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize
from scipy.stats import gmean

from suffice.errors import DataError
from suffice.loops.judges import (
    ahp_weights,
    checked_weights,
    embedding_similarity,
    entropy_weights,
    equal_weights,
    least_squares_weights,
    noise_of,
    rouge_l,
    token_f1,
)
from suffice.policy.metrics import f1, information_score


@pytest.fixture(scope="module")
def scorer():
    from rouge_score import rouge_scorer

    return rouge_scorer.RougeScorer(["rougeL"])


WORDS = st.lists(st.sampled_from(["the", "cat", "Cat", "sat", "on", "a", "mat.", "é", "3rd"]), max_size=12).map(
    " ".join
)

# By gold answers


@given(WORDS, WORDS)
def test_rouge_l_is_that_of_the_reference_implementation(scorer, draft, gold):
    found = rouge_l(draft, [gold])
    expected = scorer.score(gold, draft)["rougeL"].fmeasure
    if math.isnan(found):
        assert expected == 0
    else:
        assert found == pytest.approx(expected)


def test_rouge_l_takes_the_best_gold_and_skips_empty_ones():
    assert rouge_l("a b c", ["x", "a c", "..."]) == pytest.approx(0.8)
    assert math.isnan(rouge_l("a", []))
    assert math.isnan(rouge_l("a", ["...", "Осло"]))
    assert rouge_l(None, ["a"]) == rouge_l("", ["a"]) == 0.0


def test_rouge_l_of_200k_characters_takes_no_time():
    draft = " ".join(f"w{i % 997}" for i in range(40_000))
    assert rouge_l(draft, [draft]) == 1.0


def test_token_f1_is_the_official_one_and_undefined_without_gold():
    assert token_f1("1979 film The Tempest", ["The Tempest", "x"]) == f1("1979 film The Tempest", ["The Tempest"])
    assert math.isnan(token_f1("a", []))


def embedder(table):
    return lambda texts: [table[text] for text in texts]


def test_embedding_similarity_is_the_largest_cosine():
    embed = embedder({"d": [1, 0], "same way": [5, 0], "across": [0, 1], "half": [1, 1], "against": [-2, 0]})
    assert embedding_similarity("d", ["across", "same way"], embed) == pytest.approx(1)
    assert embedding_similarity("d", ["half"], embed) == pytest.approx(math.sqrt(0.5))
    assert embedding_similarity("d", ["against"], embed) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("draft", "golds"),
    [(None, ["a"]), (" ", ["a"]), ("d", []), ("d", [" "]), ("d", ["zero"]), ("d", ["nan"]), ("nan", ["d"])],
)
def test_embedding_similarity_is_undefined_where_there_is_nothing_to_compare(draft, golds):
    embed = embedder({"d": [1.0, 0.0], "zero": [0.0, 0.0], "nan": [math.nan, 0.0], "a": [1.0, 0.0]})
    assert math.isnan(embedding_similarity(draft, golds, embed))


@pytest.mark.parametrize("vectors", [[[1.0, 0.0]], [1.0, 0.0], [[[1.0]], [[1.0]]]])
def test_an_embedder_of_another_count_or_shape_is_refused(vectors):
    with pytest.raises(DataError, match="per text"):
        embedding_similarity("d", ["a"], lambda texts: vectors)


# Weights

MARKS = ("a", "b", "c", "d")


def columns(rng, n=30, m=4):
    return dict(zip(MARKS[:m], rng.random((m, n)), strict=True))


def on_simplex(weights):
    assert all(value >= 0 for value in weights.values())
    assert sum(weights.values()) == pytest.approx(1, abs=1e-12)
    assert 0 <= information_score(dict.fromkeys(weights, 0.5), weights) <= 1
    return True


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_all_weights_lie_on_the_simplex_and_feed_the_score(seed, m):
    rng = np.random.default_rng(seed)
    given_columns = columns(rng, m=m)
    assert on_simplex(equal_weights(MARKS[:m]))
    assert on_simplex(entropy_weights(given_columns))
    assert on_simplex(least_squares_weights(given_columns, rng.random(30)))
    importance = rng.random(m) + 0.1
    assert on_simplex(ahp_weights(MARKS[:m], importance[:, None] / importance)[0])


def test_entropy_weights_are_those_of_the_formula_by_hand():
    a, b = [1.0, 0.0], [0.5, 0.25]
    e_b = -(2 / 3 * math.log(2 / 3) + 1 / 3 * math.log(1 / 3)) / math.log(2)
    found = entropy_weights({"a": a, "b": b})
    assert found["a"] == pytest.approx(1 / (2 - e_b))
    assert found["b"] == pytest.approx((1 - e_b) / (2 - e_b))


def test_constant_marks_weigh_nothing_by_entropy_and_all_constant_fails():
    assert entropy_weights({"a": [0.3, 0.3, 0.3], "z": [0, 0, 0], "b": [0.1, 0.2, 0.3]}) == {
        "a": 0.0,
        "z": 0.0,
        "b": 1.0,
    }
    with pytest.raises(DataError, match="varies"):
        entropy_weights({"a": [0.3, 0.3], "b": [0.0, 0.0]})


def test_undefined_rows_do_not_count():
    full = {"a": [0.1, 0.9, 0.4], "b": [0.5, 0.6, 0.2]}
    holes = {"a": [0.1, math.nan, 0.9, 0.4], "b": [0.5, 0.3, 0.6, 0.2]}
    assert entropy_weights(full) == entropy_weights(holes)
    assert least_squares_weights(full, [0, 1, 0.5]) == least_squares_weights(holes, [0, 0, 1, 0.5])


def test_ahp_gives_back_consistent_importance_and_saatys_ratio_for_the_inconsistent():
    weights, ratio = ahp_weights(MARKS[:3], [[1, 2, 6], [1 / 2, 1, 3], [1 / 6, 1 / 3, 1]])
    assert list(weights.values()) == pytest.approx([0.6, 0.3, 0.1])
    assert ratio == pytest.approx(0, abs=1e-12)
    matrix = np.array([[1, 3, 5], [1 / 3, 1, 3], [1 / 5, 1 / 3, 1]])
    weights, ratio = ahp_weights(MARKS[:3], matrix)
    assert list(weights.values()) == pytest.approx([0.6370, 0.2583, 0.1047], abs=5e-5)  # Saaty's textbook example
    assert ratio == pytest.approx((3.03851 - 3) / 2 / 0.58, abs=1e-4)
    assert list(weights.values()) == pytest.approx(
        gmean(matrix, axis=1) / gmean(matrix, axis=1).sum()
    )  # exact for n = 3
    assert ahp_weights(MARKS[:3], [[1, 9, 1 / 9], [1 / 9, 1, 9], [9, 1 / 9, 1]])[1] > 1
    assert ahp_weights(["a"], [[1]]) == ({"a": 1.0}, 0.0)


@pytest.mark.parametrize(
    "matrix", [[[1, 2], [2, 1]], [[1, -2], [-0.5, 1]], [[2, 1], [1, 2]], [[1, 2, 3]], [[1, math.nan], [1, 1]]]
)
def test_ahp_refuses_what_is_not_reciprocal(matrix):
    with pytest.raises(DataError, match="AHP"):
        ahp_weights(["a", "b"], matrix)


@pytest.mark.parametrize("seed", range(8))
def test_least_squares_weights_are_optimal(seed):
    rng = np.random.default_rng(seed)
    given_columns = columns(rng)
    target = rng.random(30) if seed % 2 else np.clip(given_columns["a"] * 0.7 + given_columns["c"] * 0.3, 0, 1)
    matrix = np.stack(list(given_columns.values()), axis=1)

    def loss(w):
        return float(((matrix @ w - target) ** 2).sum())

    found = np.array(list(least_squares_weights(given_columns, target).values()))
    sum_to_one = {"type": "eq", "fun": lambda w: w.sum() - 1}
    best = minimize(loss, np.full(4, 0.25), bounds=[(0, 1)] * 4, constraints=sum_to_one, tol=1e-12)
    assert loss(found) <= best.fun + 1e-9
    grid = [np.array(w) / 10 for w in itertools.product(range(11), repeat=4) if sum(w) == 10]
    assert loss(found) <= min(map(loss, grid)) + 1e-12
    if not seed % 2:
        assert found == pytest.approx([0.7, 0, 0.3, 0], abs=1e-9)


@pytest.mark.parametrize(
    "bad",
    [{}, {"a": [0.1]}, {"a": [0.1, 1.2]}, {"a": [0.1, 0.2], "b": [0.1]}, {"a": [[0.1, 0.2]]}, {"a": [math.nan] * 3}],
)
def test_columns_that_are_no_marks_are_refused(bad):
    with pytest.raises(DataError):
        entropy_weights(bad)


def test_own_weights_are_checked_and_filled_up():
    assert checked_weights({"b": 1.0}, ["a", "b"]) == {"a": 0.0, "b": 1.0}
    with pytest.raises(DataError, match="unknown mark"):
        checked_weights({"x": 1.0}, ["a"])
    with pytest.raises(DataError, match="add up"):
        checked_weights({"a": 2.0}, ["a"])


# Noise


@given(st.integers(0, 10_000))
def test_noise_is_that_of_a_plain_loop(seed):
    rng = np.random.default_rng(seed)
    marks = rng.integers(0, 5, size=(7, 3)) / 4
    marks[rng.random(marks.shape) < 0.3] = np.nan
    equal, difference, squares, freedom = [], [], [], 0
    for row in marks:
        seen = [value for value in row if not math.isnan(value)]
        pairs = list(itertools.combinations(seen, 2))
        if pairs:
            equal.append(sum(a == b for a, b in pairs) / len(pairs))
            difference.append(sum(abs(a - b) for a, b in pairs) / len(pairs))
            squares += [(value - sum(seen) / len(seen)) ** 2 for value in seen]
            freedom += len(seen) - 1
    found = noise_of(marks)
    assert found.drafts == len(equal)
    assert found.undefined == pytest.approx(np.isnan(marks).mean())
    if equal:
        assert found.equal == pytest.approx(np.mean(equal))
        assert found.difference == pytest.approx(np.mean(difference))
        assert found.sd == pytest.approx(math.sqrt(sum(squares) / freedom))
    else:
        assert math.isnan(found.equal)


def test_noise_without_repeats_is_refused_and_without_drafts_undefined():
    for marks in ([[0.5]], [0.5, 0.5]):
        with pytest.raises(DataError, match="repeats"):
            noise_of(marks)
    empty = noise_of(np.empty((0, 2)))
    assert empty.drafts == 0
    assert math.isnan(empty.sd)
    assert math.isnan(empty.undefined)
