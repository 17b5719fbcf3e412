"""The base class of model interfaces, which read requests, replies and streams, and build replies that end a loop."""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from suffice.common.json_text import load_json
from suffice.importers.calls.objects import fields_of, objects_in, unwrapped
from suffice.importers.calls.payloads import count, first, logged_reply, text_of, usage_in
from suffice.importers.calls.spans import Usage
from suffice.importers.transcripts.steps import ToolUse


@dataclass(frozen=True, slots=True, kw_only=True)
class Called:
    """The parts of a reply that a round needs.

    Attributes:
        body: The reply in the form that the interface uses without streaming.
        text: The text of the reply; "" if the reply only calls tools.
        uses: The tools that the reply calls.
        ids: The ids of these tool calls, in the same order; the next request repeats the ids.
        usage: The tokens of the call.
        reasoning: The part of the output tokens that was spent on reasoning; NaN if unknown.
        model: The model named in the reply; None if the reply names no model.
    """

    body: Mapping[str, Any]
    text: str = ""
    uses: tuple[ToolUse, ...] = ()
    ids: tuple[str, ...] = ()
    usage: Usage = field(default_factory=Usage)
    reasoning: float = math.nan
    model: str | None = None


_KEPT = (
    *("id", "object", "type", "role", "model", "system_fingerprint", "usage", "choices", "output", "content"),
    *("status", "incomplete_details", "stop_reason"),
)
SYSTEM = ("system", "developer")
"""The roles of system messages."""
_UNDONE = frozenset({"queued", "in_progress", "cancelled", "failed"})
_FREE = (None, "", "auto", "none", "text")
_GRAMMARS = (
    "guided_json",
    "guided_regex",
    "guided_choice",
    "guided_grammar",
    "structured_outputs",
    "grammar",
    "json_schema",
)
"""Fields of vLLM and llama.cpp that demand structured output."""
_THOUGHTS = frozenset({"thinking", "redacted_thinking", "reasoning", "reasoning_content"})
"""Types and names of a model's reasoning, which is passed on but not recorded."""


