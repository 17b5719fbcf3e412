"""The common part of live loops: run a round, measure signals that the policy reads, decide, and return."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Any, ClassVar

from suffice.common.blocking import finished, run_blocking
from suffice.common.results import Displayed
from suffice.common.tables import Column, Table
from suffice.errors import AuthenticationFailedError, ConfigMismatchError, ModelError
from suffice.loops.course import Call, Course, PendingCall, RoundResult, drive, send
from suffice.loops.measuring import measure_lazily, needs_critique, unmeasured, with_trial
from suffice.loops.models._wire import is_cut
from suffice.loops.models.protocols import Answerer
from suffice.loops.waves import SURPLUS, Surplus, Wave
from suffice.policy.rounds import Cost, Decision, Passage, Reply, Round, added_costs, total_cost
from suffice.policy.seen import Seen
from suffice.policy.session import Policy, Session
from suffice.policy.signals import CRITIC, EMBEDDER, GATE, OF_ANSWERS, SIGNALS, TRIAL, Enricher


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome(Displayed):
    """The result of a loop for one question.

    Attributes:
        question: The question.
        decision: The final decision, with answer and reason.
        rounds: All rounds that ran.
        error: The failure of the model, if any; the decision still contains the best answer before the failure.
        surplus: Samples that were requested in a wave but not needed for the decision, see `SamplingLoop`.
    """

    question: str
    decision: Decision
    rounds: tuple[Round, ...]
    error: ModelError | None = None
    surplus: Surplus = field(default_factory=Surplus)

    @property
    def answer(self) -> str | None:
        """The returned answer; None if no round has one."""
        return self.decision.answer

    def tables(self) -> list[Table]:
        """Return tables of the decision and of every round that ran."""
        columns = (Column("round", ".0f"), Column("answer"), Column("calls", ".3g"), Column("tokens", ",.0f"))
        costs = [total_cost(item.costs) for item in self.rounds]
        rows = tuple((r.index, r.answer, cost.calls, cost.tokens) for r, cost in zip(self.rounds, costs, strict=True))
        cut = [item for item in self.rounds if item.answer is None and is_cut(item.finish_reason)]
        notes = (*self.surplus.notes, *(f"round {r.index} was cut ({r.finish_reason}): no answer" for r in cut))
        return [*self.decision.tables(), Table(title="Rounds", columns=columns, rows=rows, notes=notes)]

    @property
    def costs(self) -> dict[str, Cost]:
        """Total cost by component; calls that were not needed are the component `surplus`."""
        costs = added_costs(*(observed.costs for observed in self.rounds))
        return costs | ({SURPLUS: self.surplus.cost} if self.surplus.samples else {})

    @property
    def cost(self) -> Cost:
        """Total cost over rounds and components."""
        return total_cost(self.costs)


LiveStep = tuple[Round | None, Outcome | Decision]
"""A round with its decision; at the end ``(None, outcome)``."""


@dataclass(frozen=True, kw_only=True)
class LiveLoop(ABC):
    """Answers questions round by round under a policy; subclasses define a round.

    Attributes:
        policy: Decides when to stop and which answer to return.
        enrichers: Components that measure signals by extra calls if the policy reads them.
    """

    independent_rounds: ClassVar[bool]
    """True if a round does not depend on earlier rounds."""

    unread_remedy: ClassVar[str] = (
        "Raise max-tokens (--set max-tokens=512, max_tokens) if replies are cut off or still thinking, or switch thinking off: --set extra-body="
        '\'{"chat_template_kwargs": {"enable_thinking": false}}\' (extra_body). `suffice doctor` shows replies.'
    )
    """Advice if no answer can be read from the replies."""

    policy: Policy = field(default_factory=Policy)
    enrichers: tuple[Enricher, ...] = ()

    @property
    @abstractmethod
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the models, as named in `Signal.needs`."""

    @property
    @abstractmethod
    def depends(self) -> Mapping[str, Any]:
        """Models and prompt on which fitted state depends, without addresses of endpoints."""

    @property
    @abstractmethod
    def labels(self) -> Mapping[str, str]:
        """Text columns that are equal on every row of a recording."""

    @abstractmethod
    def configuration(self) -> Mapping[str, Any]:
        """Return all settings that affect a recording, without the policy, the enrichers and secrets."""

    @abstractmethod
    def verify(self) -> None:
        """Raise before the first paid question if the models do not fit the policy.

        Raises:
            LogprobsUnavailableError: The rule needs log-probabilities that the model does not provide.
            ConfigMismatchError: Policy and model contradict each other.
        """

    @abstractmethod
    def course(self, question: str, passages: Sequence[Passage]) -> Course:
        """Return one question's rounds."""

    @property
    def pinned(self) -> dict[str, Any]:
        """The settings that must not change for a policy fitted on this loop's recordings: `depends` and any embedder."""
        embedders = {e.name: dict(e.fingerprint()) for e in self.enrichers if e.name == EMBEDDER}
        return {**self.depends, **embedders}

    @property
    def fitted(self) -> dict[str, Seen | None]:
        """The questions on which each component was fitted, by component; None if its questions were not recorded.

        Components that were not fitted on questions (a judge, a public cross-encoder) do not appear.
        """
        return fitted_of({enricher.name: enricher for enricher in self.enrichers})

    @property
    def is_async(self) -> bool:
        """True if a component can only be awaited."""
        return bool(self.enrichers)

    @property
    def at_once(self) -> int:
        """Number of rounds requested together, before the policy decides on the first of them."""
        return 1

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata on the rounds for a recording, in addition to the configuration."""
        return {}

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for a recording on limitations of these models."""
        return ()

    def cells(self, r: int) -> Mapping[str, str]:
        """Return the text columns of round `r` in a recording; by default `labels`."""
        del r
        return self.labels

    def billed(self, r: int, costs: Mapping[str, Cost]) -> Mapping[str, Cost]:
        """Return the costs of round `r` by the names in price lists; by default, these are the names of the components."""
        del r
        return costs

    async def left_over(self, course: Course) -> Surplus:
        """Cancel work that was started for a round beyond the last one; return the cost of that work, by default none."""
        del course
        return Surplus()

    @property
    def _gives(self) -> frozenset[str]:
        return self.capabilities.union(*(enricher.capabilities for enricher in self.enrichers))

    @cached_property
    def _checked(self) -> bool:
        self.check()
        return True

    def ready(self) -> bool:
        """Run `check`, unless it has already run for this loop, and return True; the first question does so automatically."""
        return self._checked

    def check(self) -> None:
        """Raise before the first paid question if the policy cannot decide with these models.

        It runs automatically before the first question.

        Raises:
            NotFittedError: The policy lacks fitted state that its rule reads.
            LogprobsUnavailableError: The rule needs log-probabilities that the model does not provide.
            ModelError: The rule needs another capability that neither the model nor an enricher provides.
            ConfigMismatchError: The policy was fitted with another model, prompt or embedder.
        """
        self.policy.check(self._gives)
        self.policy.check_depends(self.pinned)
        self.verify()

    def stream(self, question: str, passages: Sequence[Passage] = ()) -> Iterator[LiveStep]:
        """Run one question and yield each round with its decision; the last item is ``(None, outcome)``.

        Args:
            question: The question.
            passages: The question's own passages.
        """
        if self.is_async:
            with asyncio.Runner() as runner:
                yield from _stepped(self.stream_async(question, passages), runner.run)
        else:
            yield from _stepped(self._rounds(question, passages, blocking=True), finished)

    def stream_async(self, question: str, passages: Sequence[Passage] = ()) -> AsyncGenerator[LiveStep]:
        """Like `stream`, without blocking the event loop; a cancelled task cancels the request in flight."""
        return self._rounds(question, passages, blocking=False)

    async def _rounds(self, question: str, passages: Sequence[Passage], *, blocking: bool) -> AsyncGenerator[LiveStep]:
        """Yield each round and the outcome; if `blocking`, never suspend."""
        if blocking:
            self.ready()
        else:
            await asyncio.to_thread(self.ready)
        course, session, error = self._begin(question, passages)
        unanswered = PendingAnswers()
        is_needed = lambda call: needed(session, call, measured=not self.enrichers)  # noqa: E731 - uses the current session
        begin = lambda call: _sent_beside(session, call, blocking=blocking)  # noqa: E731 - uses the current session
        wave = Wave(
            self.at_once,
            self.policy.max_rounds,
            lambda r: drive(course.calls(r, session.rounds), begin, needed=is_needed),
        )
        surplus = Surplus()
        try:
            while session.decision is None and await _has(course, session.next_round, blocking=blocking):
                result = await wave.result(session.next_round)
                observed, error = await self._measure(session, question, result, unanswered, begin)
                failed: ModelError | None = None  # of an earlier answer's call; this round still counts, as it is paid
                while failed is None and (rest := unanswered.due(session, observed)) is not None:
                    session, failed = await unanswered.answer(session, rest, blocking=blocking)
                    error = error or failed
                    if error is None and rest.call.part == TRIAL:  # the trial may decide what else is measured
                        asked = TRIAL in observed.costs
                        result = replace(result, observed=observed, rest=None if asked else result.rest)
                        observed, error = await self._measure(session, question, result, unanswered, begin)
                yield observed, session.observe(observed)
                if error is not None:  # the round counts without the failed call or measurement
                    break
        except ModelError as raised:
            error = raised
        except BaseException:
            _end_session(session, "cancelled")
            raise
        finally:
            surplus = await wave.end() + await self.left_over(course)
        failed = None
        while failed is None and (rest := unanswered.due(session, None)) is not None:
            session, failed = await unanswered.answer(session, rest, blocking=blocking)
            error = error or failed
        yield None, self._outcome(question, session, error, surplus)

    async def _measure(
        self,
        session: Session,
        question: str,
        result: RoundResult,
        unanswered: PendingAnswers,
        ask: Callable[[Call], Awaitable[Reply]],
    ) -> tuple[Round, ModelError | None]:
        """Return a round with the signals that the policy reads, and the error of a failed call, if any."""
        observed = unanswered.observed(session, result)
        if result.error is not None:
            return unmeasured(session, observed), result.error
        if not self.enrichers or not result.is_answered_or_trial:
            return observed, None
        observed, error = await measure_lazily(self.enrichers, session, question, result, ask)
        if TRIAL in observed.costs:
            unanswered.drop(observed.index)
        return observed, error

    def run(self, question: str, passages: Sequence[Passage] = ()) -> Outcome:
        """Answer one question; if a model fails, return the best answer so far instead of raising.

        Raises:
            AuthenticationFailedError: The endpoint refused the credentials, so no question can be answered.
        """
        if self.is_async:
            return run_blocking(self.run_async(question, passages))
        *_, (_, outcome) = self.stream(question, passages)
        assert isinstance(outcome, Outcome)
        return outcome

    async def run_async(self, question: str, passages: Sequence[Passage] = ()) -> Outcome:
        """Like `run`, without blocking the event loop."""
        items = [item async for item in self.stream_async(question, passages)]
        outcome = items[-1][1]
        assert isinstance(outcome, Outcome)
        return outcome

    def _begin(self, question: str, passages: Sequence[Passage]) -> tuple[Course, Session, ModelError | None]:
        return self.course(question, passages), Session(self.policy, capabilities=self._gives), None

    def _outcome(self, question: str, session: Session, error: ModelError | None, surplus: Surplus) -> Outcome:
        if isinstance(error, AuthenticationFailedError) and not any(observed.answer for observed in session.rounds):
            raise error
        _end_session(session, "failed" if error is not None else "exhausted")
        assert session.decision is not None
        return Outcome(
            question=question, decision=session.decision, rounds=tuple(session.rounds), error=error, surplus=surplus
        )


