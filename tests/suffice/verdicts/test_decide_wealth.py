"""The bets behind a verdict: no mixture of stakes makes a false claim more likely, and a number of questions suffices."""

from __future__ import annotations

import itertools
import json
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from suffice.errors import SchemaError
from suffice.verdicts.decisions import Advice, Wealth, decide
from suffice.verdicts.decisions.wealth import N_STAKES
from tests.suffice.verdicts.test_decide import converged_at_2, log_of

BOUNDS = st.floats(0.005, 0.5)
SIDES = st.sampled_from(["below", "above"])
TUNE = st.lists(st.floats(-1, 1), max_size=40)


def fair(bound: float, *points: float) -> list[tuple[float, float]]:
    """Return a distribution on the points with the bound as its mean: two of them, or the middle with half of the mass."""
    low, *middle, high = sorted(points)
    mass = 0.5 if middle else 0.0
    mean = (bound - mass * middle[0]) / (1 - mass) if middle else bound
    share = (mean - low) / (high - low)
    return [(low, (1 - mass) * (1 - share)), (high, (1 - mass) * share), *((value, mass) for value in middle)]


def expected_wealth(wealth: Wealth, distribution: list[tuple[float, float]]) -> float:
    """Return the mean wealth after one more loss, over the distribution of that loss."""
    return sum(
        mass * float(wealth.shares[0] @ np.exp(wealth.bet(np.array([[loss]])).log_capital[0]))
        for loss, mass in distribution
    )


@given(BOUNDS, SIDES, st.tuples(st.floats(-1, 0), st.floats(0.5, 1)), st.lists(st.floats(-1, 1), max_size=8), TUNE)
def test_a_bet_at_the_bound_gains_nothing_on_average(bound, side, ends, before, tune):
    low, high = ends
    wealth = Wealth.start(bound, side, 1, np.array([tune])).bet(np.array([before]))
    now = float(wealth.shares[0] @ np.exp(wealth.log_capital[0]))
    assert expected_wealth(wealth, fair(bound, low, high)) <= now * (1 + 1e-9)
    middle = np.clip(bound, max(low, 2 * bound - high), high)
    assert expected_wealth(wealth, fair(bound, low, float(middle), high)) <= now * (1 + 1e-9)


TUNED = {
    "without tune questions": None,
    "nothing lost": np.zeros((1, 60)),
    "all lost": np.ones((1, 60)),
    "many change": np.resize([1.0, -1.0, 0.0], (1, 60)),
}


@pytest.mark.parametrize("tune", TUNED.values(), ids=TUNED)
@pytest.mark.parametrize("side", ["below", "above"])
def test_wealth_is_fair_over_all_sequences_at_the_bound(side, tune):
    bound = 0.1
    distribution = [(-1.0, 0.2), (0.0, 0.5), (1.0, 0.3)]
    assert math.isclose(sum(loss * mass for loss, mass in distribution), bound)
    paths = list(itertools.product(distribution, repeat=7))
    losses = np.array([[loss for loss, _ in path] for path in paths])
    masses = np.array([math.prod(mass for _, mass in path) for path in paths])
    start = Wealth.start(bound, side, 1, tune)
    wealth = replace(
        start,
        **{
            name: np.repeat(getattr(start, name), len(paths), axis=0)
            for name in ("log_capital", "squares", "shares", "log_highest")
        },
    ).bet(losses)
    final = (wealth.shares * np.exp(wealth.log_capital)).sum(axis=-1)
    assert math.isclose(float(masses @ final), 1)
    for alpha in (0.2, 0.5, 0.7):
        assert float(masses @ wealth.shown(alpha)) <= alpha


@given(BOUNDS, SIDES, TUNE)
def test_shares_add_up_to_1_and_tune_questions_move_70_percent(bound, side, tune):
    plain, wealth = Wealth.start(bound, side, 1), Wealth.start(bound, side, 1, np.array([tune]))
    assert math.isclose(wealth.shares.sum(), 1)
    np.testing.assert_allclose(plain.shares[0] / plain.shares[0, 0], (plain.stakes / plain.stakes[0]) ** 0.6)
    assert (wealth.shares >= 0.3 * plain.shares - 1e-12).all()
    gains = np.array(tune) * (-1 if side == "below" else 1) + (bound if side == "below" else -bound)
    rehearsed = plain.shares[0] * np.array([np.prod(1 + stake * gains) for stake in plain.stakes])
    np.testing.assert_allclose(wealth.shares[0], 0.3 * plain.shares[0] + 0.7 * rehearsed / rehearsed.sum(), rtol=1e-6)
    assert wealth.n == 0
    assert not wealth.log_highest.any()  # a rehearsal is no evidence


def test_each_candidate_is_rehearsed_on_its_own_losses():
    calm, lively = np.zeros(60), np.resize([1.0, -1.0], 60)
    both = Wealth.start(0.02, "below", 2, np.array([calm, lively]))
    assert (both.shares @ both.stakes)[0] > 2 * (both.shares @ both.stakes)[1]
    np.testing.assert_allclose(both.shares[1], Wealth.start(0.02, "below", 1, lively[None]).shares[0])


def test_later_questions_leave_the_shares_of_a_trial_as_declared():
    first = decide(log_of(60, converged_at_2), metric="quality").trial
    later = decide(
        log_of(200, converged_at_2, first=60), previous=decide(log_of(60, converged_at_2), metric="quality")
    ).trial
    assert later.totals.n > first.totals.n
    for side in ("below", "above"):
        begun, grown = getattr(first, side), getattr(later, side)
        assert begun.prior == "tune"
        assert not np.allclose(begun.shares, Wealth.start(0.02, side, len(begun.shares)).shares)
        np.testing.assert_array_equal(begun.shares, grown.shares)


