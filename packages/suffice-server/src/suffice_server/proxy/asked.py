"""Parse a request to a model, to find the conversation that it belongs to."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.importers.calls.payloads import text_of
from suffice_server.proxy.protocol import Protocol, demanded
from suffice_server.proxy.redacting import Secrets

Way = tuple[str, str, str]
"""The model of a request, a hash of its tools' names, and a hash of its system prompt without numbers, which may be a time."""

_TASK_CHARACTERS = 4000
_NUMBERS = re.compile(r"\d+")
_VOLATILE = frozenset({"cache_control", "reasoning_content", "reasoning"})
"""Fields of a message that clients add or leave out when they repeat it."""
_BESIDE = frozenset({"messages", "input", "stream", "stream_options"})
"""Fields that the hash of a request leaves out: the messages, hashed separately, and streaming, which a retry may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A parsed request to a model, with everything that shows the conversation that it belongs to.

    Attributes:
        protocol: The interface of the request.
        body: The JSON of the request.
        messages: The messages of the request.
        chain: For each message, a hash of this message and all messages before it.
        digest: A hash of the whole request.
        task: The first text in the messages, without secrets; it serves as the question of the recording.
        texts: The texts of the messages.
        spoken: The positions of the assistant's messages.
        results: The tool calls that the request answers, by id: True if the tool failed, else False; None if unknown.
        tools: A hash of the names of the tools that the request offers; "" without tools.
        way: The model, tools and system prompt of the request; all calls of one agent share them.
        key: The client's name for the conversation, from a header or the body; "" without one.
        is_retry: True if the client marks the request as a retry.
        redact: Removes the secrets of the request from texts.
    """

    protocol: Protocol
    body: Mapping[str, Any]
    messages: Sequence[dict[str, Any]]
    chain: Sequence[str]
    digest: str
    task: str
    texts: Sequence[str]
    spoken: Sequence[int]
    results: Mapping[str, bool | None]
    tools: str
    way: Way
    key: str
    is_retry: bool
    redact: Secrets

    @property
    def form(self) -> str:
        """The field by which the request demands more than plain text, see `demanded`; "" if plain text is enough."""
        return demanded(self.body)

    @classmethod
    def of(cls, protocol: Protocol, body: Mapping[str, Any], *, key: str, is_retry: bool, redact: Secrets) -> Asked:
        """Parse the body of a request."""
        messages = protocol.messages(body)
        chain, before = [], ""
        for message in messages:
            before = digest_of(before, _canonical(message))
            chain.append(before)
        texts = [text_of(message.get("content")) for message in messages]
        offered = body.get("tools")
        names = [str(_name(tool)) for tool in offered if isinstance(tool, dict)] if isinstance(offered, list) else []
        tools = digest_of(*sorted(names)) if names else ""
        return cls(
            protocol=protocol,
            body=body,
            messages=messages,
            chain=chain,
            digest=digest_of(before, _canonical({name: value for name, value in body.items() if name not in _BESIDE})),
            task=redact(next((text for text in texts if text.strip()), "").strip())[:_TASK_CHARACTERS],
            texts=texts,
            spoken=[place for place, message in enumerate(messages) if is_spoken(message)],
            results=protocol.results(body),
            tools=tools,
            way=(str(body.get("model") or ""), tools, digest_of(_NUMBERS.sub("", protocol.system(body)))),
            key=redact(key or protocol.key(body)),
            is_retry=is_retry,
            redact=redact,
        )


def is_spoken(message: Mapping[str, Any]) -> bool:
    """Return whether a message comes from the assistant."""
    return message.get("role") == "assistant" or str(message.get("type", "")).endswith("_call")


def _name(tool: Mapping[str, Any]) -> Any:
    function = tool.get("function")
    return (function if isinstance(function, dict) else tool).get("name") or tool.get("type")


def _canonical(message: Any) -> str:
    return json.dumps(_stable(message), sort_keys=True, default=str)


def _stable(value: Any) -> Any:
    """Return a message without fields that clients change when repeating it; a single text part becomes plain text."""
    if isinstance(value, dict):
        kept = {name: _stable(item) for name, item in value.items() if name not in _VOLATILE and item is not None}
        content = value.get("content")
        part = content[0] if isinstance(content, list) and len(content) == 1 else None
        if isinstance(part, dict) and set(_stable(part)) <= {"type", "text"}:
            kept["content"] = part.get("text")
        return kept
    return [_stable(item) for item in value] if isinstance(value, list) else value


def digest_of(*parts: str) -> str:
    """Return a hash of some texts."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass") + b"\0")
    return digest.hexdigest()
