"""Replies of a model's interface in tables, as loops log them whole: what they say, in fields with usual names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.adapters.traces.payloads import logged_reply

__all__ = ["reply_fields"]


def reply_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return an object as it is, or where it is a reply, its answer with its usage, read as the replies of traces are.

    >>> reply_fields({"object": "chat.completion", "choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}]})
    {'answer': 'Oslo', 'finish_reason': 'stop'}
    """
    if not _is_reply(values):
        return values
    reply = logged_reply(dict(values))
    known = {name: values[name] for name in ("model", "usage") if name in values}
    return {"answer": reply.text.strip() or None, "finish_reason": reply.finish_reason, **known}


def _is_reply(values: Mapping[str, Any]) -> bool:
    """Return whether an object is what a model's interface returned, and not a list of rounds or a message of a dialogue."""
    choices = values.get("choices")
    if isinstance(choices, list):
        only = choices[0] if len(choices) == 1 else None
        has_text = isinstance(only, dict) and bool({"message", "text"} & only.keys())
        return has_text and bool({"usage", "object", "created"} & values.keys())
    if values.get("object") == "response":
        return isinstance(values.get("output"), list)
    return values.get("type") == "message" and isinstance(values.get("content"), list) and "usage" in values
