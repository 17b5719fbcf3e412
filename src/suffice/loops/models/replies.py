"""Read replies that a user's own client (OpenAI, Anthropic or LiteLLM) returned, and plain texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from suffice.errors import DataError
from suffice.loops.models._wire import (
    Completion,
    completion_of,
    content_text,
    count_of,
    mapping_or_empty,
    response_output,
    text_or_none,
)
from suffice.loops.models.prompted import reply_of
from suffice.policy.rounds import Cost, Provider, Reply
from suffice.policy.signals.position import AnswerPosition

_ASSISTANT = frozenset({"assistant", "ai", "model"})
"""Names of the model's role in several interfaces; a message of another role is not a reply."""

_ACCEPTED = (
    "accepted are a chat completion, a completion or a response of OpenAI's interface, a message of Anthropic's, what "
    "LiteLLM returns, each as an object or as its JSON in a dict, a message of the assistant with its content, and plain text"
)


def reply_of_response(
    response: Any,
    *,
    position: AnswerPosition | None = None,
    seconds: float = math.nan,
    provider: Provider | None = None,
) -> Reply:
    """Read a response: its answer with tokens, costs and finish reason.

    >>> reply_of_response({"choices": [{"message": {"content": "Oslo"}, "finish_reason": "stop"}]}).answer
    'Oslo'

    Args:
        response: A client's object (with `model_dump`), its content as a dict, or a text.  A reply that only calls
            tools, or that was cut (`length`, `content_filter`, an error beside the text), has no answer.
        position: The position of the answer; None = the whole text.
        seconds: Duration of the call, seconds; NaN if unknown.
        provider: The provider whose interface the response must have; None = any known one.

    Raises:
        DataError: The response has an unknown form, reports a failure, or has several choices.
    """
    position = AnswerPosition("whole") if position is None else position
    if not isinstance(position, AnswerPosition):
        raise DataError(
            f"the position of an answer is an AnswerPosition, such as AnswerPosition('whole'), not {position!r}"
        )
    if isinstance(response, str) and provider is None:
        return reply_of(response, None, _one_call(seconds), position)
    body = _as_dict(response)
    read = _reader(body, provider)
    if read is None:
        expected = "" if provider is None else f" of {provider.capitalize()}'s interface"
        shape = f"a dict with the keys {sorted(body)[:8]!r}" if body else f"of type {type(response).__name__}"
        raise DataError(f"the response is {shape}, not a reply{expected}: {_ACCEPTED}")
    completion = read(body, seconds)
    text = completion.text_for(position)
    return reply_of(text, completion.tokens, completion.cost, position, **completion.origin)


def _as_dict(response: Any) -> dict[str, Any]:
    """Return the fields of an object or a mapping; an empty dict for anything else."""
    dump = getattr(response, "model_dump", None)
    if callable(dump) and not isinstance(response, type):
        try:
            response = dump(warnings=False)
        except TypeError:  # an object of another library
            response = dump()
    return {str(key): value for key, value in response.items()} if isinstance(response, Mapping) else {}


def _reader(
    body: Mapping[str, Any], provider: Provider | None
) -> Callable[[Mapping[str, Any], float], Completion] | None:
    """Return the function that reads a response body, chosen by the body's form; None if the form is unknown."""
    if provider != "anthropic":
        if "choices" in body:
            return _chosen
        if isinstance(body.get("output"), list):
            return _response
    if provider != "openai" and body.get("type") == "message" and isinstance(body.get("content"), list):
        return _anthropic_message
    if provider is None and body.get("role") in _ASSISTANT and "content" in body:
        return lambda message, seconds: completion_of({}, {"message": dict(message)}, seconds=seconds)
    return None


def _chosen(body: Mapping[str, Any], seconds: float) -> Completion:
    """Read a chat completion or a legacy completion."""
    choices = body["choices"]
    choice = choices[0] if isinstance(choices, list) and choices else None
    if not isinstance(choice, dict) or not ("message" in choice or "text" in choice):
        raise DataError(
            f"the response has no reply in its choices: {str(choices)[:200]!r}. Collect a stream first, and give its text"
        )
    if len(choices) > 1:
        raise DataError(
            f"the response has {len(choices)} choices, and a round has one answer: request one (n=1), or give the text of "
            "each as a round of its own"
        )
    return completion_of(body, choice, seconds=seconds)


def _response(body: Mapping[str, Any], seconds: float) -> Completion:
    """Read a response of OpenAI's responses interface."""
    if body.get("error"):
        raise DataError(f"the response reports a failure: {str(body['error'])[:200]!r}")
    output = response_output(body)
    arguments = next((given for _, given in output.calls if isinstance(given, str)), None)
    return Completion(
        text=output.text,
        tokens=output.tokens,
        cost=_reply_cost(body, seconds, cached_in=("input_tokens_details", "cached_tokens")),
        finish_reason=output.finish_reason,
        tool_arguments=arguments,
        model=text_or_none(body.get("model")),
    )


def _anthropic_message(body: Mapping[str, Any], seconds: float) -> Completion:
    blocks = [block for block in body["content"] if isinstance(block, dict)]
    calls = [block["input"] for block in blocks if block.get("type") == "tool_use" and "input" in block]
    return Completion(
        text=content_text([block for block in blocks if block.get("type") == "text"]),
        tokens=None,
        cost=_reply_cost(body, seconds, cached_in=None),
        finish_reason=body.get("stop_reason"),
        model=text_or_none(body.get("model")),
        tool_arguments=json.dumps(calls[0], default=str) if calls else None,
    )


def _reply_cost(body: Mapping[str, Any], seconds: float, *, cached_in: tuple[str, str] | None) -> Cost:
    """Return the cost from a usage that counts input and output tokens.

    Args:
        body: The body that contains the usage.
        seconds: Duration of the call, seconds.
        cached_in: The place of the number of cached tokens in the usage, as object and field; the usage's input tokens
            include the cached ones.  None = Anthropic's usage, whose input tokens include neither tokens read from the
            cache nor tokens written to it.
    """
    usage = mapping_or_empty(body.get("usage"))
    given = count_of(usage.get("input_tokens"))
    if cached_in is None:
        cached, written = (_known(usage.get(f"cache_{name}_input_tokens")) for name in ("read", "creation"))
        hour = _known(mapping_or_empty(usage.get("cache_creation")).get("ephemeral_1h_input_tokens"))
        uncached, written = given + written, written - hour
    else:
        details, hour = mapping_or_empty(usage.get(cached_in[0])), 0.0
        cached, written = min(_known(details.get(cached_in[1])), given), _known(details.get("cache_write_tokens"))
        uncached = given - cached
    return Cost(
        calls=1.0,
        uncached_tokens=uncached,
        cached_tokens=math.nan if math.isnan(given) else cached,
        output_tokens=count_of(usage.get("output_tokens")),
        seconds=seconds,
        written_tokens=written,
        written_1h_tokens=hour,
    )


def _known(value: Any) -> float:
    """Return a count of cached tokens; 0 if the usage has no such count.

    With a count of 0, the whole input counts as uncached, which is an upper bound of the cost.
    """
    count = count_of(value)
    return 0.0 if math.isnan(count) else count


def _one_call(seconds: float) -> Cost:
    """Return the cost of a plain text: one call whose tokens are unknown."""
    return Cost(calls=1.0, uncached_tokens=math.nan, cached_tokens=math.nan, output_tokens=math.nan, seconds=seconds)
