"""Adapter for Microsoft Agent Framework: a loop of runs that ends with the best response and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.hosts.runs import METADATA, Measure, OpenRun, QuestionRun, chat_reply, opener
from suffice.hosts.usage import call_cost
from suffice.policy.rounds import Cost
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder


def stop_loop_middleware(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
) -> Any:
    """Return a middleware around the framework's `AgentLoopMiddleware`: each run of the agent is a round.

    `AgentLoopMiddleware(stop.should_continue)` runs the agent until the policy stops it, and returns all drafts or the last
    draft.  The middleware returned here must precede it in the list.  It returns only the best draft, with the decision in
    `additional_properties["suffice"]`, even if the loop ended at its own `max_iterations`.  A run that waits for an approval
    is stored in the session of the framework, and continues there.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a draft, given the question and the draft.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.

    Raises:
        ImportError: Agent Framework is not installed.
    """
    from agent_framework import AgentMiddleware

    class StopMiddleware(_StopMiddleware, AgentMiddleware):
        """`_StopMiddleware` as a middleware of the framework."""

    return StopMiddleware(opener(policy, measure, recorder, price=price))


class _StopMiddleware:
    """A middleware that starts a question, observes its drafts, and returns the best draft."""

    def __init__(self, open_run: OpenRun) -> None:
        self._open_run = open_run
        self._current: ContextVar[tuple[QuestionRun, list[Any]]] = ContextVar("run")

    async def process(self, context: Any, call_next: Any) -> None:
        """Run the loop; then set the best draft as the result, unless the response waits for an approval."""
        from agent_framework import ChatResponse

        if context.stream:
            raise DataError("a stream has shown its drafts before the best one is known: use run(..., stream=False)")
        run, replies = self._begin(context), list[Any]()
        token = self._current.set((run, replies))
        try:
            await call_next()
        finally:
            self._current.reset(token)
        if run.decision is None:
            said = context.result.messages
            if any(item.type == "function_approval_request" for message in said for item in message.contents):
                if context.session is not None:
                    context.session.state[METADATA] = run.to_state()
                return
            # At its own limit the loop does not ask whether to continue, so its last draft was not observed yet.
            last = context.result.raw_representation
            if isinstance(last, ChatResponse) and not any(reply is last for reply in replies):
                _observe_draft(run, last)
        run.end("cancelled")
        context.result = _best_response(run, context)

    def should_continue(self, *, last_result: Any, **_: Any) -> bool:
        """Observe a draft; return whether the agent runs again."""
        run, replies = self._current.get()
        replies.append(last_result.raw_representation)
        return not _observe_draft(run, last_result)

    def _begin(self, context: Any) -> QuestionRun:
        """Start the run of a new question, or resume the run that waited for an approval in this session."""
        state = {} if context.session is None else context.session.state
        answered = any(item.type == "function_approval_response" for said in context.messages for item in said.contents)
        waiting = state.pop(METADATA, None)
        if answered and waiting is not None:
            return self._open_run(state=waiting)
        texts = [message.text for message in context.messages if message.role == "user" and message.text]
        return self._open_run(texts[-1] if texts else "")


def _observe_draft(run: QuestionRun, draft: Any) -> bool:
    """Observe a draft; return whether the policy ends the loop."""
    logprobs = (draft.additional_properties or {}).get("logprobs")
    reply = chat_reply(draft.text, logprobs=logprobs, finish_reason=draft.finish_reason)
    return run.observe(reply, cost=_draft_cost(draft)).stop


def _best_response(run: QuestionRun, context: Any) -> Any:
    """Return the best draft as the response."""
    from agent_framework import AgentResponse, Message

    response = context.result
    options = {**(getattr(context.agent, "default_options", None) or {}), **(context.options or {})}
    drafts = [message for message in response.messages if message.role != "user"]
    return AgentResponse(
        messages=[Message("assistant", [run.text])] if run.text else drafts,
        response_id=response.response_id,
        agent_id=response.agent_id,
        created_at=response.created_at,
        usage_details=response.usage_details,
        response_format=options.get("response_format"),
        additional_properties={**(response.additional_properties or {}), METADATA: run.metadata()},
    )


def _draft_cost(draft: Any) -> Cost:
    """Return the cost of an agent's run: one call of the model for each of its messages."""
    usage: Mapping[str, Any] = draft.usage_details or {}
    given, cached = usage.get("input_token_count"), usage.get("cache_read_input_token_count")
    cost = call_cost(None if given is None else given - (cached or 0), usage.get("output_token_count"), cached)
    return replace(cost, calls=max(1.0, sum(message.role == "assistant" for message in draft.messages)))
