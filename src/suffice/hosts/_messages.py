"""Read messages of LangChain, which LangGraph's agents share, as replies of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffice.errors import DataError
from suffice.hosts.runs import METADATA, QuestionRun, chat_reply
from suffice.hosts.usage import usage_cost
from suffice.policy.rounds import Cost


def question_of(messages: Sequence[Any]) -> str:
    """Return the text of the user's newest message; empty without a user's message."""
    return next((str(message.text) for message in reversed(messages) if message.type == "human"), "")


def cost_of(message: Any) -> Cost | None:
    """Return the cost of the call behind a message; None if the model did not report it."""
    usage = getattr(message, "usage_metadata", None)
    return None if usage is None else usage_cost(usage)


def reply_of_message(message: Any) -> dict[str, Any]:
    """Convert a message to a reply: its text, log-probabilities if the model gave any, and finish reason."""
    metadata = message.response_metadata
    reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    return chat_reply(str(message.text), logprobs=metadata.get("logprobs"), finish_reason=reason)


def end_before_limit(run: QuestionRun, remaining: int, before: int | None, *, first_cycle: int, after: int = 0) -> int:
    """End a run if the recursion limit leaves no steps for one more round; return the number of the current step.

    The first round is assumed to take `first_cycle` steps, and a later round as many steps as the round before it.  The
    graph needs `after` more steps to end.
    """
    from langgraph.config import get_config

    step: int = get_config()["metadata"]["langgraph_step"]
    if run.decision is None and remaining <= (first_cycle if before is None else step - before) + after:
        run.at_limit()
    return step


def newest_reply(messages: Sequence[Any]) -> Any:
    """Return the model's newest message, even if answers to its tool calls follow; raise if the model sent no message."""
    reply = next((message for message in reversed(messages) if message.type == "ai"), None)
    if reply is None:
        raise DataError("there is no reply of a model among the messages yet: decide after the model was called")
    return reply


def closed_calls(messages: Sequence[Any], reason: str, **metadata: Any) -> list[Any]:
    """Return an answer to each open tool call of the newest reply, with the reason why the tool was not run."""
    from langchain_core.messages import ToolMessage

    answered = {message.tool_call_id for message in messages if message.type == "tool"}
    calls = [call for call in newest_reply(messages).tool_calls if call["id"] not in answered]
    said = f"not run: the loop ended ({reason})"
    return [ToolMessage(said, tool_call_id=call["id"], name=call["name"], response_metadata=metadata) for call in calls]


def final_messages(run: QuestionRun, messages: Sequence[Any]) -> list[Any]:
    """Return the messages that end a run: an answer to each open tool call, then the best reply with the decision.

    If the newest reply is the best one, or no reply has an answer, the decision is added to the newest reply itself.
    """
    from langchain_core.messages import AIMessage

    metadata, newest = {METADATA: run.metadata()}, newest_reply(messages)
    closed = closed_calls(messages, run.metadata()["reason"], **metadata)
    if not run.text or (newest is messages[-1] and not closed and run.is_last and str(newest.text) == run.text):
        return [newest.model_copy(update={"response_metadata": {**newest.response_metadata, **metadata}}), *closed]
    return [*closed, AIMessage(run.text, response_metadata=metadata)]
