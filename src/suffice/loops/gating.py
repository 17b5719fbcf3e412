"""A gated round 0 in a live loop: the closed-book answer is generated only if the policy needs it.

A recording always contains both the gate's decision and the answer.  Replay charges the answer if a live run would have
generated it; both use `Policy.reads_every_answer` and the rule's `reads` for this.
"""

from __future__ import annotations

from suffice.loops.course import Call, PendingCall, RoundResult
from suffice.loops.measuring import needs_critique, unmeasured
from suffice.policy.rounds import Round
from suffice.policy.session import Session
from suffice.policy.signals import CRITIC, GATE, SIGNALS


def needed(session: Session, call: Call, *, measured: bool) -> bool:
    """Return whether a live loop needs to make a call; the critic is called only once all else is `measured`."""
    assert call.without is not None
    without = call.without.observed
    if call.part == CRITIC:
        return measured and needs_critique(session, without)
    return _needs_answer(session, without)


def _needs_answer(session: Session, without: Round) -> bool:
    """Return whether the decision at a round without an answer needs the answer.

    It does if the policy stops at this round, or if the rule, evaluated member by member, reads a signal of the answer.
    """
    if session.policy.reads_every_answer or session.would_stop(without):
        return True
    return any(name not in SIGNALS or SIGNALS[name].component not in ("", GATE) for name in session.reads(without))


class PendingAnswer:
    """The answer of round 0, not yet generated because it was not needed.

    It is generated if the loop ends without another answer, and dropped once a later round has one.
    """

    def __init__(self) -> None:
        self._rest: PendingCall | None = None

    def observed(self, session: Session, result: RoundResult) -> Round:
        """Return the round as the session needs it."""
        if result.is_answered:
            return result.observed
        self._rest = result.rest
        return unmeasured(session, result.observed)

    def due(self, session: Session, observed: Round | None) -> PendingCall | None:
        """Return the call to make before the session observes a round, or before it ends (None); at most once."""
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
    def answered(session: Session, result: RoundResult) -> Session:
        """Return the session with the answer of round 0 added; its decisions stay the same."""
        fresh = Session(session.policy, missing="ignore")  # its rounds were already checked
        for observed in (unmeasured(session, result.observed), *session.rounds[1:]):
            fresh.observe(observed)
        return fresh
