"""Certificates of votes: losses averaged over orders, and how often they are wrong at the boundary."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest

from suffice import Claim, certify, diagnose
from suffice.errors import DataError
from suffice.evaluation.replay import policy_for
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import measure_losses

WIDTH = 7
RIGHT = (0.6, 0.75, 0.95)
"""How likely a sample is right, for the three kinds of questions of the population."""


def population(n: int, rng: np.random.Generator, width: int = WIDTH) -> Recording:
    """Return samples of `n` questions, all kinds as likely."""
    p = rng.choice(RIGHT, n)
    right = rng.random((n, width)) < p[:, None]
    rows = [
        {"question_id": f"q{q}", "round": r + 1, "answer": "ab"[int(not right[q, r])], "em": float(right[q, r])}
        for q, r in itertools.product(range(n), range(width))
    ]
    return Recording(build_table(rows), {"exchangeable": True})


def scores(p: float, lead: int, width: int = WIDTH) -> tuple[float, float]:
    """Return with which probability the rule, and the vote of all, is right where a sample is with probability p."""
    value = {"rule": 0.0, "all": 0.0}

    def walk(n: int, ahead: int, chance: float, *, stopped: bool) -> None:
        if not stopped and (abs(ahead) >= lead or n == width):
            value["rule"] += chance * (0.5 if ahead == 0 else float(ahead > 0))
            stopped = True
        if n == width:
            value["all"] += chance * (0.5 if ahead == 0 else float(ahead > 0))
            return
        walk(n + 1, ahead + 1, chance * p, stopped=stopped)
        walk(n + 1, ahead - 1, chance * (1 - p), stopped=stopped)

    walk(0, 0, 1.0, stopped=False)
    return value["rule"], value["all"]


def true_loss(lead: int) -> float:
    """Return what `lead` loses on the population, by summing over all ways in which the votes can fall."""
    return float(np.mean([full - rule for rule, full in (scores(p, lead) for p in RIGHT)]))


def test_the_loss_of_a_question_is_its_mean_over_orders():
    recording = population(3, np.random.default_rng(1))
    policy = policy_for(recording, "lead(2)")
    for kind in ("net", "harm"):
        measured = measure_losses(recording, [policy], Claim(epsilon=0.1, metric="em", loss=kind, orders=2000))
        exact = []
        for row in recording.answers.tolist():
            losses = []
            for order in set(itertools.permutations(row)):  # equal answers: as many orders of each kind
                n = next(
                    (n for n in range(1, WIDTH + 1) if abs(order[:n].count("a") - order[:n].count("b")) >= 2), WIDTH
                )
                values = [Counter(votes).most_common(1)[0][0] == "a" for votes in (order[:n], order)]
                net = float(values[1]) - float(values[0])
                losses.append(net if kind == "net" else max(0.0, net))
            exact.append(np.mean(losses))
        np.testing.assert_allclose(sorted(measured.losses[0]), sorted(exact), atol=0.04)
    assert "2000 random orders" in " ".join(measured.notes)


@pytest.mark.whole
def test_a_false_certificate_at_epsilon_is_as_rare_as_promised():
    rng = np.random.default_rng(7)
    epsilon = true_loss(1)
    assert 0.05 < epsilon < 0.2
    n_sets, delta = 20, 0.1
    claim = Claim(epsilon=epsilon, confidence=1 - delta, metric="em", orders=5)
    certified = sum(certify(population(120, rng), ["lead(1)"], claim).policy is not None for _ in range(n_sets))
    # At most delta; twice the binomial standard error above it has a chance of some percent, at most.
    assert certified <= n_sets * delta + 2 * np.sqrt(n_sets * delta * (1 - delta))


def test_a_rule_that_loses_less_is_certified():
    rng = np.random.default_rng(3)
    claim = Claim(epsilon=0.1, metric="em", orders=10)
    assert true_loss(3) < 0.02
    assert certify(population(400, rng), ["lead(3)"], claim).policy is not None
    again = [certify(population(60, np.random.default_rng(s)), ["lead(3)"], claim).p_values[0] for s in (5, 5)]
    assert again[0] == again[1]


def test_a_mean_over_orders_has_no_exact_binomial_test():
    recording = population(20, np.random.default_rng(2))
    claim = Claim(epsilon=0.1, metric="em", loss="harm")
    assert claim.binary
    averaged = claim.averaged_over(recording, [])
    assert averaged.orders == 100
    assert not averaged.binary
    follow = Recording(recording.table, {})
    assert claim.averaged_over(follow, []).binary
    with pytest.raises(DataError, match="follow"):
        certify(follow, ["fixed_k(2)"], Claim(epsilon=0.1, metric="em", orders=10))


def test_what_cannot_average_over_orders_refuses_samples():
    recording = population(20, np.random.default_rng(2))
    with pytest.raises(DataError, match="independent samples"):
        diagnose(recording)


def test_of_samples_the_majority_is_returned_and_of_other_rounds_the_last():
    recording = population(4, np.random.default_rng(2))
    assert str(policy_for(recording, "lead(2)").selector) == "majority_of_samples"
    assert str(policy_for(Recording(recording.table, {}), "lead(2)").selector) == "last"
    numbers = Recording(recording.table, {"exchangeable": True, "normalizer": "exact"})
    assert policy_for(numbers, "lead(2)").normalizer == "exact"
