"""The bets behind a verdict: no mixture of stakes makes a false claim more likely, and a number of questions suffices."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suffice.errors import SchemaError
from suffice.verdicts.decisions import Advice, Wealth, decide
from tests.suffice.verdicts.test_decide import converged_at_2, log_of

BOUNDS = st.floats(0.005, 0.5)
SIDES = st.sampled_from(["below", "above"])


def fair(bound: float, *points: float) -> list[tuple[float, float]]:
    """Return a distribution on the points with the bound as its mean: two of them, or the middle with half of the mass."""
    low, *middle, high = sorted(points)
    mass = 0.5 if middle else 0.0
    mean = (bound - mass * middle[0]) / (1 - mass) if middle else bound
    share = (mean - low) / (high - low)
    return [(low, (1 - mass) * (1 - share)), (high, (1 - mass) * share), *((value, mass) for value in middle)]


def expected_wealth(wealth: Wealth, distribution: list[tuple[float, float]]) -> float:
    """Return the mean wealth after one more loss, over the distribution of that loss."""
    shares = np.exp(wealth.log_shares)
    return sum(
        mass * float(shares @ np.exp(wealth.bet(np.array([[loss]])).log_capital[0])) for loss, mass in distribution
    )


@given(BOUNDS, SIDES, st.floats(-1, 0), st.floats(0.5, 1), st.lists(st.floats(-1, 1), max_size=8))
def test_a_bet_at_the_bound_gains_nothing_on_average(bound, side, low, high, before):
    wealth = Wealth.start(bound, side, 1).bet(np.array([before]))
    now = float(np.exp(wealth.log_shares) @ np.exp(wealth.log_capital[0]))
    assert expected_wealth(wealth, fair(bound, low, high)) <= now * (1 + 1e-9)
    middle = np.clip(bound, max(low, 2 * bound - high), high)
    assert expected_wealth(wealth, fair(bound, low, float(middle), high)) <= now * (1 + 1e-9)


@pytest.mark.parametrize("side", ["below", "above"])
def test_shares_add_up_to_1_and_are_in_proportion_to_the_stakes(side):
    wealth = Wealth.start(0.02, side, 1)
    shares = np.exp(wealth.log_shares)
    assert math.isclose(shares.sum(), 1)
    np.testing.assert_allclose(shares / shares[0], wealth.stakes / wealth.stakes[0])


def test_a_false_claim_at_the_bound_keeps_the_stated_risk():
    rng, populations = np.random.default_rng(8), 2000
    drawn = rng.random((populations, 800))
    losses = np.where(drawn < 0.05, -1.0, np.where(drawn < 0.12, 1.0, 0.0))  # the mean is 0.02
    false = int(Wealth.start(0.02, "below", populations).bet(losses).shown(0.05).sum())
    assert false <= 0.05 * populations + 3 * math.sqrt(0.05 * 0.95 * populations)


def test_fewer_questions_are_needed_where_nothing_is_lost():
    wealth = Wealth.start(0.02, "below", 1).bet(np.zeros((1, 200)))
    assert wealth.shown(0.05)[0]  # of an even division of the capital 261 are needed


def test_a_decision_of_an_older_file_keeps_its_even_shares():
    first = decide(log_of(60, converged_at_2), metric="quality")
    data = json.loads(json.dumps(first.to_dict()))
    assert data["trial"]["below"]["prior"] == "by stake"
    assert data["version"] == 2  # a release that knows even shares alone must not go on with these
    data["version"] = 1
    for side in ("below", "above"):
        del data["trial"][side]["prior"]
    old = Advice.from_dict(data)
    later = decide(log_of(200, converged_at_2, first=60), previous=old)
    assert later.trial.below.prior == later.trial.above.prior == "even"
    again = Advice.from_dict(later.to_dict())
    assert again.trial.below.prior == "even"
    even = np.log(np.mean(np.exp(later.trial.below.log_capital), axis=1))
    assert (later.trial.below.log_highest >= even - 1e-9).all()
    np.testing.assert_allclose(np.exp(later.trial.below.log_shares), 1 / 12)
    data["trial"]["below"]["prior"] = "odd"
    with pytest.raises(SchemaError, match="prior .*odd"):
        Advice.from_dict(data)


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
