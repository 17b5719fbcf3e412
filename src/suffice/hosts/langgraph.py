"""Adapter for LangGraph: a node that decides after each reply, and ends the graph with the best reply and the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from suffice.errors import DataError
from suffice.hosts._messages import (
    closed_calls,
    cost_of,
    end_before_limit,
    final_messages,
    newest_reply,
    question_of,
    reply_of_message,
)
from suffice.hosts.runs import Measure, continued, opener
from suffice.policy.session.sources import PolicySource

if TYPE_CHECKING:
    from suffice.evaluation.replay.price_lists import PriceFile
    from suffice.evaluation.replay.prices import Price
    from suffice.loops import Recorder

_STATE = "suffice"
_FIRST_CYCLE = 2
"""Assumed steps of one more round (the model's node and this one) until a round has shown the real number."""


def stop_node(
    policy: PolicySource,
    *,
    again: str,
    done: str = "__end__",
    reply: str = "messages",
    measure: Measure | None = None,
    recorder: Recorder | None = None,
    price: Price | PriceFile | None = None,
    final_call: Callable[[list[Any]], Any] | None = None,
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a node of a graph that observes the newest reply, and then goes to `again` or, with the best reply, to `done`.

    The node adds the key `suffice` to the graph's state.  Its value is the run as JSON, which every checkpointer can store,
    with the decision in `state["suffice"]["decision"]`.  Declare the key in your state if you want it in the graph's result.
    A reply after the end begins the next question.  The run ends before the recursion limit raises an error.

    Args:
        policy: Decides when to stop, see `suffice.Session`.
        again: The node of the next round.
        done: The node after the end; by default the graph ends.
        reply: The key of the replies in the state.  Its value may be a list of messages: the newest message is read, and at the
            end the best one is added.  Or it may be a single text, which is replaced by the best text at the end.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.
        price: The price of the model's tokens, for rules on `spend` (dollars so far), see `QuestionRun`.
        final_call: A function that gets the messages and returns a reply without calling tools, such as ``model.invoke``.
            It is called once if the graph would end without an answer, see `QuestionRun`.

    Raises:
        ImportError: LangGraph is not installed.
    """
    from langchain_core.messages import HumanMessage
    from langgraph.managed import RemainingSteps
    from langgraph.types import Command

    open_run = opener(policy, measure, recorder, price=price, final_call=final_call is not None)

    def stop(state: Mapping[str, Any]) -> Any:
        """Decide after the newest reply."""
        if reply not in state:
            raise DataError(f"the state has no {reply!r}: stop_node(..., reply=...) is the key of the replies")
        stored, value = state.get(_STATE) or {}, state[reply]
        is_text = isinstance(value, str)
        newest = None if is_text else newest_reply(value)
        run = continued(open_run, stored, state.get("question") or "" if is_text else question_of(value))
        run.observe(value if newest is None else reply_of_message(newest), cost=cost_of(newest))
        step = None
        if run.decision is None and "remaining_steps" in state:
            step = end_before_limit(run, state["remaining_steps"], stored.get("step"), first_cycle=_FIRST_CYCLE)
        said: list[Any] = []
        if run.final_call_due and final_call is not None:
            asked = [HumanMessage(run.question)] if is_text else [*value, *closed_calls(value, "no budget")]
            asked.append(HumanMessage(run.final_request))
            with run.last_call() as observe:
                last = final_call(asked)
                observe(reply_of_message(last), cost=cost_of(last))
                said = [] if is_text else [*asked[len(value) :], *([] if run.is_last else [last])]
        if run.decision is None:
            return Command(update={_STATE: {**run.to_state(), "decision": None, "step": step}}, goto=again)
        update = {_STATE: {**run.to_state(), "decision": run.metadata()}}
        return Command(
            update={**update, reply: run.text if is_text else [*said, *final_messages(run, [*value, *said])]}, goto=done
        )

    # These annotations make LangGraph add the node's keys to the state, pass the state as a dict, and check the node's targets.
    keys = {_STATE: dict, reply: Any, "question": Any, "remaining_steps": RemainingSteps}
    stop.__annotations__["state"] = TypedDict("StopInput", keys, total=False)  # type: ignore[operator]
    stop.__annotations__["return"] = Command[Literal[again, done]]
    return stop
