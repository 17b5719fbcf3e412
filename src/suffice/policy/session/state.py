"""A session as JSON, for a checkpointer, a queue or a stateless server to store between two rounds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suffice.common.json_text import check_types
from suffice.errors import ConfigMismatchError, SchemaError
from suffice.policy.rounds import Decision, Reason, Round
from suffice.policy.session.audits import Draw
from suffice.policy.session.policy import Missing, Policy

STATE_FORMAT = "suffice.session"
STATE_VERSION = 2
_PLAIN_VERSION = 1  # for sessions without audit and shadows, so that older releases can read them


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionState:
    """The values from which a session is restored; the session's columns are computed again from the rounds.

    Attributes:
        missing: The reaction to a round that lacks a signal which the policy reads.
        unproven: The signals whose presence has not been checked in any round yet.
        decision: The final decision; None while the loop continues.
        draw: The audit's draw of the question; None without an audit.
        ended: The reason why the host ended the question, or its audit; None if the host ended neither.
    """

    policy: Policy
    missing: Missing
    unproven: set[str]
    rounds: tuple[Round, ...]
    decision: Decision | None
    draw: Draw | None = None
    ended: Reason | None = None
    shadow: tuple[Policy, ...] = ()

    @property
    def n_decided(self) -> int:
        """Number of rounds up to the decision; further rounds belong to the audit."""
        stop = None if self.decision is None else self.decision.stop_round
        return len(self.rounds) if stop is None else stop - self.policy.start_round + 1


def pack(state: SessionState) -> dict[str, Any]:
    """Return JSON-ready values for `unpack`.

    Each round contains all evidence so far, so a passage is written once and referenced by its number.
    """
    passages: list[Any] = []
    numbers: dict[Any, int] = {}
    packed = []
    for observed in state.rounds:
        row = observed.to_dict()
        for position, passage in enumerate(row["passages"]):
            number = numbers.setdefault(tuple(passage), len(passages))
            if number == len(passages):
                passages.append(passage)
            row["passages"][position] = number
        packed.append(row)
    plain = {
        "format": STATE_FORMAT,
        "version": _PLAIN_VERSION,
        "policy": state.policy.to_dict(),
        "missing": state.missing,
        "unproven": sorted(state.unproven),
        "passages": passages,
        "rounds": packed,
        "decision": None if state.decision is None else state.decision.to_dict(),
    }
    if state.draw is None and not state.shadow:
        return plain
    return {
        **plain,
        "version": STATE_VERSION,
        "draw": None if state.draw is None else asdict(state.draw),
        "ended": state.ended,
        "shadow": [policy.to_dict() for policy in state.shadow],
    }


def unpack(state: Any, policy: Policy | None) -> SessionState:
    """Read the state that `pack` wrote.

    Args:
        state: The values.
        policy: The policy to which the state must belong; None = the policy in the state.

    Raises:
        SchemaError: The values are not a session's state that this release reads.
        ConfigMismatchError: The state belongs to another policy than `policy`.
        RuleSyntaxError: The rule does not parse.
    """
    if not isinstance(state, Mapping) or state.get("format") != STATE_FORMAT:
        raise SchemaError(f"this is not the state of a session: the field 'format' must be {STATE_FORMAT!r}")
    if state.get("version") not in (_PLAIN_VERSION, STATE_VERSION) or isinstance(state["version"], bool):
        raise SchemaError(
            f"the state of a session has version {state.get('version')!r}; this release reads {_PLAIN_VERSION} and "
            f"{STATE_VERSION}"
        )
    if state["version"] == _PLAIN_VERSION:
        state = {**state, "draw": None, "ended": None, "shadow": []}
    stored = Policy.from_dict(state.get("policy"))
    if policy is not None and policy.digest != stored.digest:
        raise ConfigMismatchError(
            f"the state belongs to the policy {stored.label!r} ({stored.digest}), not to {policy.label!r} "
            f"({policy.digest}): finish the question with the old policy, or begin it anew"
        )
    try:
        check_types(SessionState, state)
        check_types(Draw, state["draw"] or {})
        passages = dict(enumerate(_listed(state["passages"])))  # a dict, so that -1 is not an index
        rows = [
            {**row, "passages": [passages[number] for number in _listed(row["passages"])]} for row in state["rounds"]
        ]
        values = SessionState(
            policy=stored if policy is None else policy,
            missing=state["missing"],
            unproven={*map(_text, state["unproven"])},
            rounds=tuple(map(Round.from_dict, rows)),
            decision=None if state["decision"] is None else Decision.from_dict(state["decision"]),
            draw=None if state["draw"] is None else Draw(**state["draw"]),
            ended=state["ended"],
            shadow=tuple(map(Policy.from_dict, state["shadow"])),
        )
        n_decided = values.n_decided
    except (KeyError, IndexError, TypeError) as error:
        raise SchemaError(f"the state of a session does not read: {error!r}") from None
    if not 0 <= n_decided <= len(values.rounds):
        raise SchemaError(f"the state of a session has a decision after {n_decided} of its {len(values.rounds)} rounds")
    return values


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError(f"{value!r:.80} is not a list")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.80} is not the name of a signal")
    return value
