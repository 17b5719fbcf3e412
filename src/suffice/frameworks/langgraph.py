"""LangGraph: a node that decides after each reply, and ends with the best one and the reason."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suffice.frameworks._messages import cost_of, final_messages, newest_reply, question_of, reply_of_message
from suffice.frameworks.runs import Measure, opener
from suffice.rules import Rule
from suffice.session import Policy

if TYPE_CHECKING:
    from suffice.loop import Recorder

__all__ = ["stop_node"]

_STATE = "suffice"
_FIRST_CYCLE = 2
"""Steps of the graph that one more round takes, while no round has shown how many: the model's node and this one."""


def stop_node(
    policy: Policy | Rule | str | Path,
    *,
    again: str,
    done: str = "__end__",
    reply: str = "messages",
    measure: Measure | None = None,
    recorder: Recorder | None = None,
) -> Callable[[Mapping[str, Any]], Any]:
    """Return a node of a graph: it observes the newest reply and goes to `again`, or with the best reply to `done`.

    The state of the graph needs a key `suffice` (a dict): the run as JSON, so that every checkpointer can hold it, with
    the decision in `state["suffice"]["decision"]`.  A reply after the end begins the next question.  If the state also
    has `remaining_steps` (LangGraph's `RemainingSteps`), the run ends before the recursion limit raises.

    Args:
        policy: What decides, see `suffice.Session`.
        again: The node of the next round.
        done: The node after the end; by default the graph ends.
        reply: The key of the replies in the state: a list of messages, of which the newest is read and to which the best
            one is added, or one text, which becomes the best one.
        measure: Measures signals of a reply, given the question and the reply.
        recorder: Records the rounds of each question, see `QuestionRun`.

    Raises:
        ImportError: LangGraph is not installed.
    """
    from langgraph.types import Command

    open_run = opener(policy, measure, recorder)

    def stop(state: Mapping[str, Any]) -> Any:
        """Decide after the newest reply."""
        stored, value = state.get(_STATE) or {}, state[reply]
        is_text = isinstance(value, str)
        newest = None if is_text else newest_reply(value)
        if stored and not stored["decision"]:
            run = open_run(state=stored)
        else:
            run = open_run(state.get("question", "") if is_text else question_of(value))
            stored = {}
        run.observe(value if newest is None else reply_of_message(newest), cost=cost_of(newest))
        steps = state.get("remaining_steps")
        if run.decision is None and steps is not None:
            cycle = stored["steps"] - steps if "steps" in stored else _FIRST_CYCLE
            if steps <= cycle:
                run.end("cancelled")
        if run.decision is None:
            return Command(update={_STATE: {**run.to_state(), "decision": None, "steps": steps}}, goto=again)
        update = {_STATE: {**run.to_state(), "decision": run.metadata()}}
        return Command(update={**update, reply: run.text if is_text else final_messages(run, value)}, goto=done)

    return stop
