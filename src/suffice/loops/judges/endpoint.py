"""Ask a judge for JSON; replies are stored before they are parsed, so that no request is paid for twice."""

from __future__ import annotations

import asyncio
import json
import math
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from suffice.common.results import jsonable
from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.loops.models import ChatModel, Completion
from suffice.loops.models._calls import Cache
from suffice.loops.models.prompts import Message, reminded
from suffice.policy.rounds import Cost
from suffice.policy.signals import strip_thinking

ATTEMPTS = 3
"""Largest number of attempts to get a readable reply from a judge."""

REMINDER = "Reply with the JSON object alone."
"""End of the prompt in further attempts, because at temperature 0 the same prompt gives the same reply."""

_JudgeValue = TypeVar("_JudgeValue")

_FENCE = re.compile(r"```(?:json)?\s*\n(?P<inside>[^`]*)\n\s*```", re.IGNORECASE)


class UnreadableError(ValueError):
    """Raised if a judge's reply cannot be parsed; the message becomes the note of the undefined mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeReply:
    """A stored reply of a judge.

    Attributes:
        cost: Cost of the call; a reply from the cache has the cost of the original call.
    """

    text: str
    finish_reason: str | None
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeOutcome(Generic[_JudgeValue]):
    """The outcome of one request over all its attempts.

    Attributes:
        value: The value of the first readable reply; None if no reply could be read.
        note: The reason why the last attempt could not be read; empty if there is a value.
        cost: Cost of all attempts; a reply from the cache has the cost of the original call.
    """

    value: _JudgeValue | None
    note: str
    cost: Cost
    attempts: int
    from_cache: bool


class JudgeModel:
    """A chat model that replies with JSON; replies are stored, so that no request is paid for twice.

    The cache stores the raw reply before it is parsed, so that paid replies are never lost, even unreadable ones.  The
    request uses the structured output of the endpoint (`response_format` with a JSON schema).  If the endpoint refuses
    structured output with an error, this and all later requests are sent without structured output.  Replies are always
    checked: if an endpoint ignores the schema, the mark is undefined, never guessed.  After an unreadable reply the judge
    is asked again with a reminder of the format; every attempt is paid for and stored.

    Args:
        model: The model; its prompt, `max_tokens`, `top_logprobs` and cache are not used.
        cache: Stores the replies; None sends every request.
        max_tokens: Longest reply in tokens.
        attempts: Largest number of requests until a reply can be read.
        retry_unreadable: Repeat the attempts if all stored replies are unreadable.

    Raises:
        DataError: `attempts` is below 1.

    Attributes:
        structured: Whether structured output is requested.
    """

    def __init__(
        self,
        model: ChatModel,
        *,
        cache: Cache | None = None,
        max_tokens: int = 2048,
        attempts: int = ATTEMPTS,
        retry_unreadable: bool = False,
    ) -> None:
        if attempts < 1:
            raise DataError(f"attempts is {attempts!r}; allowed: 1 or more")
        self.model, self.cache, self.max_tokens = model, cache, max_tokens
        self.attempts, self.retry_unreadable = attempts, retry_unreadable
        self.structured = model.api == "chat"

    def __repr__(self) -> str:
        return f"JudgeModel({self.model!r}, cache={self.cache!r})"

    def fingerprint(self) -> dict[str, Any]:
        """All settings of the model that affect its replies, JSON-ready and without secrets."""
        return {**self.model.pin(), "max_tokens": self.max_tokens}

    async def ask(
        self,
        inputs: Mapping[str, Any],
        messages: Sequence[Message],
        name: str,
        schema: Mapping[str, Any],
        read: Callable[[JudgeReply], _JudgeValue],
    ) -> JudgeOutcome[_JudgeValue]:
        """Return the value of the reply to `inputs`, from the cache if the same request was made before.

        Args:
            inputs: The JSON-ready content of the messages, part of the key of the cache.
            messages: The messages to send.
            name: Name of the schema.
            schema: The JSON schema of the reply.
            read: Parses a reply; raises `UnreadableError` if it is invalid.

        Raises:
            ModelError: The endpoint failed; earlier replies are stored.
        """
        cost, fresh, attempt, note = Cost(), 0, 0, ""
        while True:
            key = {"judge": self.fingerprint(), **inputs, **({"attempt": attempt} if attempt else {})}
            reply = self._stored(key)
            if reply is None:
                if attempt >= self.attempts and not (self.retry_unreadable and fresh < self.attempts):
                    return JudgeOutcome(value=None, note=note, cost=cost, attempts=attempt, from_cache=not fresh)
                reply = await self._request(key, reminded(messages, REMINDER) if attempt else messages, name, schema)
                fresh += 1
            cost, attempt = cost + reply.cost, attempt + 1
            try:
                return JudgeOutcome(value=read(reply), note="", cost=cost, attempts=attempt, from_cache=not fresh)
            except UnreadableError as unread:
                note = str(unread)

    def _stored(self, key: Mapping[str, Any]) -> JudgeReply | None:
        stored = None if self.cache is None else self.cache.get(key)
        if stored is None:
            return None
        cost = Cost(**{kind: math.nan if value is None else value for kind, value in stored["cost"].items()})
        return JudgeReply(**{**stored, "cost": cost})

    async def _request(
        self, key: Mapping[str, Any], messages: Sequence[Message], name: str, schema: Mapping[str, Any]
    ) -> JudgeReply:
        """Request a reply and store it before it is parsed."""
        completion = await self._send(messages, name, schema)
        reply = JudgeReply(text=completion.text, finish_reason=completion.finish_reason, cost=completion.cost)
        if self.cache is not None:
            self.cache.put(key, jsonable(asdict(reply)))
        return reply

    async def _send(self, messages: Sequence[Message], name: str, schema: Mapping[str, Any]) -> Completion:
        if not self.structured:
            return await self._complete(messages, {})
        response_format = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": dict(schema)}}
        try:
            return await self._complete(messages, {"response_format": response_format})
        except AuthenticationFailedError:
            raise
        except ModelError as error:
            if error.retryable:
                raise
        reply = await self._complete(messages, {})
        self.structured = False  # the request without a schema succeeded, so the endpoint does refuse schemas
        return reply

    async def _complete(self, messages: Sequence[Message], more: Mapping[str, Any]) -> Completion:
        return await self.model.complete_async(
            messages,
            use_cache=False,
            max_tokens=self.max_tokens,
            top_logprobs=None,
            extra_body={**more, **self.model.fingerprint()["extra_body"]},
        )


def read_object(reply: JudgeReply) -> dict[str, Any]:
    """Parse a reply that consists of one JSON object.

    A thinking block before the object is skipped, and a Markdown code fence around the object is allowed.

    >>> read_object(JudgeReply(text='{"mark": 3}', finish_reason="stop", cost=Cost()))
    {'mark': 3}

    Raises:
        UnreadableError: The reply is prose, cut off, empty, or repeats a field.
    """
    text = strip_thinking(reply.text)[1].strip()
    if not text:
        raise UnreadableError("the judge's reply is empty (a refusal, or all tokens went into thinking)")
    fences = _FENCE.findall(text)
    if len(fences) == 1:
        text = fences[0]
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_reject_constant)
    except UnreadableError:
        raise
    except (ValueError, RecursionError):
        why = "was cut off at max_tokens" if reply.finish_reason == "length" else "is not JSON"
        raise UnreadableError(f"the judge's reply {why}: {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise UnreadableError(f"the judge's reply is JSON, but not an object: {text[:80]!r}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        raise UnreadableError("the judge's reply repeats a field")
    return fields


def _reject_constant(constant: str) -> float:
    raise UnreadableError(f"the judge's reply contains {constant}, which is not JSON")


_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


@dataclass(slots=True)
class Replies(Generic[_K, _V]):
    """The outcome of requests: replies and failures by key.

    Attributes:
        retryable: Messages of failed calls that may succeed later.
        refused: Errors of calls that cannot succeed, by key.
    """

    answers: dict[_K, _V] = field(default_factory=dict)
    retryable: list[str] = field(default_factory=list)
    refused: dict[_K, ModelError] = field(default_factory=dict)


async def ask_each(
    requests: Mapping[_K, Callable[[], Awaitable[_V]]],
    *,
    concurrency: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Replies[_K, _V]:
    """Make every request once.

    Raises:
        ModelError: The endpoint refused the credentials.
    """
    replies: Replies[_K, _V] = Replies()
    in_flight = asyncio.Semaphore(concurrency)

    async def ask(key: _K, request: Callable[[], Awaitable[_V]]) -> None:
        async with in_flight:
            try:
                replies.answers[key] = await request()
            except AuthenticationFailedError:
                raise
            except ModelError as error:
                if error.retryable:
                    replies.retryable.append(str(error))
                else:
                    replies.refused[key] = error
        if on_progress is not None:
            done = len(replies.answers) + len(replies.retryable) + len(replies.refused)
            on_progress(done, len(requests))

    try:
        async with asyncio.TaskGroup() as group:
            for key, request in requests.items():
                group.create_task(ask(key, request))
    except ExceptionGroup as raised:
        raise raised.exceptions[0] from None
    return replies
