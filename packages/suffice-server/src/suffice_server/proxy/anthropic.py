"""Anthropic's interface for messages."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from suffice.common.json_text import load_json
from suffice.importers.calls.objects import fields_of, objects_in
from suffice_server.proxy.protocol import Protocol

_NOTHING = {"input_tokens": 0, "output_tokens": 0, "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}
_GROWING = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


class Messages(Protocol):
    """The interface `/v1/messages`."""

    name = "anthropic"
    path = "/v1/messages"
    ending = re.compile(rb'"message_stop"')
    apart = True

    def messages(self, body: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return the messages without system messages."""
        return [message for message in objects_in(body.get("messages")) if message.get("role") != "system"]

    def repeated(self, spoken: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Build a message with the content of the first given message."""
        return {"content": spoken[0].get("content")}

    def call_ids(self, body: Mapping[str, Any]) -> tuple[str, ...]:
        """Return the ids of the `tool_use` blocks."""
        return tuple(str(part.get("id")) for part in objects_in(body.get("content")) if part.get("type") == "tool_use")

    def results(self, body: Mapping[str, Any]) -> dict[str, bool | None]:
        """Return the tool calls with a `tool_result` block, by id: True if the block is marked as an error."""
        parts = [part for message in self.messages(body) for part in objects_in(message.get("content"))]
        parts = [part for part in parts if part.get("type") == "tool_result"]
        return {str(part.get("tool_use_id")): part.get("is_error") is True for part in parts}

    def assembled(self, events: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
        """Join the blocks of a stream; return None if `message_stop` is missing."""
        message: dict[str, Any] = {}
        blocks: dict[Any, dict[str, Any]] = {}
        for event in events:
            kind, index = event.get("type"), event.get("index")
            if kind == "message_start":
                message = dict(fields_of(event.get("message")))
            elif kind == "content_block_start":
                blocks[index] = dict(fields_of(event.get("content_block")))
            elif kind == "content_block_delta" and index in blocks:
                delta = fields_of(event.get("delta"))
                name = _GROWING.get(str(delta.get("type")), "")
                if name:
                    blocks[index].setdefault(f"{name} in parts", []).append(str(delta.get(name) or ""))
            elif kind == "message_delta":
                message |= {name: value for name, value in fields_of(event.get("delta")).items() if value is not None}
                usage = {name: value for name, value in fields_of(event.get("usage")).items() if value is not None}
                message["usage"] = {**fields_of(message.get("usage")), **usage}
            elif kind == "message_stop" and message:
                return {**message, "content": [_block(block) for block in blocks.values()]}
        return None

    def final(self, text: str, model: str) -> dict[str, Any]:
        """Build a message with the stop reason `end_turn`."""
        return {
            "id": f"msg_suffice_{secrets.token_hex(8)}",
            "type": "message",
            "role": "assistant",
            "model": model,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": _NOTHING,
        }

    def final_events(
        self,
        text: str,
        model: str,
        *,
        usage: bool,  # noqa: ARG002 - it is always part of these events
    ) -> Iterator[tuple[str, Mapping[str, Any]]]:
        """Yield the events of a message with one block of text."""
        message = self.final(text, model)
        delta = {"stop_reason": "end_turn", "stop_sequence": None}
        for event in (
            {"type": "message_start", "message": {**message, "content": [], "stop_reason": None}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 0}},
            {"type": "message_stop"},
        ):
            yield str(event["type"]), event


def _block(block: Mapping[str, Any]) -> dict[str, Any]:
    """Join the streamed pieces of a block."""
    whole = {name: value for name, value in block.items() if name in ("type", "id", "name", "input", "data")}
    for name in ("text", "thinking", "signature"):
        text = str(block.get(name) or "") + "".join(block.get(f"{name} in parts", ()))
        whole |= {name: text} if text else {}
    written = "".join(block.get("partial_json in parts", ()))
    try:
        return {**whole, "input": load_json(written)} if written else whole
    except ValueError:  # a reply that was cut amid the arguments
        return {**whole, "input": {"input": written}}
