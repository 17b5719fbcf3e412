"""Shadows: decisions of other policies on the rounds of a live question."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Protocol

from suffice.policy.rounds import Decision, Reason, Round
from suffice.policy.session.policy import Policy


class Following(Protocol):
    """The attributes and methods of a session that shadows use."""

    @property
    def policy(self) -> Policy:
        """The policy."""

    @property
    def decision(self) -> Decision | None:
        """The final decision; None before the stop."""

    @property
    def next_round(self) -> int:
        """The index of the round that is expected next."""

    def observe(self, observed: Round, /) -> Decision:
        """Observe one more round and return the decision."""

    def end(self, reason: Reason) -> Decision:
        """End the question without a further round, and return the decision."""


class Shadows:
    """Sessions of shadow policies that observe the rounds of a live session.

    Shadows observe the rounds only when their decisions are requested, so they cannot delay or break the live session.
    """

    def __init__(self, sessions: Mapping[str, Following]) -> None:
        self.sessions = dict(sessions)
        self._broken: set[str] = set()

    def decisions(self, rounds: Sequence[Round], ended: Reason | None) -> dict[str, Decision | None]:
        """Return the decision of each shadow; None if it would continue after these rounds, or cannot decide.

        Args:
            rounds: All rounds so far.
            ended: The reason why the loop has no further round; None if it continues, or if a policy stopped it.
        """
        for name, session in self.sessions.items():
            if name not in self._broken:
                self._follow(name, session, rounds, ended)
        return {name: session.decision for name, session in self.sessions.items()}

    def _follow(self, name: str, session: Following, rounds: Sequence[Round], ended: Reason | None) -> None:
        try:
            for observed in rounds:
                if session.decision is None and observed.index == session.next_round:
                    session.observe(observed)
            if session.decision is None and ended in ("exhausted", "failed"):  # the shadow's loop would have ended, too
                session.end(ended)
        except Exception as error:  # noqa: BLE001 - rules and signals of users may raise anything, and the answer is out
            self._broken.add(name)
            warnings.warn(
                f"the shadow policy {name!r} decides nothing on this question: {type(error).__name__}: {error}",
                stacklevel=4,
            )