class Protocol(ABC):
    """An interface of models, which reads messages from requests and replies from streams, and builds replies that end loops.

    Attributes:
        name: The interface's name.
        path: The end of the request paths, such as `/responses`.
        ending: Matches the last event of a stream; nothing after it is recorded.
        apart: True if the interface's count of input tokens excludes tokens read from a cache.
    """

    name: str
    path: str
    ending: re.Pattern[bytes]
    apart = False

    @abstractmethod
    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages of a request; system messages are left out, since they may differ from call to call."""

    def system(self, body: Mapping[str, Any]) -> str:
        """Return the system prompt of a request; "" without one."""
        listed = [item for name in ("messages", "input") for item in objects_in(body.get(name))]
        spoken = [item.get("content") for item in listed if item.get("role") in SYSTEM]
        return "\n".join(map(text_of, (body.get("system"), body.get("instructions"), *spoken)))

    @abstractmethod
    def repeated(self, spoken: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Rebuild an earlier reply from the assistant's messages that repeat the reply in a request."""

    @abstractmethod
    def call_ids(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of the tool calls in a reply, in the order of `uses`."""

    def uses(self, body: Mapping[str, Any]) -> tuple[ToolUse, ...]:
        """Return the tools that a reply calls."""
        calls = logged_reply(body).tools
        return tuple(ToolUse(name=call.name, arguments=_arguments(call.arguments)) for call in calls)

    @abstractmethod
    def results(self, body: Mapping[str, Any]) -> dict[str, bool | None]:
        """Return the tool calls that a request answers, by id: True if the tool failed, False if not, None if unknown."""

    @abstractmethod
    def assembled(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Build the reply from the events of a stream; return None if the end is missing."""

    @abstractmethod
    def final(self, text: str, model: str) -> dict[str, Any]:
        """Build a reply that ends a loop, with text and without tool calls."""

    @abstractmethod
    def final_events(self, text: str, model: str, *, usage: bool) -> Iterator[tuple[str, Mapping[str, Any] | str]]:
        """Yield the reply of `final` as named events of a stream, with token counts if `usage` is True."""

    def key(self, body: Mapping[str, Any]) -> str:
        """Return the id of the conversation that a request names; "" if it names none."""
        del body
        return ""

    def before(self, body: Mapping[str, Any]) -> str:
        """Return the id of the reply that a request continues from; "" if the request repeats the earlier messages instead."""
        del body
        return ""

    def reply(self, body: Mapping[str, Any]) -> Called | None:
        """Parse a complete reply; return None if the body is not a reply but, say, a gateway's error with status 200."""
        read = logged_reply(body)
        uses = self.uses(body)
        if body.get("error") or body.get("status") in _UNDONE or not (read.text or uses or read.finish_reason):
            return None
        usage = fields_of(body.get("usage"))
        details = fields_of(first(usage, ("completion_tokens_details", "output_tokens_details")))
        return Called(
            body=body,
            text=read.text,
            uses=uses,
            ids=self.call_ids(body),
            usage=usage_in(usage, apart=self.apart),
            reasoning=count(details.get("reasoning_tokens")),
            model=read.model,
        )

    def kept(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the part of a reply that is recorded: its first choice, without the model's reasoning."""
        kept = {name: body[name] for name in _KEPT if name in body}
        for name in ("output", "content"):
            if isinstance(kept.get(name), list):
                kept[name] = [part for part in objects_in(kept[name]) if part.get("type") not in _THOUGHTS]
        if "choices" in kept:
            kept["choices"] = objects_in(kept["choices"])[:1]
        for choice in objects_in(kept.get("choices")):
            message = fields_of(choice.get("message"))
            said = {name: value for name, value in message.items() if name not in _THOUGHTS}
            kept["choices"] = [{**choice, "message": said}]
        return kept

    def stopped(self, text: str, request: Mapping[str, Any]) -> tuple[bytes, str]:
        """Return the body and content type of the reply that ends a loop; the body is a stream if the request wants one."""
        model = str(request.get("model") or "")
        if not request.get("stream"):
            return json.dumps(self.final(text, model)).encode(), "application/json"
        usage = bool(fields_of(request.get("stream_options")).get("include_usage"))
        lines = []
        for name, data in self.final_events(text, model, usage=usage):
            lines.append(f"event: {name}\n" if name else "")
            lines.append(f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n")
        return "".join(lines).encode(), "text/event-stream; charset=utf-8"


def demanded(request: Mapping[str, Any]) -> str:
    """Return the field by which a request demands more than plain text, such as a schema or a tool call.

    Return "" if plain text is enough.

    >>> demanded({"tool_choice": "required"}), demanded({"tool_choice": {"type": "auto"}})
    ('tool_choice', '')
    """
    choice = request.get("tool_choice")
    if isinstance(choice, dict):
        choice = choice.get("mode") or fields_of(choice.get("allowed_tools")).get("mode") or choice.get("type")
    formats = {name: request.get(name) for name in ("response_format", "output_format")}
    formats |= {name: fields_of(request.get(name)).get("format") for name in ("text", "output_config")}
    demands = {"tool_choice": choice, **{name: fields_of(given).get("type") for name, given in formats.items()}}
    demands |= {name: request.get(name) for name in _GRAMMARS}
    return next((name for name, given in demands.items() if given not in _FREE), "")


def _arguments(given: Any) -> Mapping[str, Any]:
    value = unwrapped(given)
    return value if isinstance(value, dict) else {} if value is None else {"input": value}


def events_in(raw: str) -> list[Mapping[str, Any]]:
    r"""Return the JSON objects in the events of a stream; an incomplete last event is skipped.

    >>> events_in('event: a\ndata: {"type": "a"}\n\ndata: [DONE]\n\ndata: {"cu')
    [{'type': 'a'}]
    """
    events: list[Mapping[str, Any]] = []
    for block in raw.replace("\r\n", "\n").replace("\r", "\n").split("\n\n"):
        data = "\n".join(line[5:].strip() for line in block.split("\n") if line.startswith("data:"))
        with suppress(ValueError):
            events.append(fields_of(load_json(data)))
    return [event for event in events if event]
