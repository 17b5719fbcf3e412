"""Asking a judge for JSON, and paying once: structured output with a fall-back, replies kept before they are read."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Generic, TypeVar

from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.llm import ChatModel, Completion
from suffice.llm.chat import Cache
from suffice.rounds import Cost
from suffice.signals import strip_thinking

__all__ = ["ASKED_WITH", "ATTEMPTS", "Heard", "JudgeModel", "Said", "UnreadableError", "read_object"]

ATTEMPTS = 3
"""How often a judge is asked, at most, for a reply that can be read."""

REMINDER = "Reply with the JSON object alone."
"""What ends the prompt of a further attempt: at temperature 0 the same prompt would give the same reply."""

T = TypeVar("T")

ASKED_WITH = ("kind", "endpoint", "api", "model", "temperature", "seed", "extra_body")
_FENCE = re.compile(r"```(?:json)?\s*\n(?P<inside>[^`]*)\n\s*```", re.IGNORECASE)


class UnreadableError(ValueError):
    """A judge's reply is not what was asked for; its message is the note beside the undefined mark."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """What a judge replied, as it is kept.

    Attributes:
        text: The reply.
        finish_reason: As the endpoint gives it.
        cost: What the call spent; from the cache: what it spent originally.
    """

    text: str
    finish_reason: str | None
    cost: Cost


@dataclass(frozen=True, slots=True, kw_only=True)
class Heard(Generic[T]):
    """What became of one request, over all its attempts.

    Attributes:
        value: What was read out of the first reply that could be read; None if none could.
        note: Why none could be read: of the last attempt; empty otherwise.
        cost: What all attempts spent; from the cache: what they spent originally.
        attempts: Replies, count.
        from_cache: Whether the cache answered all of them.
    """

    value: T | None
    note: str
    cost: Cost
    attempts: int
    from_cache: bool


class JudgeModel:
    """A chat model that replies with JSON, each request answered once, ever.

    The reply itself is kept, not the mark read from it, and before it is read: what was paid for is never lost, also
    where it is prose.  The structured output of the endpoint (`response_format` with a JSON schema) is asked for; an
    endpoint that refuses it with an error is asked again without, and from then on without.  Either way the reply is
    read without trust: an endpoint that ignores the schema gives an undefined mark, never a guessed one.  A reply that
    cannot be read is asked for again, with a reminder of what is wanted; every attempt is paid for, and kept.

    Args:
        model: Its own prompt, `max_tokens`, `top_logprobs` and cache are not used.
        cache: Keeps the replies; None asks each time.
        max_tokens: Most tokens of a reply.
        attempts: Most replies that are asked for, until one can be read.
        retry_unreadable: Ask as often again where all replies that are kept cannot be read.

    Raises:
        DataError: There is not at least one attempt.

    Attributes:
        structured: Whether structured output is asked for.
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
            raise DataError(f"a judge is asked at least once; got attempts={attempts!r}")
        self.model, self.cache, self.max_tokens = model, cache, max_tokens
        self.attempts, self.retry_unreadable = attempts, retry_unreadable
        self.structured = model.api == "chat"

    def __repr__(self) -> str:
        return f"JudgeModel({self.model!r}, cache={self.cache!r})"

    def fingerprint(self) -> dict[str, Any]:
        """Everything of the model that changes its replies, JSON-ready and without secrets."""
        described = self.model.fingerprint()
        return {**{name: described[name] for name in ASKED_WITH}, "max_tokens": self.max_tokens}

    async def ask(
        self,
        given: Mapping[str, Any],
        messages: Sequence[Mapping[str, str]],
        name: str,
        schema: Mapping[str, Any],
        read: Callable[[Said], T],
    ) -> Heard[T]:
        """Return what is read out of the reply to `given`, from the cache if it was ever asked.

        Args:
            given: The key of the cache besides the model: all that the messages are made of, JSON-ready.
            messages: What is sent.
            name: What the schema is called.
            schema: The JSON schema of the reply.
            read: Reads a reply; raises `UnreadableError` if it is not what was asked for.

        Raises:
            ModelError: The endpoint failed; the replies before that are kept.
        """
        cost, fresh, attempt, note = Cost(), 0, 0, ""
        while True:
            key = {"judge": self.fingerprint(), **given, **({"attempt": attempt} if attempt else {})}
            said = self._kept(key)
            if said is None:
                if attempt >= self.attempts and not (self.retry_unreadable and fresh < self.attempts):
                    return Heard(value=None, note=note, cost=cost, attempts=attempt, from_cache=not fresh)
                said = await self._asked(key, _with_json_reminder(messages) if attempt else messages, name, schema)
                fresh += 1
            cost, attempt = cost + said.cost, attempt + 1
            try:
                return Heard(value=read(said), note="", cost=cost, attempts=attempt, from_cache=not fresh)
            except UnreadableError as unread:
                note = str(unread)

    def _kept(self, key: Mapping[str, Any]) -> Said | None:
        stored = None if self.cache is None else self.cache.get(key)
        return None if stored is None else Said(**{**stored, "cost": _cost_of_stored(stored["cost"])})

    async def _asked(
        self, key: Mapping[str, Any], messages: Sequence[Mapping[str, str]], name: str, schema: Mapping[str, Any]
    ) -> Said:
        """Return a fresh reply; it is kept before anything is read out of it."""
        reply = await self._send(messages, name, schema)
        said = Said(text=reply.text, finish_reason=reply.finish_reason, cost=reply.cost)
        if self.cache is not None:
            kept = {kind: None if value != value else value for kind, value in asdict(said.cost).items()}  # noqa: PLR0124
            self.cache.put(key, {"text": said.text, "finish_reason": said.finish_reason, "cost": kept})
        return said

    async def _send(self, messages: Sequence[Mapping[str, str]], name: str, schema: Mapping[str, Any]) -> Completion:
        if not self.structured:
            return await self._complete(messages, {})
        wanted = {"type": "json_schema", "json_schema": {"name": name, "strict": True, "schema": dict(schema)}}
        try:
            return await self._complete(messages, {"response_format": wanted})
        except AuthenticationFailedError:
            raise
        except ModelError as error:
            if error.retryable:
                raise
        reply = await self._complete(messages, {})
        self.structured = False  # only now is it known that the schema was what the endpoint refused
        return reply

    async def _complete(self, messages: Sequence[Mapping[str, str]], more: Mapping[str, Any]) -> Completion:
        return await self.model.complete_async(
            messages,
            use_cache=False,
            max_tokens=self.max_tokens,
            top_logprobs=None,
            extra_body={**more, **self.model.fingerprint()["extra_body"]},
        )


