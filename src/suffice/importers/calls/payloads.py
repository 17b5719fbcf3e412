"""Read messages and completions in the shapes of model APIs and frameworks: OpenAI, Anthropic, LangChain, GenAI parts."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.importers.calls.objects import fields_of, unwrapped
from suffice.importers.calls.spans import LoggedMessage, LoggedReply, ToolCall, Usage, usage_of
from suffice.importers.columns.grid import whole_number
from suffice.importers.words.names import QUESTIONS, words
from suffice.loops.models._wire import count_of, response_output, tokens_of
from suffice.policy.rounds import Token

_ROLES = {
    "human": "user",
    "ai": "assistant",
    "AIMessageChunk": "assistant",
    "model": "assistant",
    "developer": "system",
    "function": "tool",
}
_TEXT_PARTS = (None, "text", "output_text", "input_text", "refusal")
_INPUT_TOKENS = words("input_tokens prompt_tokens input promptTokens inputTokens prompt_token_count promptTokenCount")
_CACHE_READS = words(
    "cache_read_input_tokens cache_read_tokens input_tokens_cache_read input_cached_tokens "
    "input_cache_read prompt_details.cache_read cached_content_token_count cachedContentTokenCount"
)
_CACHE_WRITES = words(
    "cache_creation_input_tokens input_tokens_cache_write input_cache_creation cache_write_tokens "
    "prompt_details.cache_write"
)
_STAYING = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")
_OUTPUT_TOKENS = words(
    "output_tokens completion_tokens output completionTokens outputTokens candidates_token_count candidatesTokenCount"
)
_APART: Mapping[tuple[str, ...], tuple[str, ...]] = {
    _INPUT_TOKENS: ("tool_use_prompt_token_count", "toolUsePromptTokenCount"),
    _OUTPUT_TOKENS: ("thoughts_token_count", "thoughtsTokenCount"),
}
"""Counts of Gemini's usage that come on top of others; elsewhere, thoughts are a part of the output."""
REASONING = ("reasoning_content", "reasoning", "thinking", "thoughts", "chain_of_thought", "cot")
"""Names of what a model thought, beside its reply."""
_ALL_TOKENS = ("total_tokens", "total", "totalTokens", "total_token_count", "totalTokenCount")
_DETAILS = ("input_tokens_details", "prompt_tokens_details", "input_token_details")


def first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    """Return the first value under one of these names that is neither None nor empty text."""
    return next((values[name] for name in names if values.get(name) not in (None, "")), None)


def asked_in(value: Any) -> str:
    """Return the question in a step's input: the input itself if it is text, or its only text under a usual name if it is an object.

    Return "" for any other input.

    >>> asked_in('{"question": "Where?", "documents": []}'), asked_in({"input": "Who?"}), asked_in([1])
    ('Where?', 'Who?', '')
    """
    value = unwrapped(value)
    if isinstance(value, dict):
        named = [value[name] for name in QUESTIONS if isinstance(value.get(name), str)]
        value = named[0] if len(named) == 1 else None
    return value.strip() if isinstance(value, str) else ""


def count(value: Any) -> float:
    """Return a count of tokens, given as a number or as digits; NaN for anything else."""
    return count_of(whole_number(value) if isinstance(value, str) else value)


def text_of(content: Any) -> str:
    """Return the text of a message's content, which may be divided into parts; parts with reasoning or tool calls are left out."""
    if isinstance(content, str):
        return content
    if isinstance(content, dict):
        content = [content]
    if not isinstance(content, list):
        return ""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict):
            inner = part.get("message_content", part)
            names = ("refusal",) if inner.get("type") == "refusal" else ("text", "content")
            text: Any = first(inner, names) if inner.get("type") in _TEXT_PARTS else None
            texts.append(text if isinstance(text, str) else "")
    return "".join(texts)


