"""The retrieval loop: rank once, reveal one passage a round, stop when the policy says so (TASR section 3.1)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from suffice.errors import ConfigMismatchError
from suffice.llm.base import Answerer
from suffice.loop.course import Call, Made, Steps
from suffice.loop.evidence import Evidence
from suffice.loop.live import LiveLoop
from suffice.retrieval import Retriever
from suffice.rounds import Passage, Reply, Round

__all__ = ["RetrievalLoop"]


@dataclass(frozen=True, kw_only=True)
class RetrievalLoop(LiveLoop):
    """Answers questions from one more passage in each round.

    `run` and `stream` take the question's own passages; none = search the retriever's corpus.

    Attributes:
        model: Answers from the revealed passages.
        retriever: Ranks the question's pool or a corpus.
        policy: Decides when to stop and which answer to return.
        enrichers: Measure signals that need calls of their own, where the policy reads them.
    """

    independent_rounds: ClassVar[bool] = True

    model: Answerer
    retriever: Retriever

    @property
    def capabilities(self) -> frozenset[str]:
        """What the model gives."""
        return self.model.capabilities

    @property
    def depends(self) -> Mapping[str, Any]:
        """The model and its prompt."""
        described = self.model.fingerprint()
        named = {key: described[key] for key in ("revision", "prompt_id") if key in described}
        return {"model": described.get("model", self.model.name), **named}

    @property
    def labels(self) -> Mapping[str, str]:
        """Model, retriever, and the prompt where there is one."""
        labels = {"model": self.model.name, "retriever": self.retriever.name}
        prompt = self.model.fingerprint().get("prompt_id")
        return labels if prompt is None else {**labels, "prompt_id": str(prompt)}

    def configuration(self) -> Mapping[str, Any]:
        """Return the fingerprints of model and retriever."""
        return {"model": dict(self.model.fingerprint()), "retriever": dict(self.retriever.fingerprint())}

    def verify(self) -> None:
        """Compare the answer position of policy and model, and ask the model for what the policy needs."""
        theirs = self.model.fingerprint().get("position")
        position = self.policy.answer_position
        ours = {"kind": "callable"} if position.kind == "callable" else position.to_dict()
        # Margins that were read somewhere else in the reply than the model reads them mean something else.
        if theirs is not None and dict(theirs) != ours:
            raise ConfigMismatchError(
                f"the policy reads answers at {ours!r}, the model at {dict(theirs)!r}: give both the same "
                "(ChatModel(position=...), Policy(answer_position=...))"
            )
        self.model.verify(self.policy.needs)

    def course(self, question: str, passages: Sequence[Passage]) -> _Revealing:
        """Return the rounds that reveal one passage after the other."""
        evidence = Evidence(self.retriever, question, passages, self.policy.max_rounds)
        return _Revealing(self.model, question, evidence)


@dataclass(frozen=True, slots=True)
class _Revealing:
    """The rounds of one question: round r sees the first r passages."""

    model: Answerer
    question: str
    evidence: Evidence

    def has(self, r: int) -> bool:
        return self.evidence.reveal(r) is not None

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        del before  # the same passages, whatever was answered before
        passages = self.evidence.reveal(r) or ()
        reply = yield Call(
            part="generator",
            asked=[self.question, *([passage.passage_id, passage.title, passage.text] for passage in passages)],
            send=lambda: self.model.answer(self.question, passages),
            send_async=lambda: self.model.answer_async(self.question, passages),
        )
        return Made(observed=self._round(r, reply), reply=reply)

    def _round(self, r: int, reply: Reply) -> Round:
        """Return the round that a reply makes; round 1, the first that needs evidence, carries the cost of ranking."""
        ranked = self.evidence.ranked if r > 0 else None
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