def _with_json_reminder(messages: Sequence[Mapping[str, str]]) -> list[Mapping[str, str]]:
    """Return the messages with the reminder at their end, so that a prefix cache still pays for the rest."""
    *before, last = messages
    return [*before, {**last, "content": f"{last['content']}\n\n{REMINDER}"}]


def _cost_of_stored(kept: Mapping[str, float | None]) -> Cost:
    return Cost(**{kind: float("nan") if value is None else value for kind, value in kept.items()})


def read_object(said: Said) -> dict[str, Any]:
    """Return the one JSON object that a reply is, behind any thinking block; a single fenced block counts, too.

    >>> read_object(Said(text='{"mark": 3}', finish_reason="stop", cost=Cost()))
    {'mark': 3}

    Raises:
        UnreadableError: The reply is prose, cut off, empty, or says a field twice.
    """
    text = strip_thinking(said.text)[1].strip()
    if not text:
        raise UnreadableError("the judge replied nothing (a refusal, or all tokens went into thinking)")
    fences = _FENCE.findall(text)
    if len(fences) == 1:
        text = fences[0]
    try:
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=_refuse)
    except UnreadableError:
        raise
    except (ValueError, RecursionError):
        why = "was cut off at max_tokens" if said.finish_reason == "length" else "is not JSON"
        raise UnreadableError(f"the judge's reply {why}: {text[:80]!r}") from None
    if not isinstance(value, dict):
        raise UnreadableError(f"the judge's reply is JSON, but no object: {text[:80]!r}")
    return value


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise UnreadableError("the judge's reply says a field twice")
    return found


def _refuse(constant: str) -> float:
    raise UnreadableError(f"the judge's reply holds {constant}, which is not JSON")
