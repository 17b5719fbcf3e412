"""Read a span's attributes in the conventions of OpenTelemetry GenAI (all versions), OpenLLMetry and OpenInference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.importers.calls.objects import dotted_fields, fields_of, short_ids, unwrapped
from suffice.importers.calls.payloads import asked_in, count, first, logged_reply, messages_of
from suffice.importers.calls.spans import CHAT, LoggedMessage, LoggedReply, TraceSpan, usage_of

Event = tuple[str, Mapping[str, Any]]
"""A span event, or a log record of the span: its name, and its attributes and body with dotted names."""

_CHAT_OPERATIONS = ("chat", "text_completion", "generate_content", "completion")
_INDEXED_INPUT = ("llm.input_messages", "gen_ai.prompt", "llm.prompts")
_INDEXED_OUTPUT = ("llm.output_messages", "gen_ai.completion", "llm.choices")
_INPUT_EVENTS = ("gen_ai.system.message", "gen_ai.user.message", "gen_ai.assistant.message", "gen_ai.tool.message")
_USAGE = (
    ("gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens", "llm.token_count.prompt", "llm.usage.prompt_tokens"),
    (
        "gen_ai.usage.cache_read.input_tokens",
        "gen_ai.usage.cache_read_input_tokens",
        "gen_ai.usage.details.cache_read_tokens",
        "gen_ai.usage.cached_tokens",
        "llm.token_count.prompt_details.cache_read",
    ),
    (
        "gen_ai.usage.output_tokens",
        "gen_ai.usage.completion_tokens",
        "llm.token_count.completion",
        "llm.usage.completion_tokens",
    ),
    ("gen_ai.usage.total_tokens", "llm.token_count.total", "llm.usage.total_tokens"),
)
"""Attributes of input tokens, cached tokens, output tokens and all tokens, in the order of `usage_of`."""

_MODEL = ("gen_ai.response.model", "gen_ai.request.model", "llm.model_name", "llm.request.model")


def is_genai(attributes: Mapping[str, Any]) -> bool:
    """Return whether a span follows one of the GenAI conventions."""
    return any(name.startswith(("gen_ai.", "llm.", "openinference.", "traceloop.")) for name in attributes)


def _kind(attributes: Mapping[str, Any]) -> str:
    operation = attributes.get("gen_ai.operation.name")
    if isinstance(operation, str) and operation:
        return CHAT if operation.lower() in _CHAT_OPERATIONS else operation
    kind = first(attributes, ("openinference.span.kind", "traceloop.span.kind"))
    if isinstance(kind, str):
        return CHAT if kind.upper() == "LLM" else kind.lower()
    request = attributes.get("llm.request.type")
    if isinstance(request, str):
        return CHAT if request in _CHAT_OPERATIONS else request
    has_messages = any(name.startswith(("gen_ai.prompt.", "gen_ai.completion.")) for name in attributes)
    return CHAT if has_messages else "span"


def read_attributes(span: TraceSpan, attributes: Mapping[str, Any], events: Sequence[Event]) -> TraceSpan:
    """Fill in a span's fields from its flat attributes and its events."""
    span.kind = _kind(attributes)
    span.ids = {**short_ids({name: v for name, v in attributes.items() if not _is_content(name)}), **span.ids}
    node = fields_of(unwrapped(attributes.get("metadata"))).get("langgraph_node")
    span.ids = {**span.ids, "langgraph_node": str(node)} if node else span.ids
    for name, values in events:
        if name == "gen_ai.evaluation.result":
            _add_score(span, values)
    if span.kind != CHAT:
        span.asked = asked_in(first(attributes, ("input.value", "traceloop.entity.input")))
        return span
    listed = unwrapped(attributes.get("events"))  # an old convention of one framework: events are an attribute
    if isinstance(listed, list):
        events = [*events, *((str(e.get("event.name", "")), dotted_fields(e)) for e in listed if isinstance(e, dict))]
    raw = logged_reply(attributes.get("output.value"))
    reply = _output(attributes, events, raw)
    span.messages = _input(attributes, events)
    model = first(attributes, _MODEL)
    reasons = first(attributes, ("gen_ai.response.finish_reasons", "gen_ai.response.finish_reason"))
    reasons = unwrapped(reasons)
    reason = reasons[0] if isinstance(reasons, list) and reasons else reasons
    span.reply = replace(
        reply,
        tokens=reply.tokens if reply.tokens is not None or raw.text != reply.text else raw.tokens,
        choices=max(reply.choices, raw.choices),
        model=str(model) if model is not None else reply.model,
        usage=usage_of(*(count(first(attributes, names)) for names in _USAGE)),
        finish_reason=str(reason) if reason else reply.finish_reason or raw.finish_reason,
    )
    return span


