"""The loop of methods that retrieve evidence: a round queries, retrieves, continues a chain of thought and answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

from suffice.common.provided import provided
from suffice.errors import DataError, ModelError
from suffice.loops.course import Call, RoundResult, Steps
from suffice.loops.evidence import distinct_passages
from suffice.loops.live import LiveLoop, check_position, fitted_of
from suffice.loops.models._wire import Completion, is_cut
from suffice.loops.models.prompts import Message
from suffice.loops.models.protocols import Answerer, answered, has_attentions
from suffice.loops.retrieval import AsyncRetriever, Retriever, identity_of, is_async, score_kind_of
from suffice.loops.retrieval.ranking import costed_ranking
from suffice.loops.retrieval.retriever import required_pool
from suffice.loops.retrieval_loop import RetrievalLoop
from suffice.policy.rounds import Cost, Passage, Reply, Round, Token, added_costs
from suffice.policy.rules import Never
from suffice.policy.seen import Seen
from suffice.policy.signals import CHAIN, LOGPROB_NEEDS, RETRIEVAL
from suffice.policy.signals.text import tokens_of_span
from suffice_retrieval.methods.chains import (
    CHAIN_METHODS,
    Action,
    Ask,
    ChainMethod,
    ChainState,
    Lookup,
    Reread,
    Step,
    answer_of_chain,
    interleaved,
)

_GENERATOR, _READER = "generator", "reader"
_ALL_NEEDS = frozenset({"passages", "costs", CHAIN})


@runtime_checkable
class Completer(Protocol):
    """Protocol of a model that continues chat messages, for loops that generate more than an answer."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    def complete(self, messages: Sequence[Message]) -> Completion:
        """Return the unparsed reply to messages.

        Raises:
            ModelError: The model failed; `retryable` is true if trying again may help.
        """
        ...

    async def complete_async(self, messages: Sequence[Message]) -> Completion:
        """Like `complete`, without blocking the event loop; cancelling the task cancels the request."""
        ...


