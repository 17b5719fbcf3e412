"""Write request bodies for OpenAI-compatible endpoints, and read replies after checking their form."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from suffice.common.json_text import load_json
from suffice.common.redaction import shortened
from suffice.errors import DataError, ModelError
from suffice.loops.models._failures import bad_body, status_failure
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Cost, Token
from suffice.policy.signals.position import AnswerPosition

if TYPE_CHECKING:
    from typing_extensions import TypeIs

Api = Literal["chat", "completions"]
"""The interface: chat completions, or the legacy completions of a raw text."""

Asked = Sequence[Mapping[str, str]] | Sequence[int] | str
"""What a model is asked: messages, one text, or a text as token ids."""

_SERVER_ERROR = 500
_RESERVED_FIELDS = ("model", "messages", "prompt", "stream", "n")
_NOT_GIVEN = -100.0
CHARACTERS_PER_TOKEN = 4.0
"""An estimate where the tokens of a text are unknown."""
_FAILED = "error"
_CUT_REASONS = frozenset(
    {"length", "max_tokens", "max_output_tokens", "model_length", "model_context_window_exceeded", "incomplete"}
    | {"content_filter", "content_filtered", "safety", "refusal", "failed", _FAILED}
)
"""Finish reasons, in the words of several interfaces, of replies that were cut before the model ended them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """One reply of an endpoint.

    Attributes:
        text: The generated text, without any reasoning that the server returned apart; empty if there is no text.
        tokens: The generated tokens with log-probabilities; None if the endpoint returned none.
        cost: Cost of the call; `seconds` includes retries of the client. A cached reply has the original call's cost.
        finish_reason: The endpoint's finish reason; `error` if the endpoint reports an error beside the text.
        reasoning: Reasoning that the server returned apart from the text; None if there is none.
        tool_arguments: The arguments (JSON text) of the first tool call; None without tool calls.
        model: The model named in the reply; None if the reply names no model.
        completion_id: The endpoint's id of the reply; None if it gives none.
        system_fingerprint: The endpoint's id for its own configuration; None if it gives none.
        cached_tokens_reported: True if the endpoint reported the number of input tokens from its prefix cache.
        from_cache: True if the reply came from the response cache, not from the endpoint.
        token_ids: The ids of the generated tokens; None if the endpoint returned none.
        reasoning_tokens: Number of thinking tokens that the endpoint reports; NaN if it reports none.
    """

    text: str
    tokens: tuple[Token, ...] | None
    cost: Cost
    finish_reason: str | None = None
    reasoning: str | None = None
    tool_arguments: str | None = None
    model: str | None = None
    completion_id: str | None = None
    system_fingerprint: str | None = None
    cached_tokens_reported: bool = False
    from_cache: bool = False
    token_ids: tuple[int, ...] | None = None
    reasoning_tokens: float = math.nan

    @property
    def origin(self) -> dict[str, Any]:
        """The finish reason and the origin of the text (model, system fingerprint, cache), as fields of a `Reply`."""
        return {
            "finish_reason": self.finish_reason,
            "reply_model": self.model,
            "system_fingerprint": self.system_fingerprint,
            "from_cache": self.from_cache,
        }

    def text_for(self, position: AnswerPosition) -> str:
        """Return the text that contains the answer.

        It is the text of the reply.  At a `tool` position, it is the arguments of the first tool call, if there is one.
        """
        return self.tool_arguments or self.text if position.kind == "tool" else self.text


def as_prompt(messages: Sequence[Mapping[str, str]]) -> str:
    r"""Join messages to one raw text for the legacy interface.

    The text ends with the blank line that would precede a further passage, so it is a prefix of the next round's text.
    A prefilled start of the reply follows that line.

    >>> as_prompt([{"role": "system", "content": "Answer."}, {"role": "user", "content": "Who?"}])
    'Answer.\n\nWho?\n\n'
    """
    prefill = ""
    if messages and messages[-1]["role"] == "assistant":
        *messages, last = messages
        prefill = last["content"]
    return "".join(f"{message['content']}\n\n" for message in messages) + prefill