def check_position(policy: Policy, model: Answerer) -> None:
    """Raise if policy and model read the answer at different positions, since margins are then not comparable."""
    theirs, position = model.fingerprint().get("position"), policy.answer_position
    ours = {"kind": "callable"} if position.kind == "callable" else position.to_dict()
    if theirs is not None and dict(theirs) != ours:
        raise ConfigMismatchError(
            f"the policy reads answers at {ours!r}, but the model at {dict(theirs)!r}: give both the same "
            "(ChatModel(position=...), Policy(answer_position=...))"
        )


def fitted_of(parts: Mapping[str, object]) -> dict[str, Seen | None]:
    """Return the attribute `seen` of each component, by name; leave out components where it is missing or empty."""
    records: dict[str, Seen | None] = {name: getattr(part, "seen", Seen()) for name, part in parts.items()}
    return {name: record for name, record in records.items() if record is None or record}


def _end_session(session: Session, reason: Any) -> None:
    if session.decision is None:
        session.end(reason)


async def _has(course: Course, r: int, *, blocking: bool) -> bool:
    if not blocking:
        await course.prepare(r)
    return course.has(r)


def _stepped(stream: AsyncGenerator[LiveStep], run: Callable[[Coroutine[Any, Any, Any]], Any]) -> Iterator[LiveStep]:
    """Iterate over an asynchronous stream from synchronous code, so that each round is available when it ends."""

    async def step() -> LiveStep | None:
        return await anext(stream, None)

    try:
        while (item := run(step())) is not None:
            yield item
    finally:
        run(stream.aclose())


