"""Check an observed round, write its costs into columns, and report the signals of the policy that the round lacks."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from suffice.errors import DataError, NotFittedError, UnknownSignalError, did_you_mean
from suffice.policy.rounds import COST_KINDS, Cost, Floats, Round
from suffice.policy.session.policy import Policy
from suffice.policy.signals import CUMULATED, LOOP_COMPONENTS, SIGNALS

_FREE = Cost()
_UNKNOWN_COST = Cost(**dict.fromkeys(COST_KINDS, math.nan))


def check_round(observed: Any) -> None:
    """Raise if a value is not a round, or if its answer or costs have the wrong type."""
    if not isinstance(observed, Round):
        raise DataError(f"a session observes a Round, not {observed!r}: give Round(...), or a text as draft=...")
    if not isinstance(observed.answer, str | None):
        raise DataError(f"an answer is a text, or None where there is none, not {observed.answer!r}")
    wrong = next((c for c in observed.costs.items() if not isinstance(c[1], Cost)), None)
    if wrong is not None:
        raise DataError(f"the costs of {wrong[0]!r} are a Cost, such as Cost(calls=1), not {wrong[1]!r}")


def write_costs(columns: Mapping[str, Floats], observed: Round, position: int) -> None:
    """Write the costs of a round into the columns that a policy reads."""
    # If a host reports no costs at all, they are unknown, not zero.
    known = any(component in observed.costs for component in LOOP_COMPONENTS)
    absent = _FREE if known else _UNKNOWN_COST
    for component in LOOP_COMPONENTS:
        cost = observed.costs.get(component, absent)
        for kind in COST_KINDS:
            column = columns.get(f"cost.{component}.{kind}")
            if column is not None:
                column[position] = getattr(cost, kind)


def lack_error(policy: Policy, r: int, missing: Mapping[str, str]) -> NotFittedError | UnknownSignalError:
    """Return the error about signals that a round lacks (see `lacking`).

    The error's message lists ways to decide without these signals.
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
