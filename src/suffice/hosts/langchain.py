"""Adapter for LangChain: a middleware that ends an agent with its best reply and the reason."""

from typing import TYPE_CHECKING, Annotated, Any, NotRequired

from suffice.hosts._messages import (
    cost_of,
    end_before_limit,
    final_messages,
    newest_reply,
    question_of,
    reply_of_message,
)
from suffice.hosts.runs import Measure, opener
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder

_FIRST_AGENT_CYCLE = 6
"""Assumed steps of one more round, with tools and other middleware, until a round has shown the real number."""


def stop_middleware(
    policy: PolicySource,
    *,
    measure: Measure | None = None,
    recorder: "Recorder | None" = None,
    price: "Price | None" = None,
    revise: str | None = None,
) -> Any:
    """Return a middleware for `create_agent`: each reply of the model is a round, and the policy ends the agent.

    The last message is then the best reply, with the decision in `response_metadata["suffice"]`; tool calls that were
    not executed get an answer that says so.  The same happens if the agent ends by itself, and before the graph's
    `recursion_limit` is reached.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        revise: The request to send if the agent would end but the policy continues; None lets the agent end.

    Raises:
        ImportError: LangChain 1.0 or newer is not installed.
    """
    from langchain.agents.middleware import AgentMiddleware, AgentState, hook_config
    from langchain.agents.middleware.types import PrivateStateAttr
    from langchain_core.messages import HumanMessage
    from langgraph.managed.is_last_step import RemainingStepsManager

    open_run = opener(policy, measure, recorder, price=price)

    class StopState(AgentState):
        suffice: NotRequired[Annotated[dict[str, Any], PrivateStateAttr]]  # type: ignore[valid-type]
        remaining_steps: NotRequired[Annotated[int, PrivateStateAttr, RemainingStepsManager]]  # type: ignore[valid-type]

    class StopMiddleware(AgentMiddleware):
        """A middleware that observes the reply after each call of the model; it keeps the run as JSON in the agent's state."""

        state_schema = StopState

        def before_agent(self, state: Any, runtime: Any) -> dict[str, Any]:
            """Begin a new question."""
            return {"suffice": open_run(question_of(state["messages"])).to_state()}

        @hook_config(can_jump_to=["model", "end"])
        def after_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            """Observe the reply, and end the agent if the policy says so."""
            run, newest = open_run(state=state["suffice"]), newest_reply(state["messages"])
            if run.decision is not None:
                return None
            run.observe(reply_of_message(newest), cost=cost_of(newest))
            left, before = state["remaining_steps"], state["suffice"].get("step")
            step = end_before_limit(run, left, before, first_cycle=_FIRST_AGENT_CYCLE, after=2)
            if run.decision is not None:
                return {"jump_to": "end", "suffice": run.to_state(), "messages": final_messages(run, state["messages"])}
            update = {"suffice": {**run.to_state(), "step": step, "message": newest.id}}
            if revise is not None and not newest.tool_calls:
                return {**update, "jump_to": "model", "messages": [HumanMessage(revise)]}
            return update

        def after_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
            """End the run if the agent ended without the policy."""
            run, newest = open_run(state=state["suffice"]), newest_reply(state["messages"])
            if run.decision is not None:
                return None
            run.end("exhausted" if newest.id == state["suffice"].get("message") else "cancelled")
            return {"suffice": run.to_state(), "messages": final_messages(run, state["messages"])}

    return StopMiddleware()
