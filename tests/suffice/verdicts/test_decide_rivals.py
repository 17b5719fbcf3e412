"""Coins between two budgets stand beside what is advised."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from suffice.evaluation.replay.chart_labels import spread_labels
from suffice.evaluation.replay.front import Mixture
from suffice.evaluation.replay.rivals import _cheapest, _Point
from suffice.policy.rules import fixed_k
from suffice.policy.session import Policy
from suffice.recordings import Recording
from suffice.verdicts.decisions import Advice, Trial, decide
from suffice.verdicts.decisions.figures import budgets_hull, mixture_of, rivals_text
from tests.suffice.verdicts.test_decide import converged_at_2, log_of
from tests.support import reference


def blind_log(n: int = 600, *, last: float = 1.0, **columns):
    """Return a log whose last round alone helps, and a critic who approves of one half at random."""
    approved = np.random.default_rng(0).random((n, 6)) < 0.5
    return log_of(
        n, lambda q, r: last if r == 5 else float(q % 2), critic_approved=lambda q, r: float(approved[q, r]), **columns
    )


@pytest.fixture(scope="module")
def advice() -> Advice:
    return decide(blind_log(), metric="quality", max_loss=0.47)


def with_sums(trial: Trial, values, costs, losses=None) -> Trial:
    """Return a trial with fixed budgets 1, 2, ..., then a rule, then the loop, and these means."""
    n, places = trial.totals.n, len(values) - 1
    policies = [Policy(rule=fixed_k(k), max_rounds=k, name=f"fixed_k({k})") for k in range(1, places)]
    rule = Policy(rule="critic_only", name="critic_only")
    sums = np.array(values) * n
    lost = sums[-1] - sums[:-1] if losses is None else np.array(losses) * n
    nothing = np.zeros(places)
    totals = replace(
        trial.totals, values=sums, losses=lost, open=nothing, costs={**trial.totals.costs, "calls": np.array(costs) * n}
    )
    made = replace(trial, candidates=(*policies, rule), sequence=(places - 1,), totals=totals)
    vars(made)["chosen"] = places - 1
    return made


def test_a_coin_between_a_cap_and_the_loop_itself_is_named(advice):
    assert advice.trial.candidates[advice.chosen].label == "critic_only"
    assert advice.trial.rival is None
    said = (
        "With no signal at all, at most 1 round for some questions, drawn at random, and what you have for the others scored better here "
        "and costs no more; but the two were picked on these same questions."
    )
    assert said in advice.sentence
    data = advice.to_dict()
    assert data["dominated_by"] == "a mixture of fixed_k(1) and recorded"
    rule = next(item for item in data["candidates"] if item["policy"] == "critic_only")
    assert data["mixture"]["share"] == pytest.approx((rule["calls"] - 1) / 4)
    assert data["mixture"]["quality"] > rule["quality"]
    assert Advice.from_dict(data).to_dict() == data


def test_a_decision_without_a_better_coin_says_nothing_of_coins():
    advice = decide(log_of(400, converged_at_2), metric="quality")
    assert "at random" not in advice.sentence
    assert "mixture" not in advice.to_dict()
    assert advice.to_dict()["dominated_by"] is None


@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 10), st.integers(1, 12)), min_size=3, max_size=6))
def test_the_coin_is_the_best_of_all_pairs_of_budgets(advice, points):
    values, costs = np.array([quality / 10 for quality, _ in points]), np.array([float(cost) for _, cost in points])
    any_loss = replace(advice.trial, below=replace(advice.trial.below, bound=0.9999))
    trial = with_sums(any_loss, values, costs)
    me = len(points) - 2
    budgets = {str(place): (values[place], costs[place]) for place in range(len(points)) if place != me}
    best = reference.best_mixture(budgets, costs[me])
    assume(abs(best - values[me]) > 1e-9 or best == values[me])  # rounding may decide
    single = any(
        values[p] >= values[me] and costs[p] <= costs[me]
        for p in range(me)
        if (values[p], costs[p]) != (values[me], costs[me])
    )
    loop_alone = values[-1] > values[me] and costs[-1] <= costs[me]
    if single or best <= values[me]:
        assert trial.mixture is None
    elif trial.mixture is None:
        assert loop_alone  # the loop itself does as well: no coin, and nothing to change
    else:
        assert trial.mixture.quality == pytest.approx(best)


def test_budgets_that_are_not_tested_count(advice):
    trial = with_sums(advice.trial, [0.2, 0.8, 0.6, 0.5, 0.9], [1.0, 3.0, 4.0, 2.0, 5.0], [0.0] * 4)
    assert trial.sequence == (3,)
    assert trial.mixture is None  # half of caps 1 and 2 score as much, and no more
    trial = with_sums(advice.trial, [0.2, 0.8, 0.6, 0.45, 0.9], [1.0, 3.0, 4.0, 2.0, 5.0], [0.0] * 4)
    assert trial.mixture == Mixture(cheap="fixed_k(1)", dear="fixed_k(2)", share=0.5, quality=0.5)
    assert (
        "at most 1 round for some questions, drawn at random, and at most 2 rounds for the others scored better"
        in rivals_text(trial, 3)
    )


def test_a_single_budget_that_does_as_well_needs_no_coin(advice):
    trial = with_sums(advice.trial, [0.5, 0.8, 0.45, 0.9], [1.0, 3.0, 2.0, 5.0], [0.0] * 3)
    assert trial.rival == 0
    assert trial.mixture is None


def test_a_coin_that_may_lose_too_much_is_not_named(advice):
    values, costs = [0.2, 0.8, 0.45, 0.9], [1.0, 3.0, 2.0, 5.0]
    assert with_sums(advice.trial, values, costs, [0.93, 0.0, 0.5]).mixture is not None
    assert with_sums(advice.trial, values, costs, [0.95, 0.0, 0.5]).mixture is None  # 0.475 for half of each
    assert with_sums(advice.trial, values, costs, [0.93, 0.0, 0.4]).mixture is None  # its metric is unknown in part


def test_scores_that_are_missing_make_no_rival_better():
    def values(
        q, r
    ):  # cap 1 loses a little; some scores of cap 2, whose answers are those of the last round, are missing
        return float(r > 1 or q * 7919 % 1000 >= 14)

    def scored(q, r):
        return None if r == 2 and q * 7919 % 1000 >= 960 else values(q, r)

    tune, log, answered = (
        log_of(n, scores, first=first, rounds=4).table.rename_columns({"quality": "match"})
        for n, scores, first in ((300, values, 0), (500, scored, 300), (500, values, 300))
    )
    at = log.schema.get_field_index("answer")
    log = log.set_column(at, log.schema.field(at), answered.column("answer"))
    advice = decide(Recording(log, {}), metric="match", tune=Recording(tune, {}))
    assert advice.policy.label == "fixed_k(2)"
    value = {item.policy: item.value for item in advice.figures}
    assert value["fixed_k(2)"] < value["fixed_k(1)"], "what is missing counts as 0 in the metric"
    assert advice.trial.rival is None
    assert "scored better" not in advice.sentence


def test_a_baseline_that_is_a_rule_is_no_budget(advice):
    values, costs = [0.2, 0.45, 0.9], [1.0, 2.0, 3.0]
    for baseline, cheap in (("recorded", "fixed_k(1)"), ("fixed_k(3)", "fixed_k(1)"), ("tasr", None)):
        trial = replace(with_sums(advice.trial, values, costs, [0.0, 0.0]), baseline=baseline)
        vars(trial)["chosen"] = 1
        assert (trial.mixture and trial.mixture.cheap) == cheap
        assert trial.mixture is None or trial.mixture.dear == baseline


def test_what_labels_judge_has_no_coin(advice):
    trial = with_sums(advice.trial, [np.nan] * 4, [1.0, 3.0, 2.0, 5.0], [0.0] * 3)
    assert mixture_of(trial) is None


def test_a_coin_between_numbers_of_samples_says_samples(advice):
    trial = with_sums(advice.trial, [0.2, 0.8, 0.45, 0.9], [1.0, 3.0, 2.0, 5.0], [0.0] * 3)
    vote = [replace(policy, selector="majority_of_samples") for policy in trial.candidates]
    trial = replace(trial, candidates=tuple(vote))
    vars(trial)["chosen"] = 2
    assert " 1 sample for some questions, drawn at random, and 2 samples for the others scored better" in rivals_text(
        trial, 2
    )


def test_a_coin_with_no_retrieval_says_so(advice):
    trial = with_sums(advice.trial, [0.2, 0.8, 0.45, 0.9], [1.0, 3.0, 2.0, 5.0], [0.0] * 3)
    never = Policy(rule=fixed_k(0), start_round=0, max_rounds=5, name="never")
    trial = replace(trial, candidates=(never, *trial.candidates[1:]))
    vars(trial)["chosen"] = 2
    assert (
        " never retrieving for some questions, drawn at random, and at most 2 rounds for the others scored better"
        in rivals_text(trial, 2)
    )


def test_labels_of_points_at_one_place_have_heights_of_their_own():
    points = [
        {"short": name, "kind": "rule", "cost": cost, "change": change}
        for name, cost, change in [("a", 1.0, -20.0), ("b", 4.7, 0.3), ("c", 4.7, 0.3), ("d", 4.97, 0.2), ("e", 5.0, 0)]
    ]
    budget = {"short": "fixed_k(2)", "kind": "fixed", "cost": 2.0, "change": 9.0}
    unknown = {"short": "f", "kind": "rule", "cost": 3.0, "change": None}
    placed = {point["short"]: point["offset"] for point in spread_labels([*points, budget, unknown], "change")}
    assert len({placed[name] for name in "bcde"}) == 4
    assert placed["fixed_k(2)"] > 0 > placed["a"] == placed["b"]
    assert "f" not in placed


def test_the_chart_draws_the_best_coins_as_a_line(advice):
    hull = budgets_hull(advice.trial)
    costs = advice.trial.totals.costs["calls"] / advice.n
    assert hull == [(costs[0], advice.figures[0].change[0]), (costs[-1], 0.0)]
    spec = advice.plot().spec
    lines = [
        layer for layer in spec["layer"] if isinstance(layer.get("mark"), dict) and layer["mark"]["type"] == "line"
    ]
    assert [line["data"]["values"] for line in lines] == [
        [{"cost": cost, "change": 100 * change} for cost, change in hull]
    ]
    assert "coins between two budgets" in [entry["name"] for entry in spec["usermeta"]["legend"]]
    flat = decide(log_of(100, lambda q, r: float(q % 2)), metric="quality")
    assert "coins between two budgets" not in [entry["name"] for entry in flat.plot().spec["usermeta"]["legend"]]


def test_costs_that_differ_by_rounding_alone_are_equal():
    """Otherwise parts and one file, which add in another order, would name different baselines."""
    fixed, random = _Point("fixed_k(2)", 0.5, 0.5, 0.3, 0.3), _Point("random", 0.5, 0.5, 0.1 + 0.2, 0.1 + 0.2)
    cheaper = _Point("fixed_k(1)", 0.4, 0.4, 0.3 - 1e-9, 0.3 - 1e-9)
    better = _Point("fixed_k(3)", 0.6, 0.6, 0.1 + 0.2, 0.1 + 0.2)
    assert _cheapest([fixed, random]) is fixed
    assert _cheapest([random, fixed]) is random
    assert _cheapest([fixed, better]) is better
    assert _cheapest([better, cheaper]) is cheaper
    assert _cheapest([]) is None