def request_body(api: Api, model: str, messages: Asked, settings: Mapping[str, Any], n: int = 1) -> dict[str, Any]:
    """Return the JSON to send, without settings that are None and without `n` = 1."""
    body: dict[str, Any] = {"model": model}
    if are_ids(messages):
        if api == "chat":
            raise DataError("token ids are a prompt of the interface for raw text only (api=completions)")
        body["prompt"] = list(messages)
    elif api == "chat":
        chat = [{"role": "user", "content": messages}] if isinstance(messages, str) else [dict(m) for m in messages]
        body["messages"] = chat
    else:
        body["prompt"] = messages if isinstance(messages, str) else as_prompt(messages)
    body |= {name: settings[name] for name in ("max_tokens", "temperature", "seed") if settings[name] is not None}
    body |= {"n": n} if n > 1 else {}
    alternatives = settings["top_logprobs"]
    if alternatives is not None:
        body |= {"logprobs": True, "top_logprobs": alternatives} if api == "chat" else {"logprobs": alternatives}
    return body | dict(settings["extra_body"])


def expected_tokens(body: Mapping[str, Any]) -> float:
    """Return the expected tokens of a request: those of its prompt, estimated for texts, plus the limit of new tokens."""
    if isinstance(body.get("prompt"), list):
        return float(len(body["prompt"]) + body.get("max_tokens", 0) * body.get("n", 1))
    texts = [message["content"] for message in body["messages"]] if "messages" in body else [body.get("prompt", "")]
    return sum(map(len, texts)) / CHARACTERS_PER_TOKEN + float(body.get("max_tokens", 0) * body.get("n", 1))