@dataclass(frozen=True, kw_only=True)
class QueryLoop(LiveLoop):
    """Answers questions by a method that decides when to retrieve, and with which query.

    The methods are Self-Ask, IRCoT, FLARE and DRAGIN.

    Round r >= 1 is one step of the method: its query, the passages for it, and the text written from them. The text of
    a round is the chain so far. Every round has an answer, so that any policy may stop the loop, even before the method
    would end. Once the chain states an answer, this is the answer of the round. Before that, a reader answers, which
    costs a call. When the method ends its chain, there are no further rounds, and the signal `chain_ended` is 1. If the
    policy has a round 0, the reader answers in it without passages.

    `run` and `stream` take the question's own passages; without passages, the retriever's corpus is searched.

    Costs: `generator` (chain and answers), `query` (calls that only write a query, or read a reply again), `retrieval`.

    Attributes:
        method: Decides when to retrieve, and with which query.
        model: Writes the chain.
        retriever: Ranks the question's pool or a corpus for each query.
        reader: The model that answers while the chain has no answer; None for `model`.
        every_round: True to answer in every round; False to answer only in the last round, as in the papers, which
            costs less and lets only the method decide when to stop.
        policy: Decides when to stop and which answer to return.
        enrichers: Components that measure signals by extra calls if the policy reads them.
    """

    independent_rounds: ClassVar[bool] = False
    unread_remedy: ClassVar[str] = RetrievalLoop.unread_remedy

    method: ChainMethod
    model: Completer
    retriever: Retriever | AsyncRetriever
    reader: Answerer | None = None
    every_round: bool = True

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the reader, and the signals of the method."""
        return self._reader.capabilities | _ALL_NEEDS

    @property
    def depends(self) -> Mapping[str, Any]:
        """The configuration that fitted state depends on: the method, the model and the prompts."""
        fingerprint = self._fingerprint(self.model)
        pinned = {key: fingerprint[key] for key in ("revision",) if key in fingerprint}
        prompt = self._reader.fingerprint().get("prompt_id")
        named = {} if prompt is None else {"prompt_id": prompt}
        return {"model": fingerprint.get("model", self.model.name), **pinned, **named, "method": str(self.method)}

    @property
    def fitted(self) -> dict[str, Seen | None]:
        """The questions on which enrichers and retriever were fitted."""
        return {**super().fitted, **fitted_of({"retriever": self.retriever})}

    @property
    def labels(self) -> Mapping[str, str]:
        """The text columns of a recording: model, retriever, method, and the reader's prompt if there is one."""
        labels = {"model": self.model.name, "retriever": self.retriever.name, "method": str(self.method)}
        prompt = self._reader.fingerprint().get("prompt_id")
        return labels if prompt is None else {**labels, "prompt_id": str(prompt)}

    @property
    def is_async(self) -> bool:
        """True if an enricher or the retriever can only be awaited."""
        return bool(self.enrichers) or is_async(self.retriever)

    @property
    def provenance(self) -> Mapping[str, Any]:
        """Metadata for a recording: the kind of the retriever's scores."""
        return {"score_kind": score_kind_of(self.retriever)}

    def configuration(self) -> Mapping[str, Any]:
        """Return the fingerprints of models and retriever, the method with its prompt, and the passages' identity."""
        reader = {} if self.reader is None else {"reader": dict(self.reader.fingerprint())}
        return {
            "model": self._fingerprint(self.model),
            **reader,
            "retriever": {**self.retriever.fingerprint(), "identity": identity_of(self.retriever)},
            "method": {"name": self.method.name, **self.method.settings(), **self.method.prompt.pinned},
            "every_round": self.every_round,
        }

    def verify(self) -> None:
        """Check that models, method and policy fit together.

        Raises:
            DataError: Only the last round is answered, but the policy has a rule that may stop earlier.
            ModelError: The model cannot continue a chain, or does not return attentions that the method needs; or the
                policy reads a signal that only another method measures.
            LogprobsUnavailableError: The method or the policy needs log-probabilities that the model does not provide.
        """
        if not self.every_round and not isinstance(self.policy.rule, Never):
            raise DataError(
                f"every_round=False answers only where the method ends, but the policy {self.policy.label!r} may stop "
                "before: leave the rule out, or set every_round=True"
            )
        measured = frozenset().union(*(kind.measures for kind in CHAIN_METHODS.values()))
        unknown = sorted((measured - self.method.measures).intersection(self.policy.raw_signals))
        if unknown:
            raise ModelError(f"the policy reads {unknown[0]!r}, which {self.method.name} does not measure")
        if not isinstance(self.model, Completer):
            raise ModelError(
                f"{self.method.name} writes a chain, and {getattr(self.model, 'name', self.model)!r} only answers from "
                "passages: use an endpoint or a local model"
            )
        if "attentions" in self.method.needs and not has_attentions(self.model):
            raise ModelError(
                f"{self.method.name} reads attentions, which {self.model.name!r} does not give: run the model here "
                "(--local, TransformersModel), or use a method that needs none"
            )
        if isinstance(self.model, Answerer):
            self.model.verify(self.method.needs & LOGPROB_NEEDS)
        check_position(self.policy, self._reader)
        self._reader.verify(self.policy.needs)

    def course(self, question: str, passages: Sequence[Passage]) -> _QueryCourse:
        """Return the rounds of the method."""
        pool = () if getattr(self.retriever, "has_corpus", False) else tuple(passages)
        return _QueryCourse(self, question, pool, self.policy.max_rounds)

    @property
    def _reader(self) -> Answerer:
        reader = self.reader or self.model
        if not isinstance(reader, Answerer):
            raise ModelError(f"{self.model.name!r} does not answer from passages: give a reader that does (reader=...)")
        return reader

    @staticmethod
    def _fingerprint(model: object) -> dict[str, Any]:
        return dict(model.fingerprint()) if isinstance(model, Answerer) else {"model": getattr(model, "name", "")}


