"""Published rules that stop a chain of thought (s1, Dynasor-CoT, DEER, thought calibration, LYNX), or accept an answer of an escalation (FrugalGPT, AutoMix)."""

from __future__ import annotations

import math

from suffice.errors import RuleSyntaxError
from suffice.policy.rules.algebra import Patience, signal
from suffice.policy.rules.rule import Rule


def token_budget(tokens: float) -> Rule:
    """Return the rule that stops thinking at the first checkpoint with at least `tokens` tokens (s1's budget forcing).

    A chain that ends earlier keeps its own answer and is not charged for a trial answer.

    >>> print(token_budget(2000))
    thinking_tokens >= 2000
    """
    return signal("thinking_tokens") >= tokens


def dynasor(trials: float = 3) -> Rule:
    """Return Dynasor-CoT's rule: stop after `trials` equal trial answers in a row, none of which hesitates (Fu et al., 2025).

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

    Yang et al. (2025) decide at words such as "Wait"; to reproduce this, the checkpoints must be at these words.

    >>> print(deer(0.95))
    answer_logprob_mean > -0.05129329438755058
    """
    if not 0 < probability < 1:
        raise RuleSyntaxError(
            f"deer takes a probability between 0 and 1, both excluded, not {probability!r}: 0.95 in the paper"
        )
    return signal("answer_logprob_mean") > math.log(probability)


def thought_calibrated(probability: float = 0.9) -> Rule:
    """Return thought calibration's rule: the calibrated probability of the trial answer reaches `probability` (Wu et al., 2025).

    The paper's probe reads hidden states; here `suffice calibrate` fits `p_correct` to a signal of the trial answers.  As in the paper,
    Learn-then-Test chooses the threshold: ``suffice certify --path p_correct``.

    >>> print(thought_calibrated(0.8))
    p_correct >= 0.8
    """
    if not 0 < probability <= 1:
        raise RuleSyntaxError(
            f"thought_calibrated takes a probability, above 0 and at most 1, not {probability!r}: certify chooses one"
        )
    return signal("p_correct") >= probability


def lynx(probability: float = 0.9) -> Rule:
    """Return LYNX's rule: a probe of the model's states gives P(trial answer is right) > `probability` (Akgül et al., 2025).

    No trial answer is requested before the stop.  The paper reads the states at words such as "wait", and takes its
    threshold from conformal prediction. Here the states are read at checkpoints every few tokens, and `suffice certify
    --path p_settled` tests thresholds.

    >>> print(lynx(0.8))
    p_settled > 0.8
    """
    if not 0 < probability < 1:
        raise RuleSyntaxError(
            f"lynx takes a probability between 0 and 1, both excluded, not {probability!r}: certify chooses one"
        )
    return signal("p_settled") > probability


def frugalgpt(first: float, later: float | None = None) -> Rule:
    """Return FrugalGPT's rule: accept an answer whose score exceeds the threshold of its attempt (Chen et al., 2023, section 3).

    The paper fits the scorer, here the signal `verifier_score`, to right and wrong answers. It chooses up to three
    models and their thresholds on training questions. The answer of the last model is always accepted.

    >>> print(frugalgpt(0.96, 0.37))
    ((verifier_score > 0.96) & (round <= 1)) | ((verifier_score > 0.37) & (round > 1))

    Args:
        first: The threshold of the first attempt.
        later: The threshold of the second attempt and of any later one; None = the same as `first`.
    """
    if later is None:
        return signal("verifier_score") > first
    begins = (signal("verifier_score") > first) & (signal("round") <= 1)
    return begins | ((signal("verifier_score") > later) & (signal("round") > 1))


def automix(share: float = 0.5) -> Rule:
    """Return AutoMix's rule with a threshold: accept if at least `share` of the model's verifications find the answer right.

    The small model is asked several times whether its answer is right (Aggarwal et al., 2024). The share of yes is the
    signal `verifier_score`, and these calls are part of the question's cost. The paper also has a router that is a POMDP
    over bins of this share; it is not implemented.

    >>> print(automix(0.75))
    verifier_score >= 0.75

    Args:
        share: The smallest share of yes that accepts the answer, in (0, 1].

    Raises:
        RuleSyntaxError: The share is out of range.
    """
    if not 0 < share <= 1:
        raise RuleSyntaxError(
            f"automix takes a share of verifications, above 0 and at most 1, not {share!r}: 0.5 is the majority"
        )
    return signal("verifier_score") >= share
