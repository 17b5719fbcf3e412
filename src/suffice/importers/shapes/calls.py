"""Read raw calls of a model API as rows: the question, the system prompt and the reply."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from suffice.importers.calls.objects import unwrapped
from suffice.importers.calls.payloads import messages_of
from suffice.importers.words.names import QUESTIONS, plain_name

REQUESTS = ("request", "request_body", "req")
"""Names of what was sent to a model."""
_REPLIES = ("response", "response_body", "resp", "reply")
_ASKED = frozenset({"messages", "input", "prompt", "contents"})
_LOGGED = frozenset((*REQUESTS, *_REPLIES))
_OF_HISTORY = frozenset({"prompt", "messages", "outputs", "response", "uuid", "response_model", "model_type"})
_FIELD = re.compile(
    r"^\[\[ ## (\w+) ## \]\][ \t]*\n(.*?)(?=^\[\[ ## |^Respond with the corresponding|\Z)", re.MULTILINE | re.DOTALL
)


def call_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Add the question and the system prompt to a logged call, and parse bodies that are JSON text.

    Objects that are not a logged call are returned unchanged.

    >>> call = {"trace": 1, "request": '{"messages": [{"role": "user", "content": "Where?"}]}', "response": '{"id": "resp_1"}'}
    >>> call_fields(call)
    {'trace': 1, 'request': {}, 'response': {'id': 'resp_1'}, 'question': 'Where?'}
    """
    if _LOGGED.isdisjoint(values):
        return values
    asked, replied = (next((name for name in names if name in values), "") for names in (REQUESTS, _REPLIES))
    request, reply = _body(values.get(asked)), _body(values.get(replied))
    if request is None or reply is None or _ASKED.isdisjoint(request):
        return values
    messages = messages_of(request)
    said = {role: next((item.text for item in messages if item.role == role), "") for role in ("user", "system")}
    others = {name: value for name, value in request.items() if name not in _ASKED}
    if said["system"]:
        others.setdefault("system", said["system"])
    result = {**values, asked: others, replied: reply}
    return {**result, "question": said["user"]} if said["user"] and "question" not in values else result


def history_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    r"""If an object is a call in a DSPy history, return its question and output; return other objects unchanged.

    >>> asked = [{"role": "user", "content": "[[ ## question ## ]]\nWhere?\n\nRespond with the corresponding output fields."}]
    >>> history_fields({"messages": asked, "kwargs": {}, "outputs": [{"text": "Oslo"}], "response": "...", "uuid": "u1"})
    {'kwargs': {}, 'question': 'Where?', 'output': 'Oslo'}
    """
    outputs, messages = values.get("outputs"), values.get("messages")
    if "kwargs" not in values or not isinstance(outputs, list) or len(outputs) != 1:
        return values
    last: Mapping[str, Any] = next((item for item in reversed(messages or []) if item.get("role") == "user"), {})
    asked = last.get("content") or values.get("prompt")
    said = outputs[0].get("text") if isinstance(outputs[0], dict) else outputs[0]
    result = {name: value for name, value in values.items() if name not in _OF_HISTORY}
    return {**result, "question": _asked_in(asked) if isinstance(asked, str) else None, "output": said}


def _asked_in(text: str) -> str:
    """Return the question in a user message, which may have fields under headers."""
    fields = {plain_name(match[1]): match[2].strip() for match in _FIELD.finditer(text)}
    return next((fields[name] for name in QUESTIONS if name in fields), text)


def _body(value: Any) -> dict[str, Any] | None:
    """Return the body of a request or reply, which may be JSON text or inside an HTTP object; None for anything else."""
    value = unwrapped(value) if isinstance(value, str) else value
    if isinstance(value, dict) and "body" in value:
        return _body(value["body"])
    return value if isinstance(value, dict) else None
