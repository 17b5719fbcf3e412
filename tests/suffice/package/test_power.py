"""The power benchmark: its tests of a mean are valid and follow their formulas, and its numbers are those of the product."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from benchmarks.power import __main__ as power, bounding
from benchmarks.power.populations import LEVEL, MADE, drawn, made

from suffice.verdicts.decisions import Wealth

RNG = np.random.default_rng(6)
LOSSES = RNG.choice([0.0, 1.0, -1.0], (40, 300), p=[0.8, 0.08, 0.12])
TUNE = RNG.choice([0.0, 1.0, -1.0], (40, 30), p=[0.8, 0.08, 0.12])


@pytest.mark.parametrize("tune", [None, TUNE])
def test_the_number_of_decide_is_that_of_its_wealth(tune):
    times = bounding.mixture(LOSSES, 0.1, tune, "tune")
    number = bounding.number_of(times)
    wealth = Wealth.start(0.1, "below", len(LOSSES), tune)
    assert wealth.bet(LOSSES[:, :number]).shown(LEVEL).mean() >= 0.8
    assert wealth.bet(LOSSES[:, : number - 1]).shown(LEVEL).mean() < 0.8


def test_even_shares_prove_from_the_mean_of_the_capitals():
    stakes = Wealth.start(0.1, "below", 1).stakes
    capitals = np.cumprod(1 + stakes[:, None] * (0.1 - LOSSES[0]), axis=1)
    for prior, weights in (("even", np.ones(len(stakes))), ("by stake", stakes)):
        wealth = (weights[:, None] * capitals).sum(axis=0) / weights.sum()
        assert bounding.mixture(LOSSES[:1], 0.1, None, prior)[0] == np.flatnonzero(wealth >= 1 / LEVEL)[0] + 1


def test_adaptive_stakes_follow_their_formulas_question_by_question():
    x, m = (1 - LOSSES[:1]) / 2, 0.45
    total, squares = 0.5, 0.25
    adaptive, plug_in = [], []
    for t, value in enumerate(x[0], 1):
        mean, variance = total / t, squares / t
        adaptive.append(min(max((mean - m) / (variance + (mean - m) ** 2), 0), 0.99 / m))
        plug_in.append(min(math.sqrt(2 * math.log(1 / LEVEL) / (variance * t * math.log(1 + t))), 0.5 / m))
        total += value
        squares += (value - total / (t + 1)) ** 2
    np.testing.assert_allclose(bounding.agrapa_stakes(x, m, 0.99)[0], adaptive)
    np.testing.assert_allclose(bounding.predictable_stakes(x, m, 0.5, LEVEL)[0], plug_in)


def test_no_test_but_the_t_test_proves_a_loss_at_the_bound():
    at_the_bound = made("at the bound", 0.02, 0.03, 0.01, chosen_on=False)
    losses = np.random.default_rng(3).choice(at_the_bound.losses, (800, 400))
    limit = LEVEL + 3 * math.sqrt(LEVEL * (1 - LEVEL) / 800)
    for test in (bounding.agrapa, bounding.one_sided, bounding.hedged, bounding.bernstein):
        assert (test(losses, 0.02) <= 400).mean() <= limit
    assert (bounding.mixture(losses, 0.02, None, "tune") <= 400).mean() <= limit
    for test in (bounding.planned_betting, bounding.maurer_pontil):
        assert test(losses, 0.02).mean() <= limit
    rare = (np.random.default_rng(3).random((800, 100)) < 0.02).astype(float)
    assert bounding.clopper_pearson(rare, 0.02).mean() <= limit
    assert bounding.paired_t(rare, 0.02).mean() > 1.5 * limit


def test_a_planned_number_is_the_smallest_that_is_enough():
    zeros = np.zeros((5, 200))
    assert bounding.planned_number(bounding.clopper_pearson, zeros, 0.02) == 149  # 0.98 ** 149 < 0.05
    assert bounding.planned_number(bounding.clopper_pearson, zeros[:, :148], 0.02) is None
    assert bounding.planned_number(bounding.paired_t, zeros, 0.02, 40) == 40


def test_the_best_stake_grows_fastest_and_populations_are_reproducible():
    stake, growth = MADE[3].best_stake
    for other in (0.7 * stake, 1.4 * stake):
        assert np.log1p(other * (0.02 - MADE[3].losses)).mean() < growth
    assert [one.name for one in drawn(1, 3, chosen_on=True)] == [one.name for one in drawn(1, 3, chosen_on=True)]
    assert {one.name for one in drawn(1, 3, chosen_on=True)}.isdisjoint(
        one.name for one in drawn(1, 3, chosen_on=False)
    )


def test_targets_compare_medians_and_the_worst_population():
    even = power.Measured(
        population=MADE[0],
        needed={"best stake": 100, "decide": 120, "even": 150, "certify": 110},
        by_tune={60: 120},
        horizon=500,
    )
    worse = power.Measured(
        population=MADE[1],
        needed={"best stake": 100, "decide": 160, "even": 150, "certify": None},
        by_tune={60: 160},
        horizon=500,
    )
    first, second = power.targets([even]), power.targets([even, worse])
    assert [met for _, _, met in first.values()] == [True] * 4
    assert [met for _, _, met in second.values()] == [False] * 4
    assert [figure for figure, _, _ in second.values()] == [1.4, 160 / 150, math.inf, math.inf]


@pytest.mark.whole
def test_the_quick_benchmark_prints_every_number(capsys, monkeypatch):
    monkeypatch.setattr(power, "every", lambda seed, *, quick: [MADE[0], *drawn(seed, 1, chosen_on=not quick)])
    power.main(["--quick", "--json"])
    result = json.loads(capsys.readouterr().out)
    assert [row["held_out"] for row in result["populations"]] == [False, True]
    needed = result["populations"][0]["needed"]
    assert needed["best stake"] == 150
    assert needed["best stake"] < needed["decide"] < needed["by stake"] + 10 < needed["even"]
    measured = [power.measured(MADE[0], 1, 20)]
    assert "nothing lost" in power.page(measured, 20)