def _bare(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the message inside the wrappers of a framework."""
    if isinstance(message.get("kwargs"), dict) and message.get("type") == "constructor":  # serialised by LangChain
        kind = str((message.get("id") or [""])[-1])
        role = next((role for start, role in _CLASSES if kind.startswith(start)), kind)
        return {"role": role, **message["kwargs"]}
    for name in ("message", "data"):
        inner = message.get(name)
        if isinstance(inner, dict) and "content" not in message:
            return {**message, **_bare(inner)}
    return message


_CLASSES = (("AI", "assistant"), ("Human", "user"), ("System", "system"), ("Tool", "tool"), ("Function", "tool"))


def _role(message: Mapping[str, Any]) -> str:
    role = str(first(message, ("role", "type")) or "")
    return _ROLES.get(role, role)


def _message_text(message: Mapping[str, Any]) -> str:
    for name in ("content", "contents", "parts", "text"):
        text = text_of(unwrapped(message.get(name)) if name == "parts" else message.get(name))
        if text:
            return text
    refusal = message.get("refusal")  # a refusal counts as the text, as in live replies
    return refusal if isinstance(refusal, str) else ""


def reasoning_of(message: Mapping[str, Any]) -> str:
    """Return the model's reasoning in a message, from a field or from parts of its content; "" if there is none.

    >>> reasoning_of({"content": [{"type": "thinking", "thinking": "6 times 7"}, {"type": "text", "text": "42"}]})
    '6 times 7'
    """
    parts = message.get("content")
    listed = [message, *(parts if isinstance(parts, list) else ())]
    texts = [first(part, REASONING) for part in listed if isinstance(part, dict) and not part.get("redacted")]
    return "\n".join(text for text in texts if isinstance(text, str))


def tools_of(message: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the tools that a message calls, from a field such as `tool_calls` or from the parts of the message's content."""
    calls: list[Any] = []
    extra = message.get("additional_kwargs")
    for holder in (message, extra if isinstance(extra, dict) else {}):
        listed = unwrapped(holder.get("tool_calls"))
        if isinstance(listed, list) and not calls:
            calls = listed
    for name in ("content", "parts"):
        parts = unwrapped(message.get(name)) if name == "parts" else message.get(name)
        if isinstance(parts, list) and not calls:
            calls = [part for part in parts if isinstance(part, dict) and part.get("type") in ("tool_use", "tool_call")]
    tools = []
    for item in calls:
        if isinstance(item, dict):
            call = item.get("tool_call", item)
            function = call.get("function")
            inner = function if isinstance(function, dict) else call
            called = function if isinstance(function, str) else inner.get("name")
            tools.append(ToolCall(str(called or ""), first(inner, ("arguments", "args", "input"))))
    return tuple(tools)


def messages_of(value: Any) -> tuple[LoggedMessage, ...]:
    """Return the messages to a model; `value` is a list, an object with a list (`messages`, ...), or one text."""
    value = unwrapped(value)
    if isinstance(value, str):
        return _transcript(value)
    if isinstance(value, dict):
        inner = first(value, ("messages", "input", "prompts", "prompt", "args"))
        if inner is not None:
            return messages_of(inner)
        return messages_of([value]) if first(value, ("role", "content", "parts")) is not None else ()
    if not isinstance(value, list):
        return ()
    if len(value) == 1 and isinstance(value[0], list):  # LangChain gives a batch of one
        return messages_of(value[0])
    messages: list[LoggedMessage] = []
    for item in value:
        if isinstance(item, str):
            messages.extend(_transcript(item))
        elif isinstance(item, dict):
            bare = _bare(item)
            messages.append(LoggedMessage(_role(bare), _message_text(bare)))
    return tuple(messages)


def _transcript(text: str) -> tuple[LoggedMessage, ...]:
    r"""Split a prompt that is one text into messages; each message begins with its role.

    >>> [item.text for item in _transcript("System: Be brief.\nHuman: Who wrote it?")]
    ['Be brief.', 'Who wrote it?']
    """
    if not _SPEAKER.match(text):
        return (LoggedMessage("user", text),) if text.strip() else ()
    places = [*_SPEAKER.finditer(text)]
    ends = [place.start() for place in places[1:]] + [len(text)]
    return tuple(
        LoggedMessage(_ROLES.get(place[1].lower(), place[1].lower()), text[place.end() : end].strip())
        for place, end in zip(places, ends, strict=True)
    )


_SPEAKER = re.compile(r"^(system|developer|user|human|assistant|ai|tool): ", re.IGNORECASE | re.MULTILINE)


def usage_in(usage: Any, *, apart: bool = False) -> Usage:
    """Return the numbers of tokens in an API's `usage`, under any of the usual names.

    >>> usage_in({"prompt_tokens": 12, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 8}})
    Usage(uncached=4.0, cached=8.0, output=3.0, written=0.0, written_1h=0.0)
    """
    if not isinstance(usage, dict):
        return Usage()
    details: Mapping[str, Any] = next((usage[name] for name in _DETAILS if isinstance(usage.get(name), dict)), {})
    cached = first(usage, _CACHE_READS)
    if cached is None:
        cached = first(details, ("cached_tokens", "cache_read"))
    written = first(usage, _CACHE_WRITES)
    if written is None:
        written = first(details, ("cache_creation", "cache_write_tokens", "cache_creation_tokens"))
    apiece = fields_of(usage.get("cache_creation")) or details
    brief, hour = (0.0 if math.isnan(n := count(apiece.get(name))) else n for name in _STAYING)
    return usage_of(
        _counted(usage, _INPUT_TOKENS),
        count(cached),
        _counted(usage, _OUTPUT_TOKENS),
        count(first(usage, _ALL_TOKENS)),
        # Anthropic uses this name for cache reads, and excludes them from its input tokens.
        apart=apart or "cache_creation_input_tokens" in usage,
        written=max(brief + hour, 0.0 if math.isnan(n := count(written)) else n),
        for_an_hour=hour,
    )


def _counted(usage: Mapping[str, Any], names: tuple[str, ...]) -> float:
    known = [n for n in (count(first(usage, names)), count(first(usage, _APART[names]))) if not math.isnan(n)]
    return sum(known) if known else math.nan


def _tokens(logprobs: Any) -> tuple[Token, ...] | None:
    return tokens_of({"content": logprobs} if isinstance(logprobs, list) else logprobs)


def _of_choice(choices: Sequence[Any]) -> LoggedReply:
    choice = choices[0] if isinstance(choices[0], dict) else {}
    message = choice.get("message")
    message = _bare(message) if isinstance(message, dict) else {"content": choice.get("text")}
    return LoggedReply(
        text=_message_text(message),
        reasoning=reasoning_of(message),
        tools=tools_of(message),
        tokens=_tokens(choice.get("logprobs")),
        finish_reason=first(choice, ("finish_reason", "stop_reason")),
        choices=len(choices),
    )


def _of_response(body: Mapping[str, Any]) -> LoggedReply:
    """Read a reply in the form of the Responses API."""
    output = response_output(body)
    return LoggedReply(
        text=output.text,
        tools=tuple(ToolCall(name, arguments) for name, arguments in output.calls),
        tokens=output.tokens,
        finish_reason=output.finish_reason,
    )


def _of_message(message: Mapping[str, Any]) -> LoggedReply:
    """Read an assistant's message, including the extra fields of LangChain and Anthropic."""
    meta = fields_of(message.get("response_metadata"))
    return LoggedReply(
        text=_message_text(message),
        reasoning=reasoning_of(message),
        tools=tools_of(message),
        tokens=_tokens(first(meta, ("logprobs",)) or message.get("logprobs")),
        finish_reason=first(message, ("finish_reason", "stop_reason")) or first(meta, ("finish_reason", "stop_reason")),
        model=first(meta, ("model_name", "model")),
        usage=usage_in(first(message, ("usage_metadata",)) or first(meta, ("token_usage", "usage"))),
    )


def logged_reply(value: Any) -> LoggedReply:
    """Read a model's reply, in any form in which APIs and frameworks log it.

    >>> logged_reply({"choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}]}).text
    'Oslo'
    >>> logged_reply("Oslo").text
    'Oslo'
    """
    value = unwrapped(value)
    if isinstance(value, str):
        return LoggedReply(text=value)
    if isinstance(value, list):
        return _last_assistant(value)
    if not isinstance(value, dict):
        return LoggedReply()
    reply = _of_object(value)
    if math.isnan(reply.usage.output):
        counts = first(value, ("usage", "usage_metadata")) or fields_of(value.get("llm_output")).get("token_usage")
        reply = replace(reply, usage=usage_in(counts))
    model = value.get("model")
    return replace(reply, model=reply.model or model) if isinstance(model, str) else reply


def _of_object(value: Mapping[str, Any]) -> LoggedReply:  # noqa: PLR0911 - one return for each shape
    choices, generations = value.get("choices"), value.get("generations")
    if isinstance(choices, list) and choices:
        return _of_choice(choices)
    if isinstance(value.get("output"), list) and value.get("object", "response") == "response":
        return _of_response(value)
    if isinstance(generations, list) and generations:
        inner = generations[0]
        inner = inner[0] if isinstance(inner, list) and inner else inner
        return logged_reply(inner) if isinstance(inner, dict) else LoggedReply()
    if isinstance(value.get("messages"), list):
        return _last_assistant(value["messages"])
    bare = _bare(value)
    if any(name in bare for name in ("content", "parts", "contents", "text", "tool_calls")):
        return _of_message(bare)
    for name in ("output", "message", "response"):
        if isinstance(value.get(name), str | dict):
            return logged_reply(value[name])
    return LoggedReply()


def _last_assistant(messages: Sequence[Any]) -> LoggedReply:
    """Read the last message of a list if the assistant wrote it; otherwise return an empty reply.

    If all items of the list are texts, they are pieces of the reply and are joined.
    """
    if messages and all(isinstance(item, str) for item in messages):
        return LoggedReply(text="".join(messages))
    last = messages[-1] if messages else None
    if not isinstance(last, dict):
        return LoggedReply()
    bare = _bare(last)
    return _of_message(bare) if _role(bare) in ("assistant", "") else LoggedReply()
