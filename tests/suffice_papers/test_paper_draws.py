"""The draws by place behind published figures, and means over cells: against scipy on the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.stats

from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling, paired_bootstrap, permutation_tests
from suffice_papers.cells import CellDeltas, macro_bootstrap
from suffice_papers.multinomial import bootstrap_weights, draws_by_place

SEED = 42


def skewed(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).gamma(1.0, 1.0, n) - 0.8


def test_weights_count_the_draws_and_come_from_the_seed_alone():
    weights = bootstrap_weights(7, 50, rng=SEED)
    drawn = np.random.default_rng(SEED).integers(0, 7, size=(50, 7))
    assert weights.tolist() == [np.bincount(row, minlength=7).tolist() for row in drawn]
    assert (weights.sum(axis=1) == 7).all()
    assert (weights == bootstrap_weights(7, 50, rng=np.random.default_rng(SEED))).all()


def test_no_units_cannot_be_drawn():
    with pytest.raises(DataError, match="allowed: >= 1"):
        bootstrap_weights(0, rng=0)


def test_intervals_on_draws_by_place_equal_scipys():
    row = skewed(60, 5)
    found = draws_by_place(Resampling(interval="percentile"), 60).paired(row)
    peer = scipy.stats.bootstrap(
        (row,), np.mean, vectorized=True, method="percentile", n_resamples=1000, rng=np.random.default_rng(SEED)
    ).confidence_interval
    assert (found.low, found.high) == pytest.approx((peer.low, peer.high), abs=1e-12)


def test_draws_by_place_draw_clusters_and_flip_signs_by_place():
    row = skewed(40, 6)
    names = [f"c{i % 25}" for i in range(40)]
    draws = draws_by_place(Resampling(n_resamples=50), 40, names)
    assert np.array_equal(draws.weights, bootstrap_weights(25, 50, rng=SEED))
    [test] = permutation_tests(row, n_resamples=50, rng=SEED, clusters=names)
    assert draws.compare({"a": row}, family=["a"])["a"].p == test.p
    alone = draws_by_place(Resampling(n_resamples=1), 40).paired(row)
    assert np.isnan([alone.low, alone.high]).all()
    cell = CellDeltas(name="one", deltas=row, questions=[*range(40)])
    assert np.isnan(macro_bootstrap([cell], n_resamples=1, rng=0).low).all()


def test_cells_over_the_same_questions_share_their_draws():
    first, second = np.stack([skewed(30, s) for s in (1, 2)]), np.stack([skewed(30, s) for s in (3, 4)])
    names = [f"q{i}" for i in range(30)]
    order = np.random.default_rng(0).permutation(30)
    cells = [
        CellDeltas(name="a", deltas=first, questions=names),
        CellDeltas(name="b", deltas=second[:, order], questions=[names[i] for i in order]),
    ]
    found = macro_bootstrap(cells, n_resamples=500, rng=SEED)
    expected = paired_bootstrap((first + second) / 2, bootstrap_weights(30, 500, rng=SEED), method="percentile")
    for name in ("delta", "low", "high"):
        np.testing.assert_allclose(getattr(found, name), getattr(expected, name), rtol=0, atol=1e-12)


def test_cells_over_other_questions_are_drawn_independently_as_scipy_draws_samples():
    rows = [skewed(30, 1), skewed(50, 2)]
    cells = [
        CellDeltas(name=str(i), deltas=row, questions=[(i, q) for q in range(len(row))]) for i, row in enumerate(rows)
    ]
    found = macro_bootstrap(cells, n_resamples=400, rng=SEED, level=0.9)
    peer = scipy.stats.bootstrap(
        rows,
        lambda a, b, axis=-1: (a.mean(axis=axis) + b.mean(axis=axis)) / 2,
        paired=False,
        vectorized=True,
        method="percentile",
        confidence_level=0.9,
        n_resamples=400,
        rng=np.random.default_rng(SEED),
    ).confidence_interval
    assert (found.low[0], found.high[0]) == pytest.approx((peer.low, peer.high), abs=1e-12)
    assert found.delta[0] == pytest.approx((rows[0].mean() + rows[1].mean()) / 2, abs=1e-15)  # cells weigh the same


def test_runs_of_a_question_are_drawn_together_in_every_cell():
    runs = CellDeltas(name="runs", deltas=np.array([[1.0, 0.0, 2.0]]), questions=["a", "b", "a"])
    once = CellDeltas(name="once", deltas=np.array([[0.5, -1.0]]), questions=["b", "a"])
    found = macro_bootstrap([runs, once], n_resamples=200, rng=SEED)
    drawn = np.random.default_rng(SEED).integers(0, 2, size=(200, 2))
    members = [({"a": [1.0, 2.0], "b": [0.0]}, {"a": [-1.0], "b": [0.5]})]
    means = [
        np.mean([np.mean([v for code in draw for v in cell["ab"[code]]]) for cell in members[0]])
        for draw in drawn.tolist()
    ]
    assert found.low[0] == pytest.approx(np.percentile(means, 2.5), abs=1e-12)
    assert found.high[0] == pytest.approx(np.percentile(means, 97.5), abs=1e-12)


WIKI = CellDeltas(name="2wiki", deltas=np.zeros((1, 2)), questions=["a", "b"])


@pytest.mark.parametrize(
    ("cells", "word"),
    [
        ([CellDeltas(name="hotpotqa", deltas=np.zeros((1, 3)), questions=["a", "b", "c"]), WIKI], "'hotpotqa'"),
        ([WIKI, CellDeltas(name="many", deltas=np.zeros((1, 9)), questions=["a", *range(8)])], "'many'"),
        ([], "no cells"),
        ([WIKI, CellDeltas(name="two", deltas=np.zeros((2, 2)), questions=["a", "b"])], "'two'"),
    ],
)
def test_cells_that_share_only_some_questions_are_refused_by_name(cells, word):
    with pytest.raises(DataError, match=word):
        macro_bootstrap(cells, rng=0)


@pytest.mark.parametrize(("deltas", "word"), [(np.zeros((1, 3)), "'odd'"), (np.array([[np.nan]]), "infinite")])
def test_a_cell_of_another_shape_or_without_numbers_is_refused(deltas, word):
    with pytest.raises(DataError, match=word):
        macro_bootstrap([CellDeltas(name="odd", deltas=deltas, questions=["a"])], rng=0)