@dataclass(slots=True)
class _QueryCourse:
    """The rounds of one question, each of which continues the chain of the previous round."""

    loop: QueryLoop
    question: str
    pool: tuple[Passage, ...]
    last: int
    """The last round; lowered by the step that ends the chain."""

    async def prepare(self, r: int) -> None:
        del r  # queries depend on earlier rounds

    def has(self, r: int) -> bool:
        retriever = self.loop.retriever
        if r > 0 and not self.pool and not getattr(retriever, "has_corpus", False):
            required_pool(retriever.name, None)
        return r <= self.last

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        chain = [earlier for earlier in before if earlier.index > 0]
        state = ChainState(
            question=self.question,
            chain=chain[-1].text if chain else "",
            passages=chain[-1].passages if chain else (),
        )
        round_calls = _RoundCalls(self.loop, self.question, self.pool)
        if r == 0:
            return (yield from round_calls.answered(Round(index=0), state))
        try:
            step = yield from round_calls.step(state)
        except ModelError as error:
            if not round_calls.costs:
                raise
            paid = Round(index=r, text=state.chain, passages=state.passages, costs=round_calls.costs)
            return RoundResult(observed=paid, error=error)
        if step.ended:
            self.last = r
        undefined = dict.fromkeys(self.loop.method.measures, float("nan"))
        signals = {**undefined, **step.signals, "chain_ended": float(step.ended), "queries": float(step.queries)}
        observed = Round(
            index=r,
            text=step.chain,
            passages=step.passages,
            signals=signals,
            costs=round_calls.costs,
            finish_reason=round_calls.written.finish_reason,
        )
        answer = answer_of_chain(step.chain) if step.ended and self.loop.method.reads_chain else None
        if answer is not None and not round_calls.is_cut_in(answer):
            tokens = round_calls.tokens_of(answer)
            return RoundResult(observed=replace(observed, answer=answer, answer_tokens=tokens))
        if not self.loop.every_round and r < self.last:
            return RoundResult(observed=observed)
        read = replace(state, chain=step.chain, passages=step.passages)
        return (yield from round_calls.answered(observed, read))


