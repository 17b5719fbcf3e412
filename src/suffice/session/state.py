"""A session as JSON: what a checkpointer, a queue or a stateless server keeps between two rounds."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

from suffice.errors import ConfigMismatchError, SchemaError
from suffice.rounds import Decision, Round
from suffice.session.policy import Policy

__all__ = ["Missing", "SessionState", "pack", "unpack"]

STATE_FORMAT = "suffice.session"
STATE_VERSION = 1

Missing = Literal["error", "warn", "ignore"]
"""What a session does if a round does not bring what the policy reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """What a session is rebuilt from; its columns are computed from the rounds by the code that computed them first.

    Attributes:
        policy: What decides.
        missing: What to do if a round does not bring what the policy reads.
        unproven: The signals that no round had to bring so far.
        rounds: The observed rounds.
        decision: The final decision; None while the loop goes on.
    """

    policy: Policy
    missing: Missing
    unproven: set[str]
    rounds: tuple[Round, ...]
    decision: Decision | None


def pack(
    policy: Policy, missing: Missing, unproven: Collection[str], rounds: Sequence[Round], decision: Decision | None
) -> dict[str, Any]:
    """Return JSON-ready values for `unpack`; see `SessionState` for the arguments.

    Each round holds all evidence so far, so a passage is written once and referred to by its number.
    """
    passages: list[Any] = []
    numbers: dict[Any, int] = {}
    packed = []
    for observed in rounds:
        row = observed.to_dict()
        for position, passage in enumerate(row["passages"]):
            number = numbers.setdefault(tuple(passage), len(passages))
            if number == len(passages):
                passages.append(passage)
            row["passages"][position] = number
        packed.append(row)
    return {
        "format": STATE_FORMAT,
        "version": STATE_VERSION,
        "policy": policy.to_dict(),
        "missing": missing,
        "unproven": sorted(unproven),
        "passages": passages,
        "rounds": packed,
        "decision": None if decision is None else decision.to_dict(),
    }


def unpack(state: Any, policy: Policy | None) -> SessionState:
    """Return what `pack` wrote.

    Args:
        state: The values.
        policy: The policy that it must belong to; None = the policy in the state.

    Raises:
        SchemaError: They are not the state of a session that this release reads.
        ConfigMismatchError: It is the state of another policy.
        RuleSyntaxError: The rule does not parse.
    """
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise SchemaError(f"this is not the state of a session: the field 'format' must be {STATE_FORMAT!r}")
    if state.get("version") != STATE_VERSION:
        raise SchemaError(
            f"the state of a session has version {state.get('version')!r}; this release reads {STATE_VERSION}"
        )
    stored = Policy.from_dict(state.get("policy"))
    if policy is not None and policy.digest != stored.digest:
        raise ConfigMismatchError(
            f"the state belongs to the policy {stored.label!r} ({stored.digest}), not to {policy.label!r} "
            f"({policy.digest}): finish the question with the old policy, or begin it anew"
        )
    if state.get("missing") not in get_args(Missing):
        raise SchemaError(
            f"the state of a session says missing={state.get('missing')!r}; allowed: {', '.join(get_args(Missing))}"
        )
    try:
        passages = state["passages"]
        rows = [{**row, "passages": [passages[number] for number in row["passages"]]} for row in state["rounds"]]
        return SessionState(
            policy=stored if policy is None else policy,
            missing=state["missing"],
            unproven=set(state["unproven"]),
            rounds=tuple(map(Round.from_dict, rows)),
            decision=None if state["decision"] is None else Decision.from_dict(state["decision"]),
        )
    except (KeyError, IndexError, TypeError) as error:
        raise SchemaError(f"the state of a session does not read: {error!r}") from None
