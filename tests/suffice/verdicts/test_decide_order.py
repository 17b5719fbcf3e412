"""A candidate whose proof waits for an earlier one, budgets that scored as well, and effects that were selected."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from suffice.verdicts.decisions import Advice, decide
from tests.suffice.verdicts.test_decide import converged_at_2, log_of


def losing(*shares: float) -> Callable[[int, int], float]:
    """Return scores of a loop whose rounds 1, 2, ... lose these shares of the questions, and whose last one loses none."""

    def value(q: int, r: int) -> float:
        share = shares[r - 1] if r <= len(shares) else 0.0
        return float((q * 7919) % 1000 >= 1000 * abs(share)) if share >= 0 else 1.0

    return value


def blocked_advice(n: int, early: float = 0.018) -> Advice:
    """Return advice on two caps: 2 is nearly safe on tune questions and loses here; 1 loses nothing here."""
    tune = log_of(300, losing(0.03, 0.0), rounds=3)
    log = log_of(n, losing(0.0, early), first=300, rounds=3)
    return decide(log, metric="quality", tune=tune)


def test_a_proof_that_lacks_its_share_of_the_risk_says_so():
    advice = blocked_advice(300)
    assert [advice.trial.candidates[place].label for place in advice.trial.sequence] == ["fixed_k(2)", "fixed_k(1)"]
    assert advice.verdict == "not enough data"
    assert (
        "300 questions would be enough to rule out a loss of 2 points if fixed_k(1) alone were tested. The 2 tested candidates share the "
        "risk of 5 %, so each needs more questions; this one needs fewer once fixed_k(2) is proved. Record about "
    ) in advice.sentence
    figures = {item.policy: item for item in advice.figures}
    half, most = figures["fixed_k(1)"].needed
    assert 0 < half < most
    assert figures["fixed_k(1)"].waits_for == "fixed_k(2)"
    assert {item["policy"]: item["waits_for"] for item in advice.to_dict()["candidates"]} == {
        "fixed_k(1)": "fixed_k(2)",
        "fixed_k(2)": None,
    }
    assert f"waits for fixed_k(2), about {most:,} more" in {row[5] for row in advice.table().rows}


def test_all_open_candidates_before_one_must_be_proved_first():
    tune = log_of(300, losing(0.06, 0.03, 0.0), rounds=4)
    advice = decide(log_of(300, losing(0.0, 0.018, 0.018), first=300, rounds=4), metric="quality", tune=tune)
    assert [advice.trial.candidates[place].label for place in advice.trial.sequence] == [
        f"fixed_k({cap})" for cap in (3, 2, 1)
    ]
    assert "this one needs fewer once fixed_k(3) and fixed_k(2) are proved." in advice.sentence
    assert {item.policy: item.waits_for for item in advice.figures}["fixed_k(1)"] == "fixed_k(3)"


def test_evidence_for_all_of_the_risk_waits_for_the_others_alone():
    trial = blocked_advice(320, 0.004).trial
    first, last = trial.sequence
    capital, highest = trial.below.log_capital.copy(), trial.below.log_highest.copy()
    capital[last], highest[last] = -5.0, np.log(25)  # enough for 5 % at an earlier time; later losses took it
    trial = replace(trial, below=replace(trial.below, log_capital=capital, log_highest=highest))
    assert trial.below.more_losses(0.05, last) is None
    assert trial.waiting_for == {last: (first,)}
    assert trial.questions_needed(last) == trial.questions_needed(first) is not None


@pytest.mark.parametrize("early", [0.018, 0.03])
def test_an_open_or_losing_neighbour_does_not_block_a_proof(early):
    advice = blocked_advice(700, early)
    assert advice.verdict == "do it"
    assert advice.policy.label == "fixed_k(1)"
    assert advice.trial.proved.tolist() == [policy.label == "fixed_k(1)" for policy in advice.trial.candidates]


def test_a_decision_of_an_older_file_keeps_its_fixed_sequence():
    data = json.loads(json.dumps(blocked_advice(700).to_dict()))
    del data["trial"]["shares"], data["trial"]["losses"]
    advice = Advice.from_dict(data | {"version": 2})
    assert advice.trial.shares == (1.0, 0.0)
    assert advice.verdict == "not enough data"
    assert "this one needs fewer once fixed_k(2) is proved" in advice.sentence
    assert "n/a" not in advice.sentence
    assert np.isnan([figures.change[1] for figures in advice.figures]).all()
    assert Advice.from_dict(json.loads(json.dumps(advice.to_dict()))).trial.shares == (1.0, 0.0)


def test_the_effect_of_advice_says_that_it_was_selected_here():
    advice = decide(log_of(400, converged_at_2), metric="quality")
    assert "points (selected here: these questions also chose it);" in advice.sentence
    assert {row[0]: row[5] for row in advice.table().rows}["fixed_k(2)"] == "advised"
    selected = {item["policy"]: item["selected_here"] for item in advice.to_dict()["candidates"]}
    assert selected == {f"fixed_k({k})": k == 2 for k in range(1, 5)}


def test_a_budget_that_may_lose_everything_is_never_called_equal():
    # Nothing is scored: a mean counts that as 0 for all, and a loss as everything, but for equal stops.
    log = log_of(400, lambda q, r: None, rounds=lambda q: 3 if q % 20 == 0 else 2, end="exhausted")
    advice = decide(log, metric="quality", max_loss=0.2)
    assert advice.chosen is not None
    assert advice.trial.candidates[advice.chosen].label == "fixed_k(2)"
    first = next(item for item in advice.figures if item.policy == "fixed_k(1)")
    assert first.change[0] == -1.0
    assert advice.trial.rival is None
    assert "Here " not in advice.sentence
    assert advice.to_dict()["dominated_by"] is None


def test_a_budget_that_scored_equally_is_named_with_its_distance():
    def values(q: int, r: int) -> float:
        last = float(q % 2)
        return last if r >= 3 else 0.0 if r == 1 else 1 - last if q % 40 < 2 else last  # one turns wrong, one right

    advice = decide(log_of(400, values, first=200), metric="quality", tune=log_of(200, values))
    assert advice.sentence.startswith("Lower the cap from 5 to 3")
    half, most = next(item for item in advice.figures if item.policy == "fixed_k(2)").needed
    distance = f"it takes about {half:,} to {most:,} more questions"
    rival = f"Here at most 2 rounds scored as well for less, but that is not proved yet: {distance}."
    assert rival in advice.sentence


def test_a_budget_that_scored_as_well_and_is_not_tested_is_named():
    stable = {"answer_stable": lambda q, r: float("nan") if r == 1 else float(r > 2)}
    tune = log_of(200, lambda q, r: float(r >= 3 or q % 10 > 0), **stable)
    advice = decide(log_of(400, lambda q, r: float(r >= 2), first=200, **stable), metric="quality", tune=tune)
    assert (
        "Here at most 2 rounds scored as well for less, but that was not tested: the other questions, which choose what is tested, "
        "favoured something cheaper."
    ) in advice.sentence
