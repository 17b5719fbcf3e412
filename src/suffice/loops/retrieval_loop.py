"""The retrieval loop, which ranks passages once and reveals one more in each round until the policy stops (TASR, 3.1)."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

from suffice.errors import DataError, ModelError
from suffice.loops.course import Call, RoundResult, Steps
from suffice.loops.evidence import Evidence
from suffice.loops.live import LiveLoop, check_position, fitted_of
from suffice.loops.models.protocols import Answerer, Gate, Verdict, answered
from suffice.loops.retrieval import AsyncRetriever, Retriever, identity_of, is_async, score_kind_of
from suffice.policy.rounds import Passage, Reply, Round
from suffice.policy.seen import Seen
from suffice.policy.signals import GATE

_GENERATOR = "generator"
_GOES_ON = "goes_on"
"""Finish reason of a gate's pass that the answer can continue; stored with its committed reply."""


@dataclass(frozen=True, kw_only=True)
class RetrievalLoop(LiveLoop):
    """Answers questions with one more passage in each round.

    `run` and `stream` take the question's own passages; without passages, they search the retriever's corpus.

    With a gate, the policy decides at round 0 before there is an answer, and only the gate's decision is charged.  The
    closed-book answer is generated only if the policy stops at round 0 or reads the answer.  If possible, it is generated
    by continuing the gate's forward pass.  If a gate fails, its signals are undefined and evidence is retrieved.  A
    recording contains the gate's decision and the answer of every round 0.  If the gate or the answer failed, a new run
    requests the question again.

    Attributes:
        model: Answers from the revealed passages.
        retriever: Ranks the question's pool or a corpus.
        policy: Decides when to stop and which answer to return.
        gate: Decides at round 0.  Without a gate (None), a round 0 consists of the model's answer.
        enrichers: Components that measure signals by extra calls if the policy reads them.
    """

    independent_rounds: ClassVar[bool] = True
    unread_remedy: ClassVar[str] = (
        f"Choose another --prompt (prompt) or answer-position (position) for replies of another form. {LiveLoop.unread_remedy}"
    )

    model: Answerer
    retriever: Retriever | AsyncRetriever
    gate: Gate | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of model, retriever and gate."""
        own = self.model.capabilities | {"passages", "pool_scores", "costs"}
        return own | (self.gate.capabilities if self.gate else frozenset())

    @property
    def depends(self) -> Mapping[str, Any]:
        """The configuration that fitted state depends on: the model, its prompt, and the gate."""
        fingerprint = self.model.fingerprint()
        pinned = {key: fingerprint[key] for key in ("revision", "content", "prompt_id") if key in fingerprint}
        return {"model": fingerprint.get("model", self.model.name), **pinned, **self._gates()}

    @property
    def fitted(self) -> dict[str, Seen | None]:
        """The questions on which enrichers, retriever and gate were fitted, by component.

        None for a gate that did not record its questions.
        """
        gates = {} if self.gate is None else {GATE: getattr(self.gate, "seen", None)}
        return {**super().fitted, **fitted_of({"retriever": self.retriever}), **gates}

    @property
    def labels(self) -> Mapping[str, str]:
        """The text columns of a recording: model, retriever, and the prompt if there is one."""
        labels = {"model": self.model.name, "retriever": self.retriever.name}
        prompt = self.model.fingerprint().get("prompt_id")
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
        """Return the fingerprints of model, retriever and gate, and the field that identifies passages."""
        fingerprints = {"model": dict(self.model.fingerprint()), "retriever": dict(self.retriever.fingerprint())}
        identity = identity_of(self.retriever)
        if identity != "title":  # older recordings do not contain the default
            fingerprints["retriever"]["identity"] = identity
        return {**fingerprints, **self._gates()}

    def verify(self) -> None:
        """Raise if policy and model have different answer positions, or if the model lacks what the policy needs.

        Raises:
            DataError: There is a gate, but the policy has no round 0.
        """
        if self.gate is not None and self.policy.start_round != 0:
            raise DataError(
                f"the gate decides at round 0, but the policy starts at round {self.policy.start_round!r}: set "
                "start_round=0 (for a recording, --round-zero)"
            )
        check_position(self.policy, self.model)
        self.model.verify(self.policy.needs)

    def course(self, question: str, passages: Sequence[Passage]) -> _RetrievalCourse:
        """Return the rounds that reveal one passage after the other."""
        evidence = Evidence(self.retriever, question, passages, self.policy.max_rounds)
        return _RetrievalCourse(self.model, question, evidence, self.gate)

    def _gates(self) -> dict[str, Any]:
        return {} if self.gate is None else {GATE: dict(self.gate.fingerprint())}


@dataclass(frozen=True, slots=True)
class _RetrievalCourse:
    """The rounds of one question: round r sees the first r passages."""

    model: Answerer
    question: str
    evidence: Evidence
    gate: Gate | None

    async def prepare(self, r: int) -> None:
        if r > 0:
            await self.evidence.rank()

    def has(self, r: int) -> bool:
        return self.evidence.reveal(r) is not None

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        del before  # the passages of a round do not depend on earlier answers
        if r == 0 and self.gate is not None:
            return (yield from _GatedRound(self.model, self.gate, self.question).calls())
        passages = self.evidence.reveal(r) or ()
        reply = yield Call(
            part=_GENERATOR,
            asked=[self.question, *([passage.passage_id, passage.title, passage.text] for passage in passages)],
            send=partial(answered, self.model, self.question, passages),
        )
        return RoundResult(observed=self._round(r, reply))

    def _round(self, r: int, reply: Reply) -> Round:
        ranked = self.evidence.ranked if r > 0 else None
        if ranked is None:
            return Round.of(r, reply)
        costs = {**reply.costs, **ranked.costs} if r == 1 else reply.costs
        return Round.of(r, reply, passages=ranked.passages[:r], pool_scores=ranked.pool_scores, costs=costs)


class _GatedRound:
    """Round 0 of one question with a gate: the gate's decision, then the answer."""

    def __init__(self, model: Answerer, gate: Gate, question: str) -> None:
        self.model, self.gate, self.question = model, gate, question
        self.verdict: Verdict | None = None

    def calls(self) -> Steps:
        """Yield the call of the gate, then the call for the answer."""
        undefined = dict.fromkeys(self.gate.capabilities, math.nan)
        verdict_reply = yield Call(
            part=GATE,
            asked=[self.question],
            send=self._decide,
            instead=Reply(signals=undefined),
        )
        unanswered = RoundResult(observed=Round(index=0, signals=verdict_reply.signals, costs=verdict_reply.costs))
        goes_on = verdict_reply.finish_reason == _GOES_ON
        try:
            reply = yield Call(
                part=_GENERATOR,
                asked=[self.question],
                send=partial(self._answer, goes_on),
                without=unanswered,
            )
        except ModelError as error:
            return replace(unanswered, error=error)
        signals, costs = {**reply.signals, **verdict_reply.signals}, {**reply.costs, **verdict_reply.costs}
        return RoundResult(observed=Round.of(0, reply, signals=signals, costs=costs))

    async def _decide(self, blocking: bool) -> Reply:
        verdict = self.gate.decide(self.question) if blocking else await self.gate.decide_async(self.question)
        self.verdict = verdict
        goes_on = verdict.resume is not None and self.gate.source is self.model
        finish_reason = _GOES_ON if goes_on else None
        return Reply(signals=verdict.signals, costs={GATE: verdict.cost}, finish_reason=finish_reason)

    async def _answer(self, goes_on: bool, blocking: bool) -> Reply:
        if goes_on and self.verdict is None:  # the gate decided before an interruption; its pass is lost, but charged
            await self._decide(blocking)
        resume = self.verdict.resume if goes_on and self.verdict else None
        self.verdict = None  # releases the cache of the pass
        if resume is None:
            return await answered(self.model, self.question, (), blocking)
        reply = resume() if blocking else await asyncio.to_thread(resume)
        # Not a call of its own: the continued pass is charged to the gate.
        return replace(reply, costs={name: replace(cost, calls=0.0) for name, cost in reply.costs.items()})
