"""The published rules that accept an answer of an escalation, against plain loops written from the papers."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.errors import RuleSyntaxError
from suffice.policy.rounds import Rounds
from suffice.policy.rules import parse_rule
from suffice.policy.rules.published import automix, frugalgpt

N, MODELS = 4000, 4


def frugalgpt_loop(scores, thresholds):
    """Section 3 of FrugalGPT: go through the list of models, and return at the first score above its model's threshold."""
    for place, score in enumerate(scores[:-1]):
        if score > thresholds[min(place, len(thresholds) - 1)]:
            return place
    return len(scores) - 1


def automix_loop(votes, threshold):
    """Self-verification by several votes on each answer: the share of yes is compared with the threshold of the router."""
    for place, own in enumerate(votes[:-1]):
        if sum(own) / len(own) >= threshold:
            return place
    return len(votes) - 1


def stop_places(rule, scores):
    index = np.arange(1, MODELS + 1)
    columns = {"verifier_score": scores, "round": np.broadcast_to(index.astype(float), scores.shape)}
    rounds = Rounds(columns, index, np.ones(scores.shape, dtype=bool))
    fires = parse_rule(str(rule)).fires(rounds)
    return np.where(fires[:, :-1].any(axis=1), fires[:, :-1].argmax(axis=1), MODELS - 1).tolist()


@pytest.mark.parametrize("thresholds", [(0.96, 0.37), (0.5,), (0.25, 0.75), (1.0, 0.0)])
def test_frugalgpt_equals_a_loop_over_models(thresholds):
    scores = np.random.default_rng(5).choice([0.0, 0.25, 0.37, 0.5, 0.75, 0.96, 1.0], size=(N, MODELS))
    expected = [frugalgpt_loop(row, thresholds) for row in scores.tolist()]
    assert stop_places(frugalgpt(*thresholds), scores) == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("threshold", [0.125, 0.5, 0.75, 1.0])
def test_automix_equals_a_loop_over_votes(threshold):
    votes = np.random.default_rng(6).random((N, MODELS, 8)) < np.random.default_rng(7).random((N, MODELS, 1))
    expected = [automix_loop(row, threshold) for row in votes.tolist()]
    assert stop_places(automix(threshold), votes.mean(axis=2)) == expected
    assert len(set(expected)) > 1


@pytest.mark.parametrize("share", [0, -0.5, 1.5])
def test_a_share_of_verifications_out_of_range_is_refused(share):
    with pytest.raises(RuleSyntaxError, match="share of verifications"):
        automix(share)


def test_an_answer_without_a_score_is_not_accepted():
    scores = np.array([[np.nan, np.nan, 0.9, 0.9]])
    assert stop_places(frugalgpt(0.1, 0.1), scores) == stop_places(automix(0.5), scores) == [2]
