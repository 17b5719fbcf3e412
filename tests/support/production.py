"""Production logs as `Recorder` writes them, built from numbers, so that a test knows the loss that it planted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.policy.session import Policy
from suffice.recordings.recording import Recording
from tests.support.shared import recording_of

MINUTE = 60.0
BEGIN = 1_767_225_600.0
POLICY = Policy(rule="answer_margin >= 1", max_rounds=3)


def certified(policy: Policy = POLICY, **changes: Any) -> Policy:
    """Return a policy with a certificate that it was not given by any questions."""
    certificate = {
        "policy_digest": policy.digest,
        "loss": "harm",
        "metric": "em",
        "baseline": "full",
        "epsilon": 0.03,
        "confidence": 0.95,
        "method": "",
        "p_value": 0.01,
        "level": 0.05,
        "procedure": "fixed-sequence",
        "family": "",
        "family_size": 1,
        "position": 0,
        "sequence": [],
        "n": 300,
        "n_failed": 0,
        "seed": 42,
        "figures": {},
        "data_hash": "",
        "question_ids": [],
        "notes": [],
        "versions": {},
    }
    return replace(policy, certificate={**certificate, **changes})


def production_log(
    n: int,
    *,
    loss: Callable[[int], float] = lambda number: 0.01,
    rate: Callable[[int], float] = lambda number: 0.3,
    margin: Callable[[int], float] = lambda number: 0.0,
    policy: Policy = POLICY,
    seed: int = 0,
    lost: Callable[[int], bool] = lambda number: False,
    **columns: Any,
) -> Recording:
    """Return a log of n requests, one a minute; a request that the rule stops early is wrong with the chance `loss`.

    Args:
        n: Requests.
        loss: The chance that an answer is wrong of which the full run would be right, by the number of the request.
        rate: The probability of its audit.
        margin: The mean of its margins.
        policy: What decided.
        seed: Of all draws.
        lost: Whether its audit got lost.
        columns: In the place of those that are made here, or beside them; see `recording_of`.
    """
    rng = np.random.default_rng(seed)
    answers: list[list[str | None]] = []
    made: dict[str, list[Any]] = {
        name: []
        for name in (
            *("policy_digest", "stop_round", "answer_round", "stop_reason", "audit_rate", "audited"),
            *("end", "answer_margin", "recorded_at"),
        )
    }
    for number in range(n):
        margins = (rng.normal(size=3) + margin(number)).tolist()
        fires = [r + 1 for r in range(3) if margins[r] >= 1]
        stop = fires[0] if fires else 3
        is_wrong = stop < 3 and rng.random() < loss(number)
        drawn = rng.random() < rate(number)
        width = 3 if drawn and not lost(number) else stop
        answers.append(["b" if is_wrong and r < stop else "a" for r in range(width)])
        values = {
            "policy_digest": policy.digest,
            "stop_round": float(stop),
            "answer_round": float(stop),
            "stop_reason": "rule" if fires else "max_rounds",
            "audit_rate": rate(number),
            "audited": float(drawn),
            "end": "max_rounds" if width == 3 else "rule",
            "answer_margin": margins[:width],
            "recorded_at": BEGIN + MINUTE * number,
        }
        for name, value in values.items():
            made[name].append(value)
    made |= columns
    return recording_of(answers, kinds={"answer_margin": "signal", "other": "signal"}, **made)
