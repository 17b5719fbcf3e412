"""The published rules that accept an answer of an escalation: FrugalGPT, AutoMix."""

from __future__ import annotations

from suffice.errors import RuleSyntaxError
from suffice.policy.rules.algebra import signal
from suffice.policy.rules.rule import Rule


def frugalgpt(first: float, later: float | None = None) -> Rule:
    """Return FrugalGPT's rule: accept an answer whose score exceeds the threshold of its attempt (Chen et al., 2023, section 3).

    The paper fits the scorer, `verifier_score`, to right and wrong answers, and chooses the models and thresholds on training questions,
    up to three models; the last one's answer is always accepted.

    >>> print(frugalgpt(0.96, 0.37))
    ((verifier_score > 0.96) & (round <= 1)) | ((verifier_score > 0.37) & (round > 1))

    Args:
        first: The threshold of the first attempt.
        later: That of the second, and of any later one; None = the same.
    """
    if later is None:
        return signal("verifier_score") > first
    begins = (signal("verifier_score") > first) & (signal("round") <= 1)
    return begins | ((signal("verifier_score") > later) & (signal("round") > 1))


def automix(share: float = 0.5) -> Rule:
    """Return AutoMix's rule with a threshold: accept if a share of the model's own verifications finds the answer right.

    The small model is asked several times whether its answer is right (Aggarwal et al., 2024); the share of yes is
    `verifier_score`, whose calls a question pays.  The paper's other router, a POMDP over the bins of this share, is not built.

    >>> print(automix(0.75))
    verifier_score >= 0.75

    Args:
        share: The least share, in (0, 1].

    Raises:
        RuleSyntaxError: It is out of range.
    """
    if not 0 < share <= 1:
        raise RuleSyntaxError(
            f"automix takes a share of verifications, above 0 and at most 1, not {share!r}: 0.5 is the majority"
        )
    return signal("verifier_score") >= share
