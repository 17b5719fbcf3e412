"""Microsoft Agent Framework: a loop of runs that ends with the best response and the reason."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.errors import DataError
from suffice.frameworks.runs import METADATA, Measure, QuestionRun, call_cost, opener
from suffice.rounds import Cost
from suffice.rules import Rule
from suffice.session import Policy

if TYPE_CHECKING:
    from suffice.loop import Recorder

__all__ = ["stop_loop_middleware"]


def stop_loop_middleware(
    policy: Policy | Rule | str | Path, *, measure: Measure | None = None, recorder: Recorder | None = None
) -> Any:
    """Return a middleware around the framework's `AgentLoopMiddleware`: each run of the agent is a round.

    `AgentLoopMiddleware(stop.should_continue)` runs the agent again until the policy says stop, and returns all drafts, or
    the last one.  This middleware, before it in the list, returns the best one alone, with the decision in
    `additional_properties["suffice"]`, also if the loop's own `max_iterations` ended it.

    Args:
        policy: What decides, see `suffice.Session`.
        measure: Measures signals of a draft, given the question and the draft.
        recorder: Records the rounds of each question when it ends.

    Raises:
        ImportError: Agent Framework is not installed.
    """
    from agent_framework import AgentMiddleware, AgentResponse, Message

    open_run = opener(policy, measure, recorder)
    current: ContextVar[QuestionRun] = ContextVar("run")

    def best(run: QuestionRun, response: Any) -> Any:
        """Return the best draft as the response; a response that waits for an approval remains what it is."""
        waits = any(item.type == "function_approval_request" for said in response.messages for item in said.contents)
        if waits and run.decision is None:
            return response
        run.end("cancelled")
        return AgentResponse(
            messages=[Message("assistant", [run.text])] if run.text else response.messages,
            response_id=response.response_id,
            agent_id=response.agent_id,
            usage_details=response.usage_details,
            additional_properties={**(response.additional_properties or {}), METADATA: run.metadata()},
        )

    class StopMiddleware(AgentMiddleware):
        """Begins a question, observes its drafts, and renders its end."""

        async def process(self, context: Any, call_next: Any) -> None:
            """Run the loop, and set the best draft as the result."""
            run = open_run(" ".join(message.text for message in context.messages if message.role == "user"))
            if context.stream:
                raise DataError(
                    "a stream has shown its drafts before the best one is known: use run(..., stream=False)"
                )
            token = current.set(run)
            try:
                await call_next()
            finally:
                current.reset(token)
            context.result = best(run, context.result)

        def should_continue(self, *, last_result: Any, **_: Any) -> bool:
            """Observe a draft; return whether the agent runs again."""
            return not current.get().observe(last_result.text, cost=_usage_cost(last_result.usage_details)).stop

    return StopMiddleware()


def _usage_cost(usage: Mapping[str, Any] | None) -> Cost | None:
    """Return what a run cost; None if the client did not say."""
    if usage is None:
        return None
    given, cached = usage.get("input_token_count"), usage.get("cache_read_input_token_count")
    return call_cost(None if given is None else given - (cached or 0), usage.get("output_token_count"), cached)
