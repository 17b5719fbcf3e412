"""The risk that tested candidates share, and the interval beside each of them."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from suffice.common.results import jsonable
from suffice.errors import SchemaError
from suffice.verdicts.decisions import Wealth, decide
from suffice.verdicts.decisions.fallback import CandidateTest, fallback, fewest, risk_shares
from suffice.verdicts.decisions.wealth import LossCounts
from tests.suffice.verdicts.test_decide import converged_at_2, log_of

LOSSES = np.array([[0.0, 0.0, 1.0, -1.0, 0.25, 0.0, 0.0, 0.5], [0.0] * 8])


def test_the_shares_of_the_risk_add_up_to_one():
    for n in range(1, 100):
        assert len(risk_shares(n)) == n
        assert sum(risk_shares(n)) == pytest.approx(1.0, abs=1e-10)
        assert sum(risk_shares(n)) <= 1 + 1e-13  # a file with more is refused
    assert risk_shares(0) == ()


@given(st.integers(1, 7), st.data())
def test_bad_candidates_are_never_tested_at_more_than_the_risk_together(n, data):
    """All good candidates pass whatever happens: the levels of the bad ones, which pass nothing, add up to at most alpha."""
    bad = data.draw(st.sets(st.integers(0, n - 1), min_size=1))
    shares = data.draw(st.sampled_from([risk_shares(n), (1 / n,) * n, (1.0, *(0.0,) * (n - 1))]))
    done = fallback(range(n), shares, 0.05, lambda place, level: place not in bad)
    assert sum(test.level for test in done if test.place in bad) <= 0.05 + 1e-12


def test_all_of_the_risk_on_the_first_is_a_fixed_sequence():
    p_values = {3: 0.001, 1: 0.2, 2: 0.0}
    done = fallback([3, 1, 2], (1.0, 0.0, 0.0), 0.05, lambda place, level: level > 0 and p_values[place] <= level)
    assert [test.passed for test in done] == [True, False, False]


def fewest_by_trying(log_lacking, shares, alpha, place):
    """Return the smallest number of questions after which a candidate passes; evidence grows by a known rate with each."""
    for number in range(3000):
        done = fallback(
            range(len(shares)),
            shares,
            alpha,
            lambda one, level, number=number: log_lacking[one][0] + number * log_lacking[one][1] >= -np.log(level),
        )
        if done[place].passed:
            return number
    return None


RATES = st.integers(-1, 50).map(lambda number: number / 1000)


HAVE = st.sampled_from([0.0, 1.0, 2.0, 3.0]) | st.floats(0, 3.5)  # 3 is enough for all of the risk, and for no share


@settings(max_examples=50)
@given(st.lists(st.tuples(HAVE, RATES), min_size=1, max_size=5), st.data())
def test_the_fewest_questions_are_those_after_which_it_passes(evidence, data):
    n = len(evidence)
    shares, place = risk_shares(n), data.draw(st.integers(0, n - 1))

    def is_shown(one: int, level: float) -> bool:
        return evidence[one][0] >= -np.log(level)

    def more(one: int, level: float) -> int | None:
        have, rate = evidence[one]
        if is_shown(one, level):
            return 0
        needed = int(np.ceil((-np.log(level) - have) / rate)) if rate > 0 else None
        return needed if needed is None or needed < 3000 else None

    done = fallback(range(n), shares, 0.05, is_shown)
    if done[place].passed:
        assert fewest(done, shares, 0.05, place, more) is None
        return
    # What has passed stays so; it is only what is open that must still grow.
    kept = [(100.0, 0.0) if test.passed else each for test, each in zip(done, evidence, strict=True)]
    kept = [(have, rate if rate > 0 else 0.0) for have, rate in kept]
    found = fewest(done, shares, 0.05, place, more)
    tried = fewest_by_trying(kept, shares, 0.05, place)
    assert found == tried or abs((found or 0) - (tried or 0)) <= 1


def plain_wealth(losses, bound, side, shares):
    """Return the wealth of gamblers with constant stakes by a loop over them and the losses."""
    worst = 1 - bound if side == "below" else 1 + bound
    total = 0.0
    for share, part in zip(shares, np.geomspace(0.01, 1.0, 12), strict=True):
        capital = 1.0
        for loss in losses:
            gain = bound - loss if side == "below" else loss - bound
            capital *= 1 + 0.99 / worst * part * gain
        total += share * capital
    return total


@pytest.mark.parametrize("level", [0.5, 0.9])
@pytest.mark.parametrize("row", [0, 1])
def test_a_bound_is_where_the_wealth_of_a_bet_reaches_it(row, level):
    shares = Wealth.start(0.02, "below", 1).shares[0]
    counts = LossCounts.of(LOSSES, LOSSES)
    most, least = counts.bound(row, "below", shares, level), counts.bound(row, "above", shares, level)
    assert -1 <= least < LOSSES[row].mean() < most <= 1
    for end, side, sign in ((most, "below", 1), (least, "above", -1)):
        if abs(end) < 1:
            assert plain_wealth(LOSSES[row], end + sign * 1e-4, side, shares) >= 1 / level
            assert plain_wealth(LOSSES[row], end - sign * 1e-4, side, shares) < 1 / level


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=30), st.integers(0, 30))
def test_counts_of_two_visits_are_the_counts_of_one(losses, cut):
    rows = np.array([losses])
    both = LossCounts.of(rows[:, :cut], rows[:, :cut]) + LossCounts.of(rows[:, cut:], rows[:, cut:])
    once = LossCounts.of(rows, rows)
    assert both == once
    assert LossCounts.from_dict(json.loads(json.dumps(jsonable(once))), 1, len(losses)) == both
    values = np.repeat([*once.worst[0]], [*once.worst[0].values()]) / 1000
    assert -1e-9 <= values.mean() - rows.mean() <= 0.001 + 1e-9  # rounded against the claim


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: data.pop("worst"),
        lambda data: data.update(best=[{"2000": 8}, {"0": 8}]),
        lambda data: data.update(best=[{"0": 8}]),
        lambda data: data["worst"][0].update({"5": 1}),
        lambda data: data["worst"][0].update({"x": 1}),
    ],
)
def test_damaged_counts_are_refused(damage):
    data = jsonable(LossCounts.of(LOSSES, LOSSES))
    damage(data)
    with pytest.raises(SchemaError):
        LossCounts.from_dict(data, 2, 8)


def test_nothing_is_excluded_at_no_risk_or_by_few_questions():
    shares = Wealth.start(0.02, "below", 1).shares[0]
    counts = LossCounts.of(LOSSES[:, :1], LOSSES[:, :1])
    assert (counts.bound(0, "below", shares, 0.0), counts.bound(0, "above", shares, 0.0)) == (1.0, -1.0)
    assert counts.bound(0, "below", shares, 0.001) == pytest.approx(1.0, abs=1e-3)


def test_intervals_contain_the_mean_loss_at_every_look_mostly():
    rng, shares, missed = np.random.default_rng(5), Wealth.start(0.02, "below", 1).shares[0], 0
    for _ in range(150):
        losses = rng.choice([0.0, 1.0, -1.0], 300, p=[0.93, 0.05, 0.02])[None]
        looks = (LossCounts.of(losses[:, :n], losses[:, :n]) for n in (20, 50, 100, 200, 300))
        missed += any(
            not look.bound(0, "above", shares, 0.05) <= 0.03 <= look.bound(0, "below", shares, 0.05) for look in looks
        )
    assert missed <= 24  # 10 % are 15, and three standard deviations more


def test_a_proved_interval_ends_at_the_accepted_loss_or_above():
    advice = decide(log_of(400, converged_at_2), metric="quality")
    by_name = {figures.policy: figures for figures in advice.figures}
    assert by_name["fixed_k(2)"].selected_here
    assert -0.02 <= by_name["fixed_k(2)"].change[1] < 0
    assert by_name["fixed_k(1)"].tested
    assert by_name["fixed_k(1)"].change[1] < -0.2
    assert np.isnan(by_name["fixed_k(4)"].change[1])  # not tested


def test_a_large_gain_has_an_interval_of_gains():
    advice = decide(log_of(400, lambda q, r: 0.0 if r > 2 and q % 4 == 0 else 1.0), metric="quality")
    mean, low, high = advice.figures[advice.chosen].change
    assert 0 < low < mean < high
    wealth, shares = advice.trial.losses, advice.trial.below.shares[advice.chosen]
    at, n = advice.trial.sequence.index(advice.chosen), len(advice.trial.sequence)
    assert low == -wealth.bound(at, "below", shares, 0.025 / n)


def test_what_is_excluded_so_far_is_printed_where_nothing_is_proved():
    advice = decide(log_of(100, converged_at_2), metric="quality")
    _, low, _ = advice.figures[advice.chosen].change
    assert low < -0.02
    assert f"do not rule out a loss of 2 points, only of {-100 * low:.1f}." in advice.sentence


@given(st.permutations(range(4)))
def test_tests_are_reported_in_their_order(order):
    done = fallback(order, risk_shares(4), 0.05, lambda place, level: place % 2 == 0)
    assert [test.place for test in done] == order
    for before, after in itertools.pairwise(done):
        expected = (before.level if before.passed else 0.0) + 0.05 * risk_shares(4)[done.index(after)]
        assert after == CandidateTest(after.place, pytest.approx(expected), after.place % 2 == 0)