def checked_settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Check and normalise the parameters of a request, so that for example 0 and 0.0 have the same key in the cache.

    Raises:
        DataError: A parameter is out of range, or `extra_body` contains a field that is set elsewhere.
    """
    checked = dict(settings)
    for name, least in (("max_tokens", 1), ("top_logprobs", 1), ("seed", None), ("temperature", 0)):
        value = checked[name]
        if value is None:
            continue
        kind = int | float if name == "temperature" else int
        if isinstance(value, bool) or not isinstance(value, kind) or (least is not None and not value >= least):
            raise DataError(f"{name} must be a number, at least {least}, or None; got {value!r}")
    if checked["temperature"] is not None:
        checked["temperature"] = float(checked["temperature"])
    extra = dict(checked["extra_body"])
    clash = [name for name in _RESERVED_FIELDS if name in extra]
    if clash:
        raise DataError(f"extra_body must not contain {clash[0]!r}: it is set by other parameters")
    checked["extra_body"] = extra
    return checked


def is_cut(finish_reason: str | None) -> bool:
    """Return whether a reply was cut, by a token limit, a content filter or a failure; a cut reply is not an answer.

    >>> is_cut("length"), is_cut("MAX_TOKENS"), is_cut("stop"), is_cut(None)
    (True, True, False, False)
    """
    return finish_reason is not None and finish_reason.lower() in _CUT_REASONS


def is_processed(completion: Completion) -> bool:
    """Return whether log-probabilities were taken after sampling: 0 for the chosen token, -inf for the others.

    Such values contain no margin.  A single token of which the model is certain has the same values, so all tokens with
    alternatives are checked.
    """
    tokens = [token for token in completion.tokens or () if token.alternatives]
    return bool(tokens) and all(
        token.logprob == 0.0 and all(value == 0.0 or value <= _NOT_GIVEN for _, value in token.alternatives)
        for token in tokens
    )


def parse(
    text: str, *, seconds: float, where: str, wants_logprobs: bool, from_cache: bool = False
) -> tuple[Completion, ...]:
    """Parse the body of a reply with status 200 into completions, one for each choice.

    An endpoint reports the tokens of all choices together, so each completion is charged an equal share of the call and
    of the tokens.  Each completion has the seconds of the whole call.  If the endpoint counts only the first choice (llama.cpp),
    output tokens are unknown unless every choice has log-probabilities.

    Raises:
        ModelError: The body is not a completion.
    """
    body = _object_of_body(text, where, wants_logprobs=wants_logprobs)
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        what = "an empty choice list" if isinstance(choices, list) else "no choices"
        raise bad_body(where, what, text, retryable=True)
    whole = [choice for choice in choices if isinstance(choice, dict)]
    parsed = [completion_of(body, choice, seconds=seconds, from_cache=from_cache) for choice in whole]
    if len(parsed) == 1:
        return tuple(parsed)
    cost = parsed[0].cost
    if _counts_one_choice(body):
        generated = sum(math.nan if item.tokens is None else len(item.tokens) for item in parsed)
        cost = replace(cost, output_tokens=float(generated))
    share = Cost(**{kind: getattr(cost, kind) / len(parsed) for kind in (*COST_KINDS, *WRITTEN_KINDS)})
    return tuple(replace(item, cost=replace(share, seconds=seconds)) for item in parsed)


def _counts_one_choice(body: Mapping[str, Any]) -> bool:
    """Return whether the reported usage covers only the first of several choices, as with llama.cpp."""
    generated = count_of(mapping_or_empty(body.get("timings")).get("predicted_n"))
    return generated == count_of(mapping_or_empty(body.get("usage")).get("completion_tokens"))


def completion_of(
    body: Mapping[str, Any], choice: Mapping[str, Any], *, seconds: float, from_cache: bool = False
) -> Completion:
    """Read one choice of a decoded body, which is a chat completion or a legacy completion."""
    message = choice.get("message")
    if not isinstance(message, dict):
        message = {"content": choice.get("text")}
    cost, reported = _cost_of_call(body, seconds)
    details = mapping_or_empty(body.get("usage")).get("completion_tokens_details")
    failed = body.get("error") or choice.get("error")  # some gateways report it beside the text so far
    return Completion(
        text=message_text(message),
        tokens=tokens_of(choice.get("logprobs")),
        cost=cost,
        finish_reason=_FAILED if failed else text_or_none(choice.get("finish_reason")),
        reasoning=text_or_none(message.get("reasoning_content")) or text_or_none(message.get("reasoning")),
        tool_arguments=_tool_arguments(message.get("tool_calls")),
        model=text_or_none(body.get("model")),
        completion_id=text_or_none(body.get("id")),
        system_fingerprint=text_or_none(body.get("system_fingerprint")),
        cached_tokens_reported=reported,
        from_cache=from_cache,
        token_ids=_token_ids(choice),
        reasoning_tokens=count_of(mapping_or_empty(details).get("reasoning_tokens")),
    )


def _token_ids(choice: Mapping[str, Any]) -> tuple[int, ...] | None:
    """Return the ids of the generated tokens, from vLLM's field or from llama.cpp's log-probabilities."""
    content = mapping_or_empty(choice.get("logprobs")).get("content")
    beside = [item.get("id") for item in content if isinstance(item, dict)] if isinstance(content, list) else None
    return ids_or_none(choice.get("token_ids")) or ids_or_none(beside)


def ids_or_none(value: Any) -> tuple[int, ...] | None:
    """Return a value if it is a non-empty list of whole numbers, else None."""
    is_list = isinstance(value, list) and all(isinstance(item, int) and not isinstance(item, bool) for item in value)
    return tuple(value) if is_list and value else None


def are_ids(asked: Asked) -> TypeIs[Sequence[int]]:
    """Return whether a prompt consists of token ids."""
    return not isinstance(asked, str) and len(asked) > 0 and isinstance(asked[0], int)


def _object_of_body(text: str, where: str, *, wants_logprobs: bool) -> dict[str, Any]:
    """Return the body as a JSON object; if the body is not a JSON object, raise an error that quotes it."""
    try:
        body = load_json(text)
    except ValueError:
        if text.lstrip().startswith("<"):
            raise ModelError(
                f"{where} answered with a web page instead of JSON: {shortened(text)!r}. "
                "Check base_url: it usually ends with /v1"
            ) from None
        raise bad_body(where, "invalid or incomplete JSON", text, retryable=True) from None
    if not isinstance(body, dict):
        raise bad_body(where, "JSON that is not an object", text, retryable=True)
    error = body.get("error")
    if error and "choices" not in body:
        # Some gateways report the failure of the server behind them with status 200.
        code = error.get("code") if isinstance(error, dict) else None
        status = code if isinstance(code, int) and not isinstance(code, bool) else _SERVER_ERROR
        detail = json.dumps(error, ensure_ascii=False)
        raise status_failure(where, status, detail, wants_logprobs=wants_logprobs, retry_after=None)
    return body


def content_text(content: Any) -> str:
    """Return the text of a message, which some endpoints send in parts; a refusal counts as text."""
    if isinstance(content, list):
        return "".join(_part_text(part) for part in content if isinstance(part, dict))
    return content if isinstance(content, str) else ""


def _part_text(part: Mapping[str, Any]) -> str:
    return next((part[name] for name in ("text", "refusal") if isinstance(part.get(name), str)), "")


def message_text(message: Mapping[str, Any]) -> str:
    """Return the text of an assistant's message: its content, or else its refusal."""
    return content_text(message.get("content")) or text_or_none(message.get("refusal")) or ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseOutput:
    """The content of a reply of OpenAI's responses interface.

    Attributes:
        tokens: Tokens with log-probabilities, if every part has them.
        calls: Name and arguments of each function that the reply calls.
        finish_reason: The reason why the reply was cut; if it was not cut, its status.
    """

    text: str
    tokens: tuple[Token, ...] | None
    calls: tuple[tuple[str, Any], ...]
    finish_reason: str | None


