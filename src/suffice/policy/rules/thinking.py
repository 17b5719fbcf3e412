"""The published rules that stop a chain of thought: s1, Dynasor-CoT, DEER."""

from __future__ import annotations

import math

from suffice.errors import RuleSyntaxError
from suffice.policy.rules.algebra import Patience, signal
from suffice.policy.rules.rule import Rule


def token_budget(tokens: float) -> Rule:
    """Return the rule that stops thinking at the first checkpoint with so many tokens of thought (s1's budget forcing).

    A chain that ends before keeps its own answer, and pays no trial.

    >>> print(token_budget(2000))
    thinking_tokens >= 2000
    """
    return signal("thinking_tokens") >= tokens


def dynasor(trials: float = 3) -> Rule:
    """Return Dynasor-CoT's rule: `trials` trial answers in a row are the same, and none of them hesitates (Fu et al., 2025).

    >>> print(dynasor(3))
    (patience((answer_stable >= 1), 2)) & (patience((trial_hesitates < 1), 3))
    """
    if not (trials >= 2 and float(trials).is_integer()):
        raise RuleSyntaxError(f"dynasor compares a whole number of at least 2 trial answers, not {trials!r}")
    return Patience(signal("answer_stable") >= 1, int(trials) - 1) & Patience(
        signal("trial_hesitates") < 1, int(trials)
    )


def deer(probability: float = 0.95) -> Rule:
    """Return DEER's rule: the geometric mean of the probabilities of the trial answer's tokens exceeds `probability`.

    Yang et al. (2025) look at words such as "Wait", where checkpoints then have to be.

    >>> print(deer(0.95))
    answer_logprob_mean > -0.05129329438755058
    """
    if not 0 < probability < 1:
        raise RuleSyntaxError(
            f"deer takes a probability between 0 and 1, both excluded, not {probability!r}: 0.95 in the paper"
        )
    return signal("answer_logprob_mean") > math.log(probability)