def _is_content(name: str) -> bool:
    return name.startswith(
        ("gen_ai.prompt", "gen_ai.completion", "gen_ai.input", "gen_ai.output", "llm.input", "llm.output")
    )


def _add_score(span: TraceSpan, values: Mapping[str, Any]) -> None:
    name = values.get("gen_ai.evaluation.name")
    value = first(values, ("gen_ai.evaluation.score.value", "gen_ai.evaluation.score.label"))
    if name and value is not None:
        span.scores[str(name)] = value


def _input(attributes: Mapping[str, Any], events: Sequence[Event]) -> tuple[LoggedMessage, ...]:
    system = messages_of(_system(attributes.get("gen_ai.system_instructions")))
    for values in (attributes, *(values for _, values in events)):
        messages = messages_of(_whole(values, "gen_ai.input.messages"))
        if messages:
            return (*system, *messages)
    listed = [_event_message(name, values) for name, values in events if name in _INPUT_EVENTS]
    if listed:
        return (*system, *messages_of(listed))
    prompt = next((values for name, values in events if name == "gen_ai.content.prompt"), {})
    for value in (prompt.get("gen_ai.prompt"), *(_indexed(attributes, name) for name in _INDEXED_INPUT)):
        messages = messages_of(value)
        if messages:
            return (*system, *messages)
    return (*system, *messages_of(attributes.get("input.value")))


def _system(value: Any) -> Any:
    value = unwrapped(value)
    return [{"role": "system", "parts": value}] if isinstance(value, list) else value


def _output(attributes: Mapping[str, Any], events: Sequence[Event], raw: LoggedReply) -> LoggedReply:
    for values in (attributes, *(values for _, values in events)):
        reply = logged_reply(_whole(values, "gen_ai.output.messages"))
        if reply.text or reply.tools:
            return reply
    choices = [values for name, values in events if name == "gen_ai.choice"]
    if choices:
        message = _event_message("gen_ai.assistant.message", choices[0])
        choice = {"message": message, "finish_reason": choices[0].get("finish_reason")}
        return logged_reply({"choices": [choice, *choices[1:]]})
    content = next((values for name, values in events if name == "gen_ai.content.completion"), {})
    for value in (content.get("gen_ai.completion"), *(_indexed(attributes, name) for name in _INDEXED_OUTPUT)):
        listed = unwrapped(value)
        if isinstance(listed, list) and listed:
            reply = logged_reply([_named_role(listed[0], "assistant")])
            if reply.text or reply.tools:
                return reply
    return raw


def _named_role(message: Any, role: str) -> Any:
    return {**message, "role": role} if isinstance(message, dict) and "message" not in message else message


def _whole(values: Mapping[str, Any], name: str) -> Any:
    """Return an attribute's value; rebuild it if the attribute is spread over names such as `gen_ai.prompt.0.content`."""
    return values[name] if name in values else _indexed(values, name)


def _event_message(name: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the message in an event.

    The message's fields are separate attributes, or one attribute has the whole message as JSON text.
    """
    role = name.split(".")[1] if name.count(".") == 2 else "user"  # noqa: PLR2004
    message: dict[str, Any] = {"role": role}
    for prefix in ("message.", "body.message.", "body.", ""):
        fields = {key.removeprefix(prefix): value for key, value in values.items() if key.startswith(prefix)}
        if any(key.split(".")[0] in ("content", "tool_calls") for key in fields):
            return message | {
                key: value for key, value in _nested(fields).items() if key in ("content", "tool_calls", "role")
            }
    inner = unwrapped(first(values, ("message", "body", "gen_ai.event.content")))
    return message | (inner if isinstance(inner, dict) else {"content": inner})


def _indexed(values: Mapping[str, Any], prefix: str) -> Any:
    """Rebuild the list from attributes such as `gen_ai.prompt.0.content`; without such attributes, return the value under `prefix`."""
    fields = {name[len(prefix) + 1 :]: value for name, value in values.items() if name.startswith(f"{prefix}.")}
    nested = _lists(_nested(fields))
    return nested if isinstance(nested, list) else values.get(prefix)


def _nested(fields: Mapping[str, Any]) -> dict[str, Any]:
    nested: dict[str, Any] = {}
    for name, value in fields.items():
        *path, leaf = name.split(".")
        here = nested
        for part in path:
            inner = here.setdefault(part, {})
            here = inner if isinstance(inner, dict) else here.setdefault(f"{part}.", {})
        here[leaf] = value
    return {key: _lists(value) for key, value in nested.items()}


def _lists(value: Any) -> Any:
    """Convert objects whose keys are 0, 1, ... to lists."""
    if not isinstance(value, dict):
        return value
    inner = {key: _lists(item) for key, item in value.items()}
    if inner and all(key.isdecimal() for key in inner):
        return [inner[key] for key in sorted(inner, key=lambda key: (len(key), key))]
    return inner
