"""The drafting loop: a writer drafts, a critic replies, the writer revises (Semantic Early-Stopping, section 3)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from suffice.errors import ModelError
from suffice.loops.course import Call, ContextCourse, RoundResult, Steps, check_first_round
from suffice.loops.live import LiveLoop
from suffice.loops.models._wire import Completion, is_cut
from suffice.loops.models.chat import ChatModel
from suffice.loops.models.prompts import DRAFTING, DraftingPrompt, Message
from suffice.policy.rounds import Passage, Reply, Round
from suffice.policy.signals import CRITIC
from suffice.policy.signals.text import strip_thinking


@dataclass(frozen=True, kw_only=True)
class DraftingLoop(LiveLoop):
    """Answers questions by drafts and critiques.

    Round t is draft t and the critic's reply to it.  A live run calls the critic only if the policy needs the reply to
    decide at round t, or the next draft needs it.  The last round therefore has a critique only if the rule read
    `critic_approved` or the cost of that round.  A recording contains the critique of every round, because any
    policy may read it, and replay charges what a live run would pay.  The first draft is written from the question and
    the contexts, and each further draft also from the newest draft and its critique.  Prompts thus do not grow with the
    rounds, and never mention how many rounds are left.

    The critic's reply is the feedback of the round; the policy's rule decides whether this feedback approves the draft.
    An empty draft does not count as an answer.  The critic is then not called, and the next round revises the previous
    draft; if there is no previous draft, it writes a new one.  Thinking blocks are removed from drafts and critiques.  If
    the critic fails, the round counts without feedback.

    `run` and `stream` take the contexts of the question, which every call sees in the given order.  Without contexts the
    writer answers from its own knowledge, and signals that need contexts are undefined.

    Attributes:
        writer: Writes drafts; its own prompt, answer position, `max_tokens` and `top_logprobs` are not used.
        critic: Criticises drafts; None = the writer's model.
        prompt: The tasks of writer and critic.
        max_tokens: Longest draft or critique in tokens; None = the endpoint's limit.  A draft that was cut has the
            finish reason `length`, and counts as an empty draft.
        policy: Decides when to stop and which draft to return; its `max_rounds` is the largest number of drafts (T_max).
        enrichers: Components that measure signals by extra calls if the policy reads them.
    """

    independent_rounds: ClassVar[bool] = False

    writer: ChatModel
    critic: ChatModel | None = None
    prompt: DraftingPrompt = DRAFTING
    max_tokens: int | None = 512

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities of the loop: contexts and the critic's feedback, but no log-probabilities."""
        return frozenset({"passages", "feedback", "costs"})

    @property
    def depends(self) -> Mapping[str, Any]:
        """The configuration that fitted state depends on: writer, critic and prompt."""
        return {"model": self.writer.model, "critic": self._critic.model, "prompt_id": self.prompt.prompt_id}

    @property
    def labels(self) -> Mapping[str, str]:
        """The text columns of a recording: writer, critic and prompt."""
        return {"model": self.writer.name, "critic": self._critic.name, "prompt_id": self.prompt.prompt_id}

    def configuration(self) -> Mapping[str, Any]:
        """Return the settings that affect drafts and critiques."""
        return {
            "writer": self.writer.pin(),
            "critic": self._critic.pin(),
            "prompt_id": self.prompt.prompt_id,
            "prompt_sha256": self.prompt.sha256,
            "max_tokens": self.max_tokens,
        }

    def verify(self) -> None:
        """Raise if the policy starts with round 0.

        Raises:
            DataError: The policy's `start_round` is not 1.
        """
        check_first_round(self.policy, "drafts")

    def course(self, question: str, passages: Sequence[Passage]) -> _DraftingCourse:
        """Return the rounds that draft, criticise and revise.

        Raises:
            DataError: A context is not a `Passage`.
        """
        return _DraftingCourse(self, question, passages)

    @property
    def _critic(self) -> ChatModel:
        return self.critic or self.writer


class _DraftingCourse(ContextCourse):
    """The rounds of one question, each of which revises the newest draft."""

    def __init__(self, loop: DraftingLoop, question: str, passages: Sequence[Passage]) -> None:
        super().__init__(question, passages, loop.policy.max_rounds)
        self.loop = loop

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        prompt = self.loop.prompt
        last = next((earlier for earlier in reversed(before) if earlier.answer is not None), None)
        if last is None or last.answer is None:
            messages = prompt.writing(self.question, self.passages)
        else:
            messages = prompt.revising(self.question, self.passages, last.answer, last.feedback or "")
        draft = yield self._call("writer", self.loop.writer, messages)
        if draft.answer is None:
            return RoundResult(observed=self._round(r, draft, None))
        without_critique = RoundResult(observed=self._round(r, draft, None))
        messages = prompt.criticising(self.question, self.passages, draft.answer)
        try:
            critique = yield self._call(
                CRITIC, self.loop.critic or self.loop.writer, messages, without=without_critique
            )
        except ModelError as error:
            return replace(without_critique, error=error)
        return RoundResult(observed=self._round(r, draft, critique))

    def _call(
        self, part: str, model: ChatModel, messages: Sequence[Message], *, without: RoundResult | None = None
    ) -> Call:
        settings: dict[str, Any] = {"max_tokens": self.loop.max_tokens, "top_logprobs": None}

        async def send(blocking: bool) -> Reply:
            if blocking:
                return _reply_of(part, model.complete(messages, **settings))
            return _reply_of(part, await model.complete_async(messages, **settings))

        return Call(part=part, asked=messages, send=send, without=without)

    def _round(self, r: int, draft: Reply, critique: Reply | None) -> Round:
        if critique is None:
            return Round.of(r, draft, passages=self.passages)
        costs, feedback = {**draft.costs, **critique.costs}, critique.answer or ""
        return Round.of(r, draft, passages=self.passages, costs=costs, feedback=feedback)


def _reply_of(part: str, completion: Completion) -> Reply:
    """Convert a completion to the reply of a component; an empty completion or a cut draft has no answer."""
    text = "" if part != CRITIC and is_cut(completion.finish_reason) else completion.text
    return Reply(
        answer=strip_thinking(text)[1].strip() or None,
        text=completion.text,
        costs={part: completion.cost},
        **completion.origin,
    )
