"""The alarm with restarts: exact expectations, a plain double loop, and how late a change may come."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp

from suffice.errors import DataError
from suffice.evaluation.statistics import Alarm, share
from suffice.evaluation.statistics.restarts import EVEN, share_left

LOSSES = st.sampled_from([-1.0, -0.5, 0.0, 0.0, 0.25, 1.0])


def by_definition(alarm, losses, audited, rates=None):
    """The value after each question: every stake and every beginning by itself, as the docstring defines it."""
    bets, entries, due = [], [], True
    values = []
    for place, (loss, drawn) in enumerate(zip(losses, audited, strict=True)):
        if alarm.least_rate is None:
            gain, bet = (loss - alarm.epsilon, True) if drawn else (0.0, False)
        else:
            weighted = loss / rates[place] if drawn else 0.0
            gain, bet, due = alarm.least_rate * (weighted - alarm.epsilon), due, bool(drawn)
        if bet:
            entries.append(place)
        bets.append(gain)
        value = float(share_left(len(entries) + 1, EVEN))
        for number, entry in enumerate(entries, 1):
            capitals = [math.prod(1 + stake * gain for gain in bets[entry:]) for stake in alarm.stakes]
            value += float(share(number, EVEN)) * sum(capitals) / len(capitals)
        values.append(value)
    return values


@given(st.lists(st.tuples(LOSSES, st.booleans()), min_size=1, max_size=12), st.sampled_from([None, 0.1]))
def test_the_value_is_its_definition(questions, least_rate):
    losses, audited = np.array([loss for loss, _ in questions]), [drawn for _, drawn in questions]
    rates = np.linspace(0.1, 0.7, len(losses))
    alarm = Alarm.start(0.03, least_rate=least_rate)
    expected = by_definition(alarm, losses, audited, rates)
    path = alarm.path(losses, audited=audited, rates=rates)
    np.testing.assert_allclose(path, np.log(expected), atol=1e-10)
    after = alarm.observe(losses, audited=audited, rates=rates)
    assert after.log_value == path[-1]
    assert after.log_highest == max(0.0, path.max())
    assert after.n == len(losses)


@given(
    hnp.arrays(np.float64, st.integers(1, 40), elements=LOSSES),
    st.integers(0, 40),
    st.sampled_from([None, 0.2]),
    st.randoms(use_true_random=False),
)
def test_questions_in_two_parts_give_what_they_give_at_once(losses, split, least_rate, random):
    audited = np.array([random.random() < 0.6 for _ in losses])
    start = Alarm.start(0.05, 0.5, least_rate=least_rate)
    whole = start.observe(losses, audited=audited, rates=0.6)
    parts = start.observe(losses[:split], audited=audited[:split], rates=0.6)
    parts = parts.observe(losses[split:], audited=audited[split:], rates=0.6)
    np.testing.assert_allclose(parts.log_capital, whole.log_capital, atol=1e-12)
    assert parts.log_highest == pytest.approx(whole.log_highest, abs=1e-12)
    assert (parts.n, parts.begun, parts.rang_at) == (whole.n, whole.begun, whole.rang_at)


def test_many_runs_are_each_what_it_is_alone_in_any_block(monkeypatch):
    rng = np.random.default_rng(0)
    losses, audited = rng.choice([-1.0, 0.0, 0.0, 1.0], (4, 300)), rng.random((4, 300)) < 0.3
    for least_rate in (None, 0.3):
        together = Alarm.start(0.02, least_rate=least_rate, shape=(4,)).observe(losses, audited=audited, rates=0.3)
        with monkeypatch.context() as patch:
            patch.setattr("suffice.evaluation.statistics.restarts._VALUES_AT_ONCE", 70)
            for place in range(4):
                alone = Alarm.start(0.02, least_rate=least_rate)
                alone = alone.observe(losses[place], audited=audited[place], rates=0.3)
                assert alone.log_value == pytest.approx(together.log_value[place], abs=1e-9)
                assert alone.rang_at == together.rang_at[place]


# It is a supermartingale


@st.composite
def at_the_bound(draw, low):
    """A bound and a distribution on three losses whose mean it is."""
    epsilon, loss = draw(st.floats(0.01, 0.5)), draw(st.floats(low, 1))
    gain = draw(st.floats(0, 0.3))
    # low with chance `gain`, 1 with what makes the mean epsilon, and `loss` with a share of the rest.
    share_of_loss = draw(st.floats(0, 1)) * (1 - gain) * (0.0 if loss > epsilon else 0.2)
    worst = epsilon - gain * low - share_of_loss * loss
    chances = np.array([gain, share_of_loss, worst, 1 - gain - share_of_loss - worst])
    return (epsilon, np.array([low, loss, 1.0, 0.0]), chances) if (chances >= 0).all() else (epsilon, None, None)


@given(at_the_bound(-1.0) | at_the_bound(0.0), st.floats(0.05, 1))
def test_the_value_is_expected_to_stay_one_at_the_bound(case, rate):
    epsilon, values, chances = case
    if values is None:
        return
    low, n = float(values.min()), 3
    runs = np.array(list(itertools.product(range(len(values)), range(2), repeat=n))).reshape(-1, n, 2)
    losses, audited = values[runs[..., 0]], runs[..., 1] == 1
    probability = (chances[runs[..., 0]] * np.where(audited, rate, 1 - rate)).prod(axis=-1)
    for least_rate in (None, rate, rate / 3):
        alarm = Alarm.start(epsilon, low=low, least_rate=least_rate, shape=(len(runs),))
        path = np.exp(alarm.path(losses, audited=audited, rates=rate))
        np.testing.assert_allclose(probability @ path, 1.0, atol=1e-9)
        assert (path > 0).all()


def test_rates_that_depend_on_the_question_need_weights():
    # Easy questions never lose and are seldom audited; of the hard ones, a tenth, every fifth loses: the mean is at the bound.
    kinds = [(0.9, 0.05, 0.0), (0.1, 0.5, 0.2)]  # share, rate, chance of a loss
    outcomes = [
        (share_of_kind * draw * lost, rate, bool(drawn), loss)
        for share_of_kind, rate, chance in kinds
        for drawn, draw in ((1, rate), (0, 1 - rate))
        for loss, lost in ((1.0, chance), (0.0, 1 - chance))
    ]
    runs = np.array(list(itertools.product(range(len(outcomes)), repeat=3)))
    chances, rates, drawn, losses = (np.array(column)[runs] for column in zip(*outcomes, strict=True))
    probability = chances.prod(axis=-1)
    start = {"epsilon": 0.02, "low": 0.0, "shape": (len(runs),)}
    weighted = Alarm.start(**start, least_rate=0.05).observe(losses, audited=drawn, rates=rates)
    assert probability @ np.exp(weighted.log_value) == pytest.approx(1.0)
    assert probability @ np.exp(Alarm.start(**start).observe(losses, audited=drawn).log_value) > 1.001


@given(hnp.arrays(np.float64, (2, 50), elements=st.sampled_from([-1.0, 1.0])))
def test_nobody_owes_anything(losses):
    for low, least_rate in ((-1.0, None), (0.0, None), (-1.0, 0.01), (0.0, 0.01)):
        alarm = Alarm.start(0.001, low=low, least_rate=least_rate, shape=(2,))
        path = alarm.path(np.maximum(losses, low), rates=0.01)
        assert np.isfinite(path).all()


# What it is good for


def test_the_alarm_rings_and_stays():
    alarm = Alarm.start(0.02, low=0.0).observe(np.ones(10))
    assert alarm.rings
    assert 1 < alarm.rang_at <= 10
    before = Alarm.start(0.02, low=0.0).observe(np.ones(alarm.rang_at - 1))
    assert not before.rings
    after = alarm.observe(np.zeros(100_000))
    assert after.rang_at == alarm.rang_at
    assert after.log_value < 0 < after.log_highest == alarm.log_highest
    assert after.observe([]) == after


def test_a_late_change_is_noticed_about_as_fast_as_an_early_one():
    failing = np.tile([0.0] * 9 + [1.0], 500)
    delays = {}
    for age in (0, 1_000, 100_000, 1_000_000):
        good = Alarm.start(0.02).observe(np.zeros(age))
        delays[age] = int(good.observe(failing).rang_at) - age
    assert 0 < delays[0] < delays[1_000] < delays[100_000] < delays[1_000_000] < 4 * delays[0]


def test_long_silence_keeps_numbers_exact():
    alarm = Alarm.start(0.02)
    for _ in range(10):
        alarm = alarm.observe(np.tile([-1.0, -1.0, 1.0, 0.0], 50_000))
    assert np.isfinite(alarm.log_capital).all()
    assert alarm.begun == alarm.n == 2_000_000
    assert -40 < alarm.log_value < 0
    assert alarm.observe(np.ones(200)).rings


def test_false_alarms_are_as_rare_as_promised():
    rng = np.random.default_rng(4)
    drawn = rng.random((400, 3000))
    losses = np.where(drawn < 0.05, -1.0, np.where(drawn < 0.12, 1.0, 0.0))
    at_the_limit = Alarm.start(0.02, 0.2, shape=(400,)).observe(losses)
    assert 0.01 <= at_the_limit.rings.mean() <= 0.2  # not over-cautious by an order of magnitude


def test_a_lost_audit_counts_as_loss_and_unaudited_requests_as_nothing():
    nan = float("nan")
    alarm = Alarm.start(0.02)
    lost = alarm.observe([0.0, nan, 0.0, nan], audited=[1, 1, 1, 0])
    assert lost.log_value == alarm.observe([0.0, 1.0, 0.0]).log_value
    assert (lost.n, lost.begun) == (4, 3)


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"alpha": 1.0}, "alpha"),
        ({"low": 0.1}, "smallest loss"),
        ({"least_rate": 0.0}, "smallest rate"),
    ],
)
def test_impossible_settings_are_errors(settings, words):
    with pytest.raises(DataError, match=words):
        Alarm.start(**({"epsilon": 0.02} | settings))


def test_impossible_observations_are_errors():
    with pytest.raises(DataError, match="losses"):
        Alarm.start(0.02, low=0.0).observe([-1.0])
    with pytest.raises(DataError, match="need rates"):
        Alarm.start(0.02, least_rate=0.05).observe([0.0])
    with pytest.raises(DataError, match="of audits"):
        Alarm.start(0.02, least_rate=0.05).observe([0.0], rates=0.04)
