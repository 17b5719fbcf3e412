"""A gated round 0, live: the closed-book answer is generated only where the policy needs it (SEMANTICS, Costs).

A recording always makes both, the gate's decision and the answer, and replay charges the answer where a live run would
have generated it: both ask `Policy.reads_every_answer` and the rule's own `reads`.
"""

from __future__ import annotations

from suffice.loop.course import Call, Made, Rest
from suffice.loop.measuring import needs_critique, unmeasured
from suffice.rounds import Round
from suffice.session import Session
from suffice.signals import CRITIC, GATE, SIGNALS

__all__ = ["Unanswered", "needed"]


def needed(session: Session, call: Call, *, measured: bool) -> bool:
    """Return whether a live loop makes a call, among those that a round may do without.

    Args:
        session: The question's state before this round.
        call: The call.
        measured: Whether everything else that the policy may read of the round is there; until then its critic waits.
    """
    assert call.without is not None
    without = call.without.observed
    if call.part == CRITIC:
        return measured and needs_critique(session, without)
    return _needs_answer(session, without)


def _needs_answer(session: Session, without: Round) -> bool:
    """Return whether deciding at a round that holds no answer yet takes the answer.

    It does where the policy stops there, and where the rule, read member by member, comes to a signal of the answer.

    Args:
        session: The question's state before this round.
        without: The round with what the gate found.
    """
    if session.policy.reads_every_answer or session.would_stop(without):
        return True
    return any(name not in SIGNALS or SIGNALS[name].component not in ("", GATE) for name in session.reads(without))


class Unanswered:
    """The answer of a round 0 that nobody has needed so far.

    It falls due where the loop ends without another one; it is forgotten once a later round has an answer.
    """

    def __init__(self) -> None:
        self._rest: Rest | None = None

    def observed(self, session: Session, made: Made) -> Round:
        """Return a round that was made, as the session may take it in."""
        if made.is_answered:
            return made.observed
        self._rest = made.rest
        return unmeasured(session, made.observed)

    def due(self, session: Session, observed: Round | None) -> Rest | None:
        """Return what must be made before the session takes in a round, or before it ends; once.

        Args:
            session: The question's state.
            observed: The round; None = the loop ends.
        """
        if self._rest is None or (observed is not None and observed.index == 0):
            return None
        rest = self._rest
        if observed is None:
            self._rest = None
            return rest if session.decision is None else None
        if observed.answer and not observed.answer.isspace():
            self._rest = None
            return None
        if session.would_stop(observed):
            self._rest = None
            return rest
        return None

    @staticmethod
    def answered(session: Session, made: Made) -> Session:
        """Return the session as it is with the answer of round 0; it has not read it, so it decides as before."""
        fresh = Session(session.policy, missing="ignore")  # its rounds have been taken in before
        for observed in (unmeasured(session, made.observed), *session.rounds[1:]):
            fresh.observe(observed)
        return fresh