def response_output(body: Mapping[str, Any]) -> ResponseOutput:
    """Read the items in `output`, and the reason for the end of the reply."""
    output = body.get("output")
    items = [item for item in output if isinstance(item, dict)] if isinstance(output, list) else []
    contents = [item.get("content") for item in items if item.get("type", "message") == "message"]
    parts = [part for content in contents if isinstance(content, list) for part in content if isinstance(part, dict)]
    tokens = [tokens_of({"content": part.get("logprobs")}) for part in parts]
    return ResponseOutput(
        text="".join(map(_part_text, parts)),
        tokens=tuple(token for run in tokens for token in run or ()) if all(tokens) and tokens else None,
        calls=tuple(
            (str(item.get("name") or ""), item.get("arguments"))
            for item in items
            if item.get("type") == "function_call"
        ),
        finish_reason=text_or_none(mapping_or_empty(body.get("incomplete_details")).get("reason"))
        or text_or_none(body.get("status")),
    )


def text_or_none(value: Any) -> str | None:
    """Return a value if it is non-empty text, else None."""
    return value if isinstance(value, str) and value else None


def _tool_arguments(calls: Any) -> str | None:
    """Return the arguments of the first tool call, as JSON text."""
    call = calls[0] if isinstance(calls, list) and calls else None
    function = call.get("function") if isinstance(call, dict) else None
    return text_or_none(function.get("arguments")) if isinstance(function, dict) else None


def count_of(value: Any) -> float:
    """Return a value if it is a finite number >= 0, else NaN."""
    count = _number_or(value, math.nan)
    return count if 0 <= count < math.inf else math.nan


def mapping_or_empty(value: Any) -> Mapping[str, Any]:
    """Return a value if it is a mapping, else an empty mapping."""
    return value if isinstance(value, dict) else {}


