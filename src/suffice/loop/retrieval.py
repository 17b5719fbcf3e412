"""The retrieval loop: rank once, reveal one passage a round, stop when the policy says so (TASR section 3.1)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from suffice.errors import AuthenticationFailedError, ConfigMismatchError, ModelError
from suffice.llm.base import Answerer
from suffice.loop.evidence import Evidence
from suffice.loop.measuring import measure_lazily
from suffice.retrieval import Retriever
from suffice.rounds import Cost, Decision, Passage, Reply, Round, total_cost
from suffice.session import Policy, Session
from suffice.signals import Enricher

__all__ = ["Outcome", "RetrievalLoop", "dependencies", "round_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the loop returned for one question.

    Attributes:
        question: The question.
        decision: The final decision, with the answer and the reason.
        rounds: Every round that ran.
        error: Why the model failed, where it did; the decision still carries the best answer before that.
    """

    question: str
    decision: Decision
    rounds: tuple[Round, ...]
    error: ModelError | None = None

    @property
    def answer(self) -> str | None:
        """The returned answer; None if no round has one."""
        return self.decision.answer

    @property
    def costs(self) -> dict[str, Cost]:
        """What was spent over all rounds, by component."""
        costs: dict[str, Cost] = {}
        for observed in self.rounds:
            for component, cost in observed.costs.items():
                costs[component] = costs.get(component, Cost()) + cost
        return costs

    @property
    def cost(self) -> Cost:
        """Everything that was spent, over rounds and components."""
        return total_cost(self.costs)


def dependencies(model: Answerer) -> dict[str, Any]:
    """Return what fitted state depends on: the model and its prompt, not the address that serves it."""
    described = model.fingerprint()
    named = {key: described[key] for key in ("revision", "prompt_id") if key in described}
    return {"model": described.get("model", model.name), **named}


def round_of(r: int, evidence: Evidence, reply: Reply) -> Round:
    """Return the round that a reply makes; round 1, the first that needs evidence, carries the cost of ranking."""
    ranked = evidence.ranked if r > 0 else None
    return Round(
        index=r,
        answer=reply.answer,
        text=reply.text,
        answer_tokens=reply.answer_tokens,
        passages=ranked.passages[:r] if ranked else (),
        pool_scores=ranked.pool_scores if ranked else (),
        signals=reply.signals,
        costs={**reply.costs, "retrieval": ranked.cost} if ranked and r == 1 else reply.costs,
        finish_reason=reply.finish_reason,
    )


