"""Adapter for LangChain: a middleware that ends an agent with its best reply and the reason."""

from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from suffice.errors import ModelError
from suffice.hosts._messages import (
    closed_calls,
    cost_of,
    end_before_limit,
    final_messages,
    newest_reply,
    question_of,
    reply_of_message,
)
from suffice.hosts.runs import Measure, OpenRun, opener
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder

_FAILED = "suffice_failed"
_FIRST_AGENT_CYCLE = 6
"""Assumed steps of one more round, with tools and other middleware, until a round has shown the real number."""


def stop_middleware(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: "Recorder | None" = None,
    price: "Price | PriceFile | None" = None,
    final_call: bool | str = False,
    revise: str | None = None,
) -> Any:
    """Return a middleware for `create_agent`: each reply of the model is a round, and the policy ends the agent.

    The last message is then the best reply, with the decision in `response_metadata["suffice"]`; tool calls that were
    not executed get an answer that says so.  The run also ends in this way if the agent ends by itself, and just before
    the graph's `recursion_limit` is reached.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: Whether the model is called once more, without tools, if the agent would end without an answer, see
            `QuestionRun`.
        revise: The request to send if the agent would end but the policy continues; None lets the agent end.

    Raises:
        ImportError: LangChain 1.0 or newer is not installed.
    """
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain.agents.middleware.types import PrivateStateAttr
    from langgraph.managed.is_last_step import RemainingStepsManager

    class StopState(AgentState):
        suffice: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]  # type: ignore[valid-type]
        remaining_steps: NotRequired[Annotated[int, PrivateStateAttr, RemainingStepsManager]]  # type: ignore[valid-type]

    class StopMiddleware(_StopMiddleware, AgentMiddleware):
        """`_StopMiddleware` as a middleware of the framework."""

        state_schema = StopState
        after_model = hook_config(can_jump_to=["model", "end"])(_StopMiddleware.after_model)

    return StopMiddleware(
        opener(policy, measure, recorder, price=price, final_call=final_call), revise, bool(final_call)
    )


class _StopMiddleware:
    """A middleware that observes the reply after each call of the model; it keeps the run as JSON in the agent's state."""

    def __init__(self, open_run: OpenRun, revise: str | None, final_call: bool) -> None:
        self._open_run, self._revise, self._has_final_call = open_run, revise, final_call
        self._after = 2 + (_FIRST_AGENT_CYCLE if final_call else 0)

    def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
        """Begin a new question."""
        return {"suffice": self._open_run(question_of(state["messages"])).to_state()}

    def wrap_model_call(self, request: Any, handler: Any) -> Any:
        """Call the model.

        A last call is made without tools; if this last call fails, return an empty response.
        """
        if not self._is_last_call(request):
            return handler(request)
        try:
            return handler(request.override(tools=[], tool_choice=None))
        except Exception as error:  # noqa: BLE001 - the run ends with what it has
            return _failed(error)

    async def awrap_model_call(self, request: Any, handler: Any) -> Any:
        """Like `wrap_model_call`, but asynchronous."""
        if not self._is_last_call(request):
            return await handler(request)
        try:
            return await handler(request.override(tools=[], tool_choice=None))
        except Exception as error:  # noqa: BLE001 - the run ends with what it has
            return _failed(error)

    def _is_last_call(self, request: Any) -> bool:
        return self._has_final_call and self._open_run(state=request.state["suffice"]).final_call_due

    def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Observe the reply, and end the agent if the policy says so."""
        from langchain_core.messages import HumanMessage

        messages = state["messages"]
        run, newest, step = self._open_run(state=state["suffice"]), newest_reply(messages), None
        if run.decision is not None:
            return None
        if run.final_call_due:
            with run.last_call() as observe:
                if (error := newest.response_metadata.get(_FAILED)) is not None:
                    raise ModelError(error)
                observe(reply_of_message(newest), cost=cost_of(newest))
        else:
            run.observe(reply_of_message(newest), cost=cost_of(newest))
            left, before = state["remaining_steps"], state["suffice"].get("step")
            step = end_before_limit(run, left, before, first_cycle=_FIRST_AGENT_CYCLE, after=self._after)
        if run.decision is not None:
            return {"jump_to": "end", "suffice": run.to_state(), "messages": final_messages(run, messages)}
        update = {"suffice": {**run.to_state(), "step": step, "message": newest.id}}
        if run.final_call_due:
            asked = [*closed_calls(messages, "no budget"), HumanMessage(run.final_request)]
            return {**update, "jump_to": "model", "messages": asked}
        if self._revise is not None and not newest.tool_calls:
            return {**update, "jump_to": "model", "messages": [HumanMessage(self._revise)]}
        return update

    def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """End the run if the agent ended without the policy."""
        run, newest = self._open_run(state=state["suffice"]), newest_reply(state["messages"])
        if run.decision is not None:
            return None
        run.end("exhausted" if newest.id == state["suffice"].get("message") else "cancelled")
        return {"suffice": run.to_state(), "messages": final_messages(run, state["messages"])}


def _failed(error: Exception) -> Any:
    """Return an empty response with the error of the last call in its metadata."""
    from langchain.agents.middleware.types import ModelResponse
    from langchain_core.messages import AIMessage

    said = f"{type(error).__name__}: {error}"
    return ModelResponse(result=[AIMessage("", response_metadata={_FAILED: said})])
