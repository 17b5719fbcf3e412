"""Read whole replies of a model's interface, as loops log them in tables, into fields with usual names."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from suffice.importers.traces.payloads import logged_reply
from suffice.loops.models._wire import is_cut

_PARTS = frozenset(
    {"choices", "object", "created", "created_at", "completed_at", "output", "content", "type", "role", "status"}
    | {"stop_reason", "stop_sequence", "incomplete_details", "error", "system_fingerprint", "service_tier"}
)
"""Fields of a reply that are replaced by its answer and finish reason, or that do not describe a round."""

_OWN_ID = re.compile(r"(chatcmpl|cmpl|resp|msg|gen)[-_]")


def reply_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """If an object is a reply, return its answer and usage, read as in traces; otherwise return the object itself.

    >>> reply_fields({"object": "chat.completion", "choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}]})
    {'answer': 'Oslo', 'finish_reason': 'stop'}
    >>> reply_fields({"qid": "q1", "object": "chat.completion", "choices": [{"message": {"content": "Oslo"}}]})
    {'qid': 'q1', 'answer': 'Oslo', 'finish_reason': None}
    >>> reply_fields({"object": "chat.completion", "choices": [{"message": {"content": "Os"}, "finish_reason": "length"}]})
    {'answer': None, 'finish_reason': 'length'}
    """
    if not _is_whole_reply(values):
        return values
    reply = logged_reply(dict(values))
    others = {name: value for name, value in values.items() if name not in _PARTS}
    if _OWN_ID.match(str(others.get("id"))):
        del others["id"]
    text = "" if is_cut(reply.finish_reason) or values.get("error") else reply.text.strip()
    return {**others, "answer": text or None, "finish_reason": reply.finish_reason}


def _is_whole_reply(values: Mapping[str, Any]) -> bool:
    """Return whether an object is a reply of a model's interface, and not a list of rounds or a message of a dialogue."""
    choices = values.get("choices")
    if isinstance(choices, list):
        only = choices[0] if len(choices) == 1 else None
        has_text = isinstance(only, dict) and bool({"message", "text"} & only.keys())
        return has_text and bool({"usage", "object", "created"} & values.keys())
    if values.get("object") == "response":
        return isinstance(values.get("output"), list)
    return values.get("type") == "message" and isinstance(values.get("content"), list) and "usage" in values