@dataclass(frozen=True, kw_only=True)
class RetrievalLoop:
    """Answers questions round by round under a policy.

    Attributes:
        model: Answers from the revealed passages.
        retriever: Ranks the question's pool or a corpus.
        policy: Decides when to stop and which answer to return.
        enrichers: Measure signals that need calls of their own, where the policy reads them.
    """

    model: Answerer
    retriever: Retriever
    policy: Policy = field(default_factory=Policy)
    enrichers: tuple[Enricher, ...] = ()

    @cached_property
    def _checked(self) -> bool:
        self.check()
        return True

    def ready(self) -> bool:
        """Run `check`, once for this loop; the first question does it by itself."""
        return self._checked

    def check(self) -> None:
        """Refuse, before the first paid question, a policy that cannot decide with this model.

        Runs by itself before the first question.

        Raises:
            NotFittedError: The policy lacks fitted state that its rule reads.
            LogprobsUnavailableError: The rule needs log-probabilities that the model does not give.
            ModelError: The rule needs something else that neither the model nor an enricher gives.
            ConfigMismatchError: The policy was fitted with another model or prompt.
        """
        given = self.model.capabilities.union(*(enricher.capabilities for enricher in self.enrichers))
        self.policy.check(given)
        ours = dependencies(self.model)
        wrong = {k: (v, ours[k]) for k, v in self.policy.depends.items() if k in ours and ours[k] != v}
        if wrong:
            told = "; ".join(f"{key}: fitted with {old!r}, running {new!r}" for key, (old, new) in wrong.items())
            raise ConfigMismatchError(
                f"the policy belongs to another model or prompt ({told}): calibrate on a recording of this one"
            )
        self._check_position()
        self.model.verify(self.policy.needs)

    def _check_position(self) -> None:
        """Refuse a policy whose margins were read somewhere else in the reply than the model reads them."""
        theirs = self.model.fingerprint().get("position")
        position = self.policy.answer_position
        ours = {"kind": "callable"} if position.kind == "callable" else position.to_dict()
        if theirs is not None and dict(theirs) != ours:
            raise ConfigMismatchError(
                f"the policy reads answers at {ours!r}, the model at {dict(theirs)!r}: give both the same "
                "(ChatModel(position=...), Policy(answer_position=...))"
            )

    def stream(self, question: str, pool: Sequence[Passage] = ()) -> Iterator[tuple[Round | None, Outcome | Decision]]:
        """Run one question and yield each round with its decision; the last item is ``(None, outcome)``.

        Args:
            question: The question.
            pool: The question's own passages; none = search the retriever's corpus.
        """
        if self.enrichers:  # they are asynchronous
            yield from _stepped(self, question, pool)
            return
        self.ready()
        evidence, session, error = self._begin(question, pool)
        try:
            while session.decision is None and (passages := evidence.reveal(session.next_round)) is not None:
                observed = round_of(session.next_round, evidence, self.model.answer(question, passages))
                yield observed, session.observe(observed)
        except ModelError as raised:
            error = raised
        except BaseException:
            _end(session, "cancelled")
            raise
        yield None, self._outcome(question, session, error)

    async def stream_async(
        self, question: str, pool: Sequence[Passage] = ()
    ) -> AsyncIterator[tuple[Round | None, Outcome | Decision]]:
        """Like `stream`, without blocking the event loop; a cancelled task cancels the request in flight."""
        await asyncio.to_thread(self.ready)
        evidence, session, error = self._begin(question, pool)
        try:
            while session.decision is None and (passages := evidence.reveal(session.next_round)) is not None:
                reply = await self.model.answer_async(question, passages)
                observed = round_of(session.next_round, evidence, reply)
                if self.enrichers:
                    observed, error = await measure_lazily(self.enrichers, session, question, observed, reply)
                yield observed, session.observe(observed)
                if error is not None:  # the round counts, without the measurement that failed
                    break
        except ModelError as raised:
            error = raised
        except BaseException:
            _end(session, "cancelled")
            raise
        yield None, self._outcome(question, session, error)

    def run(self, question: str, pool: Sequence[Passage] = ()) -> Outcome:
        """Answer one question; a failing model ends it with the best answer so far, never an exception.

        Raises:
            AuthenticationFailedError: The endpoint refused the credentials: nothing was or will be answered.
        """
        *_, (_, outcome) = self.stream(question, pool)
        assert isinstance(outcome, Outcome)
        return outcome

    async def run_async(self, question: str, pool: Sequence[Passage] = ()) -> Outcome:
        """Like `run`, without blocking the event loop."""
        items = [item async for item in self.stream_async(question, pool)]
        outcome = items[-1][1]
        assert isinstance(outcome, Outcome)
        return outcome

    def _begin(self, question: str, pool: Sequence[Passage]) -> tuple[Evidence, Session, ModelError | None]:
        return Evidence(self.retriever, question, pool, self.policy.max_rounds), Session(self.policy), None

    def _outcome(self, question: str, session: Session, error: ModelError | None) -> Outcome:
        if isinstance(error, AuthenticationFailedError) and not session.rounds:
            raise error
        _end(session, "failed" if error is not None else "exhausted")
        assert session.decision is not None
        return Outcome(question=question, decision=session.decision, rounds=tuple(session.rounds), error=error)


def _end(session: Session, reason: Any) -> None:
    if session.decision is None:
        session.end(reason)


def _stepped(
    loop: RetrievalLoop, question: str, pool: Sequence[Passage]
) -> Iterator[tuple[Round | None, Outcome | Decision]]:
    """Run the asynchronous stream step by step, so that each round appears as it ends."""
    stream = loop.stream_async(question, pool)

    async def step() -> tuple[Round | None, Outcome | Decision] | None:
        return await anext(stream, None)

    with asyncio.Runner() as runner:
        while (item := runner.run(step())) is not None:
            yield item