async def _sent_beside(session: Session, call: Call, *, blocking: bool) -> Reply:
    """Make a call, and start its work for the next round meanwhile, unless the loop stops whatever the reply is."""
    if call.beside is not None and call.without is not None and not session.would_stop(call.without.observed):
        call.beside()
    return await send(call, blocking=blocking)


def needed(session: Session, call: Call, *, measured: bool) -> bool:
    """Return whether a live loop needs to make a call; critic and trial wait until all else is `measured`."""
    assert call.without is not None
    without = call.without.observed
    if call.part == CRITIC:
        return measured and needs_critique(session, without)
    if call.part == TRIAL:
        return measured and _needs_trial(session, without)
    return _needs_answer(session, without)


def _needs_trial(session: Session, without: Round) -> bool:
    """Return whether the decision at a checkpoint needs its trial answer.

    The answer is needed if the policy stops there, if the policy compares answers, or if the rule, evaluated member by
    member, reads a signal of the answer.
    """
    if session.policy.compares_answers or session.would_stop(without):
        return True
    return any(name in SIGNALS and SIGNALS[name].component in OF_ANSWERS for name in session.reads(without))


def _needs_answer(session: Session, without: Round) -> bool:
    """Return whether the decision at a round without an answer needs the answer.

    It does if the policy stops at this round or reads every answer, or if the rule, evaluated member by member, reads a
    signal of the answer.
    """
    if session.policy.reads_every_answer or session.would_stop(without):
        return True
    return any(name not in SIGNALS or SIGNALS[name].component not in ("", GATE) for name in session.reads(without))