def test_losses_in_parts_and_by_file_are_one_bet():
    rng = np.random.default_rng(4)
    losses = rng.choice([0.0, 1.0, -1.0], (2, 90), p=[0.8, 0.1, 0.1])
    start = Wealth.start(0.05, "below", 2, losses[:, :30])
    whole = start.bet(losses[:, 30:])
    parts = start.bet(losses[:, 30:51])
    stored = Wealth.from_dict(json.loads(json.dumps(parts.to_dict())))
    np.testing.assert_array_equal(stored.shares, start.shares)
    for name, value in whole.to_dict().items():
        ended = stored.bet(losses[:, 51:]).to_dict()[name]
        if isinstance(value, list):
            np.testing.assert_allclose(ended, value, atol=1e-12)
        else:
            assert ended == value


def test_a_false_claim_at_the_bound_keeps_the_stated_risk():
    rng, populations = np.random.default_rng(8), 400
    drawn = rng.random((populations, 400))
    losses = np.where(drawn < 0.05, -1.0, np.where(drawn < 0.12, 1.0, 0.0))  # the mean is 0.02
    false = int(Wealth.start(0.02, "below", populations).bet(losses).shown(0.05).sum())
    assert false <= 0.05 * populations  # of this seed; a bound of twice the risk is above it


def test_fewer_questions_are_needed_where_nothing_is_lost():
    assert Wealth.start(0.02, "below", 1).bet(np.zeros((1, 215))).shown(0.05)[0]  # with even shares after 261
    assert Wealth.start(0.02, "below", 1, np.zeros((1, 60))).bet(np.zeros((1, 195))).shown(0.05)[0]


@pytest.mark.parametrize("prior", ["even", "by stake"])
def test_a_decision_of_an_older_file_keeps_its_shares(prior):
    first = decide(log_of(60, converged_at_2), metric="quality")
    data = json.loads(json.dumps(first.to_dict()))
    assert data["trial"]["below"]["prior"] == data["trial"]["above"]["prior"] == "tune"
    assert data["version"] == 3  # a release that knows even shares alone must not go on with these
    for side in ("below", "above"):
        del data["trial"][side]["shares"]
        data["trial"][side]["prior"] = prior
        if prior == "even":  # releases before there was a choice named none
            del data["trial"][side]["prior"]
            data["version"] = 1
    later = decide(log_of(200, converged_at_2, first=60), previous=Advice.from_dict(data))
    below = Advice.from_dict(later.to_dict()).trial.below
    assert below.prior == later.trial.above.prior == prior
    weights = below.stakes if prior == "by stake" else np.ones(N_STAKES)
    np.testing.assert_allclose(below.shares, np.tile(weights / weights.sum(), (len(below.shares), 1)))
    now = np.log((below.shares * np.exp(below.log_capital)).sum(axis=1))
    assert (below.log_highest >= now - 1e-9).all()


def test_a_file_with_wrong_shares_is_refused():
    data = Wealth.start(0.02, "below", 1, np.zeros((1, 20))).to_dict()
    for name, value, words in (
        ("prior", "odd", "prior 'odd'"),
        ("side", "beside", "side 'beside'"),
        ("shares", [[2 * share for share in data["shares"][0]]], "add up"),
        ("shares", [[-1.0, 2.0, *[0.0] * (N_STAKES - 2)]], "add up"),
        ("shares", [[1.0]], "does not read"),
        ("bound", 2.0, "does not read"),
        ("log_highest", [math.nan], "undefined wealth"),
    ):
        with pytest.raises(SchemaError, match=words):
            Wealth.from_dict(data | {name: value})
    with pytest.raises(SchemaError, match="does not read"):
        Wealth.from_dict({name: value for name, value in data.items() if name != "shares"})


def _kept(changed: float, n: int, runs: int = 150) -> tuple[int, int]:
    """Return how often a number of questions is said after n of them, and how often so many more are enough."""
    rng = np.random.default_rng(3)
    said = kept = 0
    for _ in range(runs):

        def drawn(size: int) -> np.ndarray:
            return rng.choice([0.0, 1.0, -1.0], size, p=[1 - changed, changed / 2, changed / 2])[None]

        wealth = Wealth.start(0.02, "below", 1).bet(drawn(n))
        needed = wealth.more_losses(0.05, 0)
        if needed is None or needed > 8000 or wealth.shown(0.05)[0]:
            continue
        said += 1
        kept += bool(wealth.bet(drawn(needed)).shown(0.05)[0])
    return said, kept


@pytest.mark.parametrize("changed", [0.02, 0.05])
def test_the_number_of_questions_that_is_named_after_60_is_mostly_enough(changed):
    said, kept = _kept(changed, 60)
    assert said >= 30
    assert kept >= 0.65 * said


def test_no_number_is_named_where_one_more_loss_would_leave_no_evidence():
    wealth = Wealth.start(0.02, "below", 1).bet(np.zeros((1, 10)))
    assert wealth.more_losses(0.05, 0) is None
    advice = decide(log_of(30, converged_at_2), metric="quality")
    assert advice.verdict == "not enough data"
    assert advice.sentence.endswith("Record more questions; how many more cannot be said yet.")
    assert advice.figures[advice.chosen].needed is None
