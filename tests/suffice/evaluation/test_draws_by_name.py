"""Figures on draws by name: they depend on no order of rows, no division into parts, and no other questions."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError
from suffice.evaluation.replay import replay
from suffice.evaluation.statistics import (
    INTERVALS,
    DrawnSums,
    KeyedWeights,
    Resampling,
    keyed_bits,
    keys_of,
    permutation_tests,
    poisson_weights,
    resampling as module,
)
from suffice.recordings import bundled_recording
from suffice_papers.family_tests import max_statistic

N = 80
RNG = np.random.default_rng(3)
NAMES = np.array([f"q{i}" for i in range(N)], dtype=object)
CLUSTERS = np.array([f"c{i % 23}" for i in range(N)], dtype=object)
DELTA = np.where(RNG.random(N) < 0.4, 0.0, RNG.normal(0.02, 0.3, N))


def figures(names, delta, method="expanded"):
    """Return every figure that draws or flips signs."""
    draws = Resampling(n_resamples=200, interval=method).draws(names)
    made = draws.compare({"a": delta, "b": -2 * delta}, family=["a", "b"])
    tests = draws.margins(np.clip(delta, -1, 1), [0.02])[0]
    family = max_statistic(np.stack([delta, -delta]), draws.weights, clusters=draws.clusters)
    return [
        *(x for one in made.values() for x in (one.delta, one.low, one.high, one.p, one.p_holm, one.n_clusters)),
        *(x for test in tests for x in (test.low_bootstrap, test.p_exact, test.shown_above)),
        *draws.ratio(np.abs(delta) + 1, np.abs(delta) + 2)[0],
        *family.p.tolist(),
    ]


@pytest.mark.parametrize("method", INTERVALS)
@pytest.mark.parametrize("names", [NAMES, CLUSTERS], ids=["questions", "clusters"])
def test_the_order_of_the_rows_changes_no_figure(names, method):
    order = np.random.default_rng(1).permutation(N)
    once, again = figures(names, DELTA, method), figures(names[order], DELTA[order], method)
    assert once == pytest.approx(again, rel=1e-9, abs=1e-12)
    renamed = np.array([f"other {name}" for name in names], dtype=object)
    assert figures(renamed, DELTA, method) != pytest.approx(once, rel=1e-9, abs=1e-12)


def test_unrelated_questions_change_no_draw():
    both = Resampling(n_resamples=50).draws([*NAMES, *(f"more {i}" for i in range(30))])
    alone = Resampling(n_resamples=50).draws(NAMES)
    assert np.array_equal(both.by_row[:, :N], alone.by_row)
    assert np.array_equal(keyed_bits(both.keys, 70, seed=2)[:N], keyed_bits(alone.keys, 70, seed=2))


@given(cuts=st.sets(st.integers(1, N - 1), max_size=5))
@settings(max_examples=15, deadline=None)
def test_parts_that_are_added_give_the_interval_of_all_questions(cuts):
    ends = [0, *sorted(cuts), N]
    how = Resampling(n_resamples=100)
    parts = [
        DrawnSums.of(DELTA[None, a:b], poisson_weights(keys_of(NAMES[a:b]), 100, seed=how.seed))
        for a, b in itertools.pairwise(ends)
    ]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    [added], whole = total.paired(how), how.draws(NAMES).paired(DELTA)
    assert added.triple == pytest.approx(whole.triple, abs=1e-12)


@pytest.mark.parametrize("names", [NAMES, CLUSTERS], ids=["questions", "clusters"])
def test_weights_made_piece_by_piece_give_the_same_figures(names, monkeypatch):
    kept = figures(names, DELTA)
    monkeypatch.setattr(module, "_MOST_WEIGHTS", 1)
    assert isinstance(Resampling().draws(names).weights, KeyedWeights)
    assert figures(names, DELTA) == pytest.approx(kept, rel=1e-9, abs=1e-12)


def test_the_draws_of_a_name_are_the_same_everywhere():
    assert poisson_weights(keys_of(["q1", "q2"]), 12, seed=42).astype(int).T.tolist() == [
        [1, 1, 1, 3, 1, 0, 0, 2, 2, 2, 1, 0],
        [4, 1, 2, 1, 1, 1, 2, 3, 2, 1, 2, 1],
    ]
    assert keyed_bits(keys_of(["q1", "q2"]), 12, seed=42).tolist() == [
        [1, 0, 0, 1, 0, 0, 1, 1, 1, 0, 1, 1],
        [1, 1, 1, 0, 1, 0, 0, 1, 0, 0, 0, 1],
    ]


def test_signs_are_even_and_unrelated_to_weights():
    keys = keys_of(f"question {i}" for i in range(400))
    signs, weights = 2.0 * keyed_bits(keys, 500, seed=1).T - 1, poisson_weights(keys, 500, seed=1)
    assert set(np.unique(signs)) == {-1.0, 1.0}
    assert abs(signs.mean()) < 5 / np.sqrt(signs.size)
    assert abs(np.corrcoef(signs.ravel(), weights.ravel())[0, 1]) < 5 / np.sqrt(signs.size)


def test_signs_by_name_need_a_seed():
    with pytest.raises(DataError, match="seed"):
        permutation_tests(DELTA, rng=np.random.default_rng(0), keys=keys_of(NAMES))


def test_a_recording_in_another_order_replays_to_the_same_figures():
    recording = bundled_recording("self_refine_dv3")
    table = recording.table
    ids = np.array(table.column("question_id").to_pylist())
    names = np.unique(ids)
    places = np.random.default_rng(4).permutation(len(names))[np.searchsorted(names, ids)]
    turned = type(recording)(table.take(np.argsort(places, kind="stable")), recording.metadata)
    assert turned.question_ids != recording.question_ids
    made = [replay(item, ["semantic(0.03)"], metrics=["target_sentiment"]) for item in (recording, turned)]
    for one, other in zip(made[0].rows, made[1].rows, strict=True):
        assert one.label == other.label
        for name, delta in one.deltas.items():
            assert delta.triple == pytest.approx(other.deltas[name].triple, abs=1e-12)
            assert delta.p == pytest.approx(other.deltas[name].p, abs=1e-12, nan_ok=True)