def _cost_of_call(body: Mapping[str, Any], seconds: float) -> tuple[Cost, bool]:
    """Return the cost of a call, and whether cached tokens were reported.

    Without a report the whole prompt counts as uncached, an upper bound of the tokens processed and billed.
    """
    usage, timings = mapping_or_empty(body.get("usage")), mapping_or_empty(body.get("timings"))
    details = mapping_or_empty(usage.get("prompt_tokens_details"))
    prompt, cached = count_of(usage.get("prompt_tokens")), count_of(details.get("cached_tokens"))
    if math.isnan(cached):
        cached = count_of(timings.get("cache_n"))
    if math.isnan(cached):
        # llama.cpp's native field; in some versions it counts all tokens of the slot, which is useless here.
        cached = count_of(body.get("tokens_cached"))
        cached = cached if cached < prompt else math.nan
    reported = not math.isnan(cached)
    known = min(cached, prompt) if reported else 0.0
    return Cost(
        calls=1.0,
        uncached_tokens=prompt - known,
        cached_tokens=known if not math.isnan(prompt) else math.nan,
        output_tokens=count_of(usage.get("completion_tokens")),
        seconds=seconds,
        **_written(usage, details),
    ), reported


def _written(usage: Mapping[str, Any], details: Mapping[str, Any]) -> dict[str, float]:
    """Return the tokens of the prompt that were written to a cache, as counted by gateways to Anthropic's models."""
    apiece = mapping_or_empty(details.get("cache_creation_token_details"))
    given = (usage.get("cache_creation_input_tokens"), details.get("cache_write_tokens"))
    known = [count_of(value) for value in (*given, apiece.get("ephemeral_1h_input_tokens"))]
    *every, hour = (0.0 if math.isnan(number) else number for number in known)
    return {"written_tokens": max(0.0, max(every) - hour), "written_1h_tokens": hour}


def tokens_of(logprobs: Any) -> tuple[Token, ...] | None:
    """Read the tokens from either form of `logprobs`, chat or legacy; return None if it has no tokens."""
    fields = mapping_or_empty(logprobs)
    if isinstance(fields.get("content"), list):
        tokens = [_chat_token(item) for item in fields["content"] if isinstance(item, dict)]
    elif isinstance(fields.get("tokens"), list):
        tokens = _legacy_tokens(fields)
    else:
        tokens = []
    return tuple(tokens) or None


def _chat_token(item: Mapping[str, Any]) -> Token:
    raw = item.get("bytes")
    top = item.get("top_logprobs")
    alternatives = [other for other in top if isinstance(other, dict)] if isinstance(top, list) else []
    return Token(
        text=str(item.get("token", "")),
        logprob=_number_or(item.get("logprob"), math.nan),
        alternatives=tuple((str(o.get("token", "")), _number_or(o.get("logprob"), -math.inf)) for o in alternatives),
        raw=bytes(raw) if isinstance(raw, list) and all(isinstance(b, int) and 0 <= b < 256 for b in raw) else None,  # noqa: PLR2004
    )


def _legacy_tokens(fields: Mapping[str, Any]) -> list[Token]:
    texts = fields["tokens"]
    values = fields.get("token_logprobs")
    tops = fields.get("top_logprobs")
    values = values if isinstance(values, list) else []
    tops = tops if isinstance(tops, list) else []
    tokens = []
    for i, text in enumerate(texts):
        top = mapping_or_empty(tops[i]) if i < len(tops) else {}
        tokens.append(
            Token(
                text=str(text),
                logprob=_number_or(values[i] if i < len(values) else None, math.nan),
                alternatives=tuple((str(other), _number_or(value, -math.inf)) for other, value in top.items()),
            )
        )
    return tokens


def _number_or(value: Any, missing: float) -> float:
    """Return a number as float; anything else, such as the null by which JSON replaces -inf, becomes `missing`."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return missing
    try:
        return float(value)
    except OverflowError:  # an integer may have hundreds of digits
        return missing