@dataclass(slots=True)
class _RoundCalls:
    """The calls of one round, and their cost so far."""

    loop: QueryLoop
    question: str
    pool: tuple[Passage, ...]
    costs: dict[str, Cost] = field(default_factory=dict)
    written: Reply = field(default_factory=Reply)
    """The last text of the model."""

    parts: dict[str, int] = field(default_factory=dict)

    def step(self, state: ChainState) -> Any:
        """Make the calls of a step of the method and return the step."""
        steps = self.loop.method.step(state)
        received: Any = None
        while True:
            try:
                action = steps.send(received)
            except StopIteration as ended:
                step: Step = ended.value
                return step
            reply = yield self._call(action)
            self._add(reply)
            if isinstance(action, Lookup):
                received = _passages_in(reply)
            elif isinstance(action, Ask):
                self.written = reply
                received = replace(reply, tokens=reply.answer_tokens)
            else:
                received = reply

    def is_cut_in(self, answer: str) -> bool:
        """Return whether the text was cut off within the chain's answer, so that the answer may be incomplete."""
        return is_cut(self.written.finish_reason) and self.written.text.rstrip().endswith(answer)

    def tokens_of(self, answer: str) -> tuple[Token, ...] | None:
        """Return the tokens of the chain's own answer; None if the model returns no tokens."""
        text, tokens = self.written.text, self.written.answer_tokens
        start = text.rfind(answer)
        return tokens_of_span(text, tokens, start, start + len(answer)) if tokens and start >= 0 else None

    def answered(self, observed: Round, state: ChainState) -> Steps:
        """Ask the reader, and return the round with its answer."""
        reader, method = self.loop._reader, self.loop.method  # noqa: SLF001 - a part of that class
        passages = state.passages
        if state.chain and method.reads_chain:
            passages = (*passages, Passage(passage_id="chain", title="Reasoning so far", text=state.chain))
        call = Call(
            part=_READER,
            asked=[self.question, *([passage.passage_id, passage.title, passage.text] for passage in passages)],
            send=partial(answered, reader, self.question, passages),
        )
        try:
            reply = yield call
        except ModelError as error:
            if not self.costs:
                raise
            return RoundResult(observed=observed, error=error)
        self._add(reply)
        complete = Round.of(
            observed.index,
            reply,
            text=observed.text or reply.text,
            passages=observed.passages,
            signals={**reply.signals, **observed.signals},
            costs=self.costs,
            finish_reason=observed.finish_reason if is_cut(observed.finish_reason) else reply.finish_reason,
        )
        return RoundResult(observed=complete)

    def _add(self, reply: Reply) -> None:
        self.costs = added_costs(self.costs, reply.costs)

    def _call(self, action: Action) -> Call:
        """Return the call for an action; calls of one kind are numbered, since a journal needs unique names."""
        kind = action.part if isinstance(action, Ask) else RETRIEVAL if isinstance(action, Lookup) else "reading"
        self.parts[kind] = self.parts.get(kind, 0) + 1
        part = kind if self.parts[kind] == 1 else f"{kind}:{self.parts[kind]}"
        if isinstance(action, Ask):
            return Call(part=part, asked=action.messages, send=partial(self._complete, action))
        if isinstance(action, Lookup):
            queries = tuple(query.strip() or self.question for query in action.queries)
            return Call(part=part, asked=queries, send=partial(self._search, queries))
        return Call(part=part, asked=[*action.messages, action.reply.text], send=partial(self._reread, action))

    async def _complete(self, action: Ask, blocking: bool) -> Reply:
        model = self.loop.model
        completion = model.complete(action.messages) if blocking else await model.complete_async(action.messages)
        return _unparsed(action.part, completion)

    async def _reread(self, action: Reread, blocking: bool) -> Reply:
        words, model = (action.messages, action.reply, action.texts), self.loop.model
        # `verify` has checked that the model runs on this machine.
        ask = partial(provided("gates.dragin_query"), model, *words, theta=action.theta, n=action.n)
        return ask() if blocking else await asyncio.to_thread(ask)

    async def _search(self, queries: Sequence[str], blocking: bool) -> Reply:
        """Return the passages for all queries as JSON, so that a journal can store them."""
        retriever, k = self.loop.retriever, self.loop.method.k
        rankings = [
            await costed_ranking(retriever, query, pool=self.pool or None, k=k, in_thread=not blocking)
            for query in queries
        ]
        passages = distinct_passages(
            interleaved([ranking.passages for ranking in rankings]), identity_of(retriever) == "title"
        )
        costs = added_costs({RETRIEVAL: Cost()}, *(ranking.costs for ranking in rankings))
        text = json.dumps([[item.passage_id, item.title, item.text, item.score] for item in passages])
        return Reply(text=text, costs=costs, from_cache=all(ranking.from_cache for ranking in rankings))


def _unparsed(part: str, completion: Completion) -> Reply:
    """Convert a completion to a component's reply; its tokens become answer tokens, since a journal stores answer tokens."""
    return Reply(
        text=completion.text,
        answer_tokens=completion.tokens,
        costs={part: completion.cost},
        finish_reason=completion.finish_reason,
        from_cache=completion.from_cache,
    )


def _passages_in(reply: Reply) -> tuple[Passage, ...]:
    return tuple(
        Passage(passage_id=name, title=title, text=text, score=score)
        for name, title, text, score in json.loads(reply.text)
    )