class PendingAnswers:
    """The answers that were not generated because no decision needed them so far.

    They belong to a round 0 with a gate, or to checkpoints.  Such an answer is generated if a later round reads it, or if
    the loop ends without a later answer.
    """

    def __init__(self) -> None:
        self._rest: dict[int, PendingCall] = {}

    def observed(self, session: Session, result: RoundResult) -> Round:
        """Return the round that the session observes; if the round lacks its answer, store the pending call."""
        if result.is_answered:
            return result.observed
        assert result.rest is not None
        self._rest[result.observed.index] = result.rest
        return unmeasured(session, result.observed)

    def due(self, session: Session, observed: Round | None) -> PendingCall | None:
        """Return the pending call, if one is due before the session observes `observed` (or ends, if `observed` is None)."""
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

    def drop(self, index: int) -> None:
        """Forget the pending call of a round that has received its answer."""
        self._rest.pop(index, None)

    @staticmethod
    async def answer(session: Session, rest: PendingCall, *, blocking: bool) -> tuple[Session, ModelError | None]:
        """Make a pending call; return the session with the answer added to the call's round, and the error of a failed call."""
        try:
            result = await drive(rest.steps, partial(send, blocking=blocking), first=rest.call)
        except ModelError as failed:
            return session, failed
        if result.error is not None and rest.call.part == TRIAL:
            return session, result.error
        fresh = Session(session.policy, missing="ignore")  # its rounds were already checked
        for observed in session.rounds:
            is_answered = observed.index == result.observed.index
            fresh.observe(unmeasured(session, with_trial(observed, result.observed)) if is_answered else observed)
        return fresh, result.error
