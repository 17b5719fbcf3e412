"""The rules of loops with a check: until nothing is left to mend, and LoopGain's."""

from __future__ import annotations

from suffice.policy.rules.algebra import signal
from suffice.policy.rules.rule import Rule

_OSCILLATES = 0.95
"""LoopGain's bound of a ratio of errors from which a loop oscillates or diverges."""


def checked(rounds: float) -> Rule:
    """Return the rule that stops when a check finds nothing more, or after so many rounds.

    >>> print(checked(3))
    (check_error <= 0) | (round >= 3)
    """
    return (signal("check_error") <= 0) | (signal("round") >= rounds)


def loopgain(target: float | None = None) -> Rule:
    """Return LoopGain's rule: at the target, or where errors no longer fall; its program then returns the best round.

    That is its version 0.1, which its benchmark ran: the selector `min_check_error` returns that round.

    >>> print(loopgain(0.5))
    (check_error <= 0.5) | (error_gain >= 0.95)

    Args:
        target: The error that is good enough; None = none is, as in that version with its default.
    """
    falls = signal("error_gain") >= _OSCILLATES
    return falls if target is None else (signal("check_error") <= target) | falls
