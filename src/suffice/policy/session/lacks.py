"""The errors of a session about a round that lacks signals of its policy."""

from __future__ import annotations

from collections.abc import Mapping

from suffice.errors import NotFittedError, UnknownSignalError, did_you_mean
from suffice.policy.session.policy import Policy
from suffice.policy.signals import CUMULATED, SIGNALS


def lack_error(policy: Policy, r: int, missing: Mapping[str, str]) -> NotFittedError | UnknownSignalError:
    """Return the error that says what round `r` lacks, and the ways to decide all the same.

    Args:
        policy: The policy.
        r: The round.
        missing: What each signal lacks, see `suffice.policy.signals.lacking`.
    """
    lacks = dict.fromkeys(missing.values())
    unfitted = any(map(policy.unfitted, missing))
    ways = ["fit a calibrator (`suffice calibrate`)"] if unfitted else []
    ways += [f"give the round {lack}=..." for lack in lacks if not lack.startswith("value")]
    values = sorted({policy.raw_of(name) for name in missing if name not in CUMULATED})
    if values:
        ways.append(f"signals={{{', '.join(f'{name!r}: ...' for name in values)}}}, NaN where a value is undefined")
    text = (
        f"the policy {policy.label!r} reads {', '.join(map(repr, missing))}, and round {r} brings no "
        f"{', '.join(lacks)}.{''.join(did_you_mean(name, SIGNALS) for name in missing if name not in SIGNALS)} To "
        f"decide by it, {', or '.join(ways)}; Session(missing='warn') or 'ignore' goes on without"
    )
    return NotFittedError(text) if unfitted else UnknownSignalError(text)
