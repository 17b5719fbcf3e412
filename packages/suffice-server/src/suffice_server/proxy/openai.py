"""OpenAI's interfaces for chat completions and responses."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suffice.importers.calls.objects import fields_of, objects_in
from suffice.importers.transcripts.codex import use_of
from suffice.importers.transcripts.steps import ToolUse
from suffice_server.proxy.protocol import SYSTEM, Protocol

_RESULTS = frozenset(
    {"function_call_output", "custom_tool_call_output", "local_shell_call_output", "computer_call_output"}
)
_CALLS = frozenset({"function_call", "custom_tool_call", "local_shell_call", "computer_call"})
_ENDS = frozenset({"response.completed", "response.incomplete"})


class Chat(Protocol):
    """The interface `/v1/chat/completions`."""

    name = "openai-chat"
    path = "/chat/completions"
    ending = re.compile(rb"^data: ?\[DONE\]", re.MULTILINE)

    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of users, tools and the assistant, without system messages."""
        return [message for message in objects_in(body.get("messages")) if message.get("role") not in SYSTEM]

    def repeated(self, spoken: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Build a completion that contains the first of the given messages."""
        return {"choices": [{"message": spoken[0]}]}

    def call_ids(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of the first choice's tool calls."""
        message = fields_of(next(iter(objects_in(body.get("choices"))), {}).get("message"))
        return tuple(str(call.get("id")) for call in objects_in(message.get("tool_calls")))

    def results(self, body: Mapping[str, Any]) -> dict[str, bool | None]:
        """Return the ids of answered tool calls, each with None, since the messages do not say whether a tool failed."""
        tools = [message for message in self.messages(body) if message.get("role") == "tool"]
        return {str(message.get("tool_call_id")): None for message in tools}

    def assembled(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Join the pieces of a stream's first choice; return None if the finish reason is missing."""
        body: dict[str, Any] = {}
        texts: dict[str, list[str]] = {}
        calls: dict[Any, dict[str, Any]] = {}
        logprobs: list[Any] = []
        reason, others = None, set[Any]()
        for event in events:
            body |= {
                name: event[name] for name in ("id", "model", "usage", "system_fingerprint", "error") if event.get(name)
            }
            for choice in objects_in(event.get("choices")):
                others.add(choice.get("index", 0))
                if choice.get("index", 0):
                    continue
                delta = fields_of(choice.get("delta"))
                for name in ("content", "refusal", "reasoning_content", "reasoning"):
                    if isinstance(delta.get(name), str):
                        texts.setdefault(name, []).append(delta[name])
                for call in objects_in(delta.get("tool_calls")):
                    _grow(calls.setdefault(call.get("index", len(calls)), {"id": "", "name": "", "parts": []}), call)
                logprobs += objects_in(fields_of(choice.get("logprobs")).get("content"))
                reason = choice.get("finish_reason") or reason
        if reason is None:
            return None
        message: dict[str, Any] = {"role": "assistant", "content": None, **{k: "".join(v) for k, v in texts.items()}}
        if calls:
            message["tool_calls"] = [
                {"id": c["id"], "type": "function", "function": {"name": c["name"], "arguments": "".join(c["parts"])}}
                for c in calls.values()
            ]
        first = {"index": 0, "message": message, "finish_reason": reason, "logprobs": {"content": logprobs}}
        return {"object": "chat.completion", **body, "choices": [first, *([first] * (len(others) - 1))]}

    def final(self, text: str, model: str) -> dict[str, Any]:
        """Build a completion with the finish reason `stop`."""
        message = {"role": "assistant", "content": text, "refusal": None}
        return {
            **self._about(model, "chat.completion"),
            "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
        }

    def final_events(self, text: str, model: str, *, usage: bool) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
        """Yield the events of a stream: text, finish reason, token counts if requested, and `[DONE]`."""
        about = self._about(model, "chat.completion.chunk")
        for delta, reason in (({"role": "assistant", "content": text}, None), ({}, "stop")):
            choice = {"index": 0, "delta": delta, "finish_reason": reason, "logprobs": None}
            yield "", {**about, "choices": [choice], **({"usage": None} if usage else {})}
        if usage:
            yield "", {**about, "choices": [], "usage": self.final("", "")["usage"]}
        yield "", "[DONE]"

    def _about(self, model: str, kind: str) -> dict[str, Any]:
        return {
            "id": f"chatcmpl-suffice-{secrets.token_hex(8)}",
            "object": kind,
            "created": int(time.time()),
            "model": model,
        }


class Responses(Protocol):
    """The interface `/v1/responses`."""

    name = "openai-responses"
    path = "/responses"
    ending = re.compile(rb'"response\.(?:completed|incomplete)"')

    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the input items without system messages and without reasoning, which only the endpoint can read."""
        given = body.get("input")
        items = [{"role": "user", "content": given}] if isinstance(given, str) else objects_in(given)
        return [item for item in items if item.get("role") not in SYSTEM and item.get("type") != "reasoning"]

    def repeated(self, spoken: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Build a response with the given items; plain texts become lists of one part."""
        items = [{"type": "message", **item} for item in spoken]
        for item in items:
            if isinstance(item.get("content"), str):
                item["content"] = [{"type": "output_text", "text": item["content"]}]
        return {"output": items}

    def call_ids(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of the tool calls that the client must answer."""
        calls = [item for item in objects_in(body.get("output")) if item.get("type") in _CALLS]
        return tuple(str(item.get("call_id") or item.get("id")) for item in calls)

    def uses(self, body: Mapping[str, Any]) -> tuple[ToolUse, ...]:
        """Return the tool calls among the output items."""
        return tuple(
            use_of(item["type"], item) for item in objects_in(body.get("output")) if item.get("type") in _CALLS
        )

    def results(self, body: Mapping[str, Any]) -> dict[str, bool | None]:
        """Return the ids of answered tool calls, each with None, since the items do not say whether a tool failed."""
        results = [item for item in self.messages(body) if item.get("type") in _RESULTS]
        return {str(item.get("call_id")): None for item in results}

    def key(self, body: Mapping[str, Any]) -> str:
        """Return the id in the field `conversation`; "" without one."""
        given = body.get("conversation")
        return str((given.get("id") if isinstance(given, dict) else given) or "")

    def before(self, body: Mapping[str, Any]) -> str:
        """Return the field `previous_response_id`; "" without one."""
        return str(body.get("previous_response_id") or "")

    def assembled(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the complete response in the last event; None without such an event."""
        ends = [fields_of(event.get("response")) for event in events if event.get("type") in _ENDS]
        return dict(ends[-1]) if ends else None

    def final(self, text: str, model: str) -> dict[str, Any]:
        """Return a completed response with one message."""
        details = {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
        return {
            "id": f"resp_suffice_{secrets.token_hex(8)}",
            "object": "response",
            "created_at": int(time.time()),
            "model": model,
            "status": "completed",
            "error": None,
            "incomplete_details": None,
            "tools": [],
            "instructions": None,
            "metadata": {},
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "temperature": None,
            "top_p": None,
            "output": [_message(text)],
            "usage": {"input_tokens": 0, "output_tokens": 0, "total_tokens": 0, **details},
        }

    def final_events(
        self,
        text: str,
        model: str,
        *,
        usage: bool,  # noqa: ARG002 - it is always part of these events
    ) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
        """Yield the events of a response with one message."""
        whole = self.final(text, model)
        item = whole["output"][0]
        begun = {**whole, "status": "in_progress", "output": [], "usage": None}
        part, place = item["content"][0], {"item_id": item["id"], "output_index": 0, "content_index": 0}
        events: list[tuple[str, dict[str, Any]]] = [
            ("response.created", {"response": begun}),
            ("response.in_progress", {"response": begun}),
            (
                "response.output_item.added",
                {"output_index": 0, "item": {**item, "status": "in_progress", "content": []}},
            ),
            ("response.content_part.added", {**place, "part": {**part, "text": ""}}),
            ("response.output_text.delta", {**place, "delta": text, "logprobs": []}),
            ("response.output_text.done", {**place, "text": text, "logprobs": []}),
            ("response.content_part.done", {**place, "part": part}),
            ("response.output_item.done", {"output_index": 0, "item": item}),
            ("response.completed", {"response": whole}),
        ]
        for number, (name, data) in enumerate(events):
            yield name, {"type": name, "sequence_number": number, **data}


def _message(text: str) -> dict[str, Any]:
    part = {"type": "output_text", "text": text, "annotations": []}
    about = {"id": f"msg_suffice_{secrets.token_hex(8)}", "type": "message", "role": "assistant", "status": "completed"}
    return {**about, "content": [part]}


def _grow(call: dict[str, Any], delta: Mapping[str, Any]) -> None:
    """Add a streamed piece to a tool call."""
    function = fields_of(delta.get("function"))
    call["id"] = str(delta.get("id") or call["id"])
    call["name"] += str(function.get("name") or "")
    call["parts"].append(str(function.get("arguments") or ""))
