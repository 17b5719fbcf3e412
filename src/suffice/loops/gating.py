"""Answers that a live loop generates only if the policy needs them: of a gated round 0, and of checkpoints.

A recording contains them all.  Replay charges those that a live run would have generated; both use
`Policy.reads_every_answer`, `Policy.compares_answers` and the rule's `reads` for this.
"""

from __future__ import annotations

from suffice.loops.course import Call, PendingCall, RoundResult
from suffice.loops.measuring import needs_critique, unmeasured
from suffice.policy.rounds import Round
from suffice.policy.session import Session
from suffice.policy.signals import CRITIC, GATE, OF_ANSWERS, SIGNALS, TRIAL


def needed(session: Session, call: Call, *, measured: bool) -> bool:
    """Return whether a live loop needs to make a call; the critic is called only once all else is `measured`."""
    assert call.without is not None
    without = call.without.observed
    if call.part == CRITIC:
        return measured and needs_critique(session, without)
    return _needs_trial(session, without) if call.part == TRIAL else _needs_answer(session, without)


def _needs_trial(session: Session, without: Round) -> bool:
    """Return whether the decision at a checkpoint needs its trial answer.

    It does if the policy stops there or compares answers, or if the rule, evaluated member by member, reads a signal of
    the answer.
    """
    if session.policy.compares_answers or session.would_stop(without):
        return True
    return any(name in SIGNALS and SIGNALS[name].component in OF_ANSWERS for name in session.reads(without))


def _needs_answer(session: Session, without: Round) -> bool:
    """Return whether the decision at a round without an answer needs the answer.

    It does if the policy stops at this round, or if the rule, evaluated member by member, reads a signal of the answer.
    """
    if session.policy.reads_every_answer or session.would_stop(without):
        return True
    return any(name not in SIGNALS or SIGNALS[name].component not in ("", GATE) for name in session.reads(without))


class PendingAnswers:
    """The answers of a gated round 0 and of checkpoints, not yet generated because they were not needed.

    One is generated if a later round looks back at it, or if the loop ends without a later answer.
    """

    def __init__(self) -> None:
        self._rest: dict[int, PendingCall] = {}

    def observed(self, session: Session, result: RoundResult) -> Round:
        """Return the round as the session needs it."""
        if result.is_answered:
            return result.observed
        assert result.rest is not None
        self._rest[result.observed.index] = result.rest
        return unmeasured(session, result.observed)

    def due(self, session: Session, observed: Round | None) -> PendingCall | None:
        """Return a call to make before the session observes a round, or before it ends (None)."""
        waiting = [r for r in self._rest if observed is None or r < observed.index]
        if not waiting:
            return None
        if observed is not None:
            read = [SIGNALS[name] for name in session.reads(observed) if name in SIGNALS]
            back = max((signal.lookback for signal in read if signal.component in OF_ANSWERS), default=0)
            looked_at = [r for r in waiting if r >= observed.index - back and self._rest[r].call.part == TRIAL]
            if looked_at:
                return self._rest.pop(looked_at[0])
        known = session.rounds if observed is None else [*session.rounds, observed]
        answered = max((item.index for item in known if item.answer and not item.answer.isspace()), default=-1)
        ends = session.decision is None if observed is None else session.would_stop(observed)
        return self._rest.pop(max(waiting)) if ends and max(waiting) > answered else None

    @staticmethod
    def answered(session: Session, result: RoundResult) -> Session:
        """Return the session with an answer added to one of its rounds; its decisions stay the same."""
        fresh = Session(session.policy, missing="ignore")  # its rounds were already checked
        for observed in session.rounds:
            is_answered = observed.index == result.observed.index
            fresh.observe(unmeasured(session, result.observed) if is_answered else observed)
        return fresh
