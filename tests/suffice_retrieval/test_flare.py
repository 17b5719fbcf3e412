"""FLARE's trigger: the first sentence with an unlikely token."""

from __future__ import annotations

import math

import pytest

from suffice.errors import DataError
from suffice.loops.models.sentences import first_sentence
from suffice.policy.rounds import Token
from suffice_retrieval.methods.flare import flare_trigger


def logs(*probabilities):
    return [Token(text, math.log(p)) for text, p in probabilities]


def test_flare_retrieves_at_the_first_sentence_with_an_unlikely_token():
    reply = logs(("It", 0.9), ("Ġrained", 0.8), (".", 0.9), ("ĠThen", 0.9), ("Ġsnow", 0.3), (".", 0.9))
    assert first_sentence(reply) == 3
    assert flare_trigger(reply, 0.5) == 3
    assert flare_trigger(reply, 0.85) == 0
    assert flare_trigger(reply, 0.3) is None
    assert flare_trigger([], 0.9) is None


@pytest.mark.parametrize("theta", [-0.1, 1.1, math.nan])
def test_flare_refuses_a_theta_that_is_no_probability(theta):
    with pytest.raises(DataError, match="theta"):
        flare_trigger(logs(("a", 0.5)), theta)


def test_flare_refuses_tokens_without_probabilities():
    with pytest.raises(DataError, match="log-probabilities"):
        flare_trigger([Token("a")], 0.5)
