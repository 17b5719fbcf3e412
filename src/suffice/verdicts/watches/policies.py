"""The number of a policy among all policies of its loop, and its share of the risk of false alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics.restarts import share
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from suffice.verdicts.watches.requests import times_of


def policy_number(log: Recording, policy: Policy) -> int:
    """Return the number of a policy, from 1; policies are numbered in the order of their first requests in the log.

    A policy without requests comes after all others. If the time of a request is missing, the order of the rows counts
    instead.

    Args:
        log: The whole log, with the requests of all policies.
        policy: The policy to number.
    """
    digests = log.per_question("policy_digest", [None] * log.shape[0])
    decided = np.array([digest is not None for digest in digests.tolist()], dtype=np.bool_)
    names, times = digests[decided].astype(str), times_of(log)[decided]
    order = np.arange(len(names)) if np.isnan(times).any() else times
    return number_by_begin({name: float(order[names == name].min()) for name in np.unique(names).tolist()}, policy)


def number_by_begin(begins: Mapping[str, float], policy: Policy) -> int:
    """Return the number of a policy, from 1; policies are numbered in the order of their first requests.

    Policies that began at the same time are ordered by digest.

    Args:
        begins: The time or position of the first request of each policy, by the policy's digest.
        policy: The policy; if it has no request yet, it gets the next number.
    """
    mine = (begins.get(policy.digest, math.inf), policy.digest)
    return 1 + sum((begin, digest) < mine for digest, begin in begins.items())


def share_of_risk(alpha: float, number: int) -> float:
    """Return one policy's share of the risk of a false alarm.

    The shares of all policies that a loop ever has add up to `alpha`.

    >>> [round(share_of_risk(0.05, number), 4) for number in (1, 2, 3)]
    [0.0205, 0.0057, 0.0029]
    """
    if number < 1:
        raise DataError(f"policies of a loop are numbered from 1, not {number!r}: 3 is the third that was deployed")
    return alpha * float(share(number))


def risk_note(alpha: float, number: int, *, counted: bool) -> str:
    """Return a note on a policy's share of the risk."""
    text = (
        f"the risk of a false alarm is {100 * share_of_risk(alpha, number):.2g} % for this policy, number {number:,} of this "
        f"{'log' if counted else 'loop'}, and {100 * alpha:g} % over all policies that it ever has"
    )
    unseen = ". If the loop had others before, in logs of their own, give its number (--set policy-number=N, number=N)"
    return text + unseen * (counted and number == 1)


def risk_text(alpha: float, number: int) -> str:
    """Return a policy's share of the risk, and the risk over all policies, in words.

    >>> risk_text(0.05, 3)
    '0.29 %; 5 % over all policies'
    """
    return f"{100 * share_of_risk(alpha, number):.2g} %; {100 * alpha:g} % over all policies"
