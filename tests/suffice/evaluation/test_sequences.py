"""Confidence sequences: golden values of the paper's authors, laws, and how often any interval misses."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from hypothesis.extra import numpy as hnp

from suffice.errors import DataError
from suffice.evaluation.statistics import ConfidenceSequence, share, window_sequences
from suffice.evaluation.statistics.restarts import share_left
from suffice.evaluation.statistics.sequences import log_mixture, mixture_bound, rho_of

GOLDEN = json.loads((Path(__file__).resolve().parents[2] / "golden" / "confseq.json").read_text("utf-8"))
losses = hnp.arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([-1.0, -0.25, 0.0, 0.0, 0.5, 1.0]))


# Against the authors' package


@pytest.mark.parametrize("case", range(len(GOLDEN["cases"])))
def test_the_bound_is_that_of_the_authors(case):
    alpha, narrowest_at, scale = GOLDEN["cases"][case]
    ours = mixture_bound(np.array(GOLDEN["squares"]), alpha, rho_of(narrowest_at, 2 * alpha), scale)
    np.testing.assert_allclose(ours, GOLDEN["bounds"][case], rtol=1e-6)


def test_the_sequence_is_theorem_4_by_the_authors_bound():
    golden = GOLDEN["sequence"]
    start = ConfidenceSequence.start(golden["low"], golden["high"], golden["alpha"], narrowest_at=golden["v_opt"])
    looks = start.looks(golden["values"])
    np.testing.assert_allclose(looks.low_end, golden["low_ends"], rtol=1e-9)
    np.testing.assert_allclose(looks.high_end, golden["high_ends"], rtol=1e-9)


def test_the_slope_of_the_mixture_is_its_derivative():
    sums, squares = np.array([0.5, 3.0, 40.0, 900.0]), np.array([0.1, 5.0, 200.0, 1e5])
    step = 1e-5 * sums
    above, below = log_mixture(sums + step, squares, 3.0, 1.3)[0], log_mixture(sums - step, squares, 3.0, 1.3)[0]
    np.testing.assert_allclose(log_mixture(sums, squares, 3.0, 1.3)[1], (above - below) / (2 * step), rtol=1e-6)


# Laws


@given(losses, st.integers(0, 30))
def test_observations_in_two_parts_give_what_they_give_at_once(values, split):
    start = ConfidenceSequence.start(-1.0, 1.0, predictions=(-0.25, 0.25))
    parts, whole = start.observe(values[:split]).observe(values[split:]), start.observe(values)
    assert (parts.n, parts.total, parts.squares) == (whole.n, whole.total, whole.squares)
    assert parts.low_end == whole.low_end <= whole.mean <= whole.high_end == parts.high_end


@settings(max_examples=40)
@given(hnp.arrays(np.float64, (3, 12), elements=st.floats(0, 1)))
def test_many_sequences_are_each_what_it_is_alone_and_looks_are_states(values):
    start = ConfidenceSequence.start(0.0, 1.0, 0.1)
    together = replace(start, total=np.zeros(3), squares=np.zeros(3)).looks(values)
    for place in range(3):
        for n in (1, 7, 12):
            alone = start.observe(values[place, :n])
            assert together.low_end[place, n - 1] == pytest.approx(alone.low_end, abs=1e-12)
            assert together.high_end[place, n - 1] == pytest.approx(alone.high_end, abs=1e-12)


@settings(max_examples=50)
@given(losses)
def test_the_unit_of_the_observations_does_not_matter(values):
    ours = ConfidenceSequence.start(-1.0, 1.0).observe(values)
    points = ConfidenceSequence.start(-100.0, 100.0).observe(100 * values)
    assert points.high_end == pytest.approx(100 * ours.high_end)
    mirrored = ConfidenceSequence.start(-1.0, 1.0).observe(-values)
    assert mirrored.low_end == pytest.approx(-ours.high_end)


def test_before_the_first_observation_all_is_possible():
    start = ConfidenceSequence.start(-1.0, 1.0, shape=(2,))
    assert start.low_end.tolist() == [-1.0, -1.0]
    assert start.high_end.tolist() == [1.0, 1.0]
    assert np.isnan(start.mean).all()
    assert start.observe(np.zeros((2, 0))) is start


def test_confined_predictions_make_the_interval_narrower_where_they_are_right():
    rng = np.random.default_rng(1)
    rate, n = 0.01, 100_000
    weighted = np.where(rng.random(n) < rate, (rng.random(n) < 0.05) / rate, 0.0)
    plain = ConfidenceSequence.start(-1 / rate, 1 / rate).observe(weighted)
    ours = ConfidenceSequence.start(-1 / rate, 1 / rate, predictions=(-1.0, 1.0)).observe(weighted)
    harm = ConfidenceSequence.start(0.0, 1 / rate, predictions=(0.0, 1.0)).observe(weighted)
    assert plain.low_end < ours.low_end < harm.low_end < 0.05 < ours.high_end < plain.high_end


def test_mean_outside_the_predictions_is_still_covered():
    rng = np.random.default_rng(2)
    values = (rng.random((200, 500)) < 0.8).astype(float)
    looks = ConfidenceSequence.start(0.0, 1.0, predictions=(0.0, 0.1), shape=(200,)).looks(values)
    missed = ((looks.low_end > 0.8) | (looks.high_end < 0.8)).any(axis=-1)
    assert missed.mean() <= 0.05


# What it promises


def test_no_interval_misses_a_drifting_mean_too_often():
    rng = np.random.default_rng(3)
    runs, n = 120, 1500
    means = 0.1 + 0.2 * np.sin(np.arange(n) / 300)  # net losses: gains in one of ten
    drawn = rng.random((runs, n))
    values = np.where(drawn < 0.1, -1.0, np.where(drawn < 0.2 + means, 1.0, 0.0))
    looks = ConfidenceSequence.start(-1.0, 1.0, shape=(runs,)).looks(values)
    running = np.cumsum(means) / np.arange(1, n + 1)
    low, high = looks.low_end, looks.high_end
    assert ((low > running) | (high < running)).any(axis=-1).mean() <= 0.05
    assert ((high - low)[:, -1] < 0.2).all()  # it is not wide for nothing
    assert ((low > means[-1] + 0.1) | (high < means[-1])).any()  # the mean of now is another thing


def test_windows_share_alpha_and_forget():
    values = np.concatenate([np.zeros(1000), np.ones(150)])
    windows = window_sequences(values, [500, 500, 150], ConfidenceSequence.start(0.0, 1.0))
    assert [window.n for window in windows] == [500, 500, 150]
    assert [window.alpha for window in windows] == pytest.approx(0.05 * share([1, 2, 3]))
    assert windows[1].high_end < 0.1
    assert windows[2].low_end > 0.8
    assert windows[0].high_end < windows[1].high_end  # a later window is wider
    assert window_sequences([], [], ConfidenceSequence.start(0.0, 1.0)) == []


def test_shares_sum_to_one():
    numbers = np.arange(1, 10_001)
    for even in (1, 100):
        assert share(numbers, even).sum() + share_left(10_001, even) == pytest.approx(1.0, abs=1e-12)
        assert (np.diff(share(numbers, even)) < 0).all()
    assert share(1, 100) < 1.2 * share(5, 100)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"low": 1.0, "high": 1.0}, "low < high"),
        ({"high": np.inf}, "finite"),
        ({"alpha": 0.0}, "alpha"),
        ({"predictions": (-2.0, 0.0)}, "predictions"),
        ({"predictions": (0.5, 0.25)}, "predictions"),
        ({"narrowest_at": 0.0}, "narrowest_at"),
    ],
)
def test_impossible_settings_are_errors(settings, words):
    with pytest.raises(DataError, match=words):
        ConfidenceSequence.start(**({"low": -1.0, "high": 1.0} | settings))


@pytest.mark.parametrize("value", [np.nan, 1.5, -1.1])
def test_undefined_and_impossible_observations_are_errors(value):
    with pytest.raises(DataError, match="worst"):
        ConfidenceSequence.start(-1.0, 1.0).observe([0.0, value])


def test_windows_of_a_sequence_that_began_are_errors():
    start = ConfidenceSequence.start(0.0, 1.0)
    with pytest.raises(DataError, match="without observations"):
        window_sequences([0.0], [1], start.observe([0.0]))
    for lengths in ([1], [2, 1], [3, -1], []):
        with pytest.raises(DataError, match="in one"):
            window_sequences([0.0, 1.0], lengths, start)
