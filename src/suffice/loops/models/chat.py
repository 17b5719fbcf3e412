"""Any OpenAI-compatible endpoint as a model: chat completions and legacy completions, sync and async."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, get_args

from suffice.common.blocking import finished
from suffice.errors import DataError, LogprobsUnavailableError, ModelError
from suffice.loops.models._calls import Cache, CacheableCall, ChatStats
from suffice.loops.models._clients import MAX_REPLY_BYTES, connect
from suffice.loops.models._endpoints import EndpointCall, affinity_of
from suffice.loops.models._wire import (
    Api,
    Asked,
    Completion,
    checked_settings,
    count_of,
    expected_tokens,
    is_processed,
    parse,
    request_body,
)
from suffice.loops.models.batches import BATCHES, BatchReplies, BatchRequest
from suffice.loops.models.limits import RequestLimits
from suffice.loops.models.prompted import MIN_ALTERNATIVES, PromptedModel
from suffice.loops.models.prompts import ANSWER_FIRST, Prompt
from suffice.loops.models.streaming import ended_text
from suffice.loops.models.token_ids import EndpointTokenizer, are_exchanged
from suffice.policy.rounds import Passage, Reply
from suffice.policy.signals.margins import LOGPROB_NEEDS
from suffice.policy.signals.position import AnswerPosition

_WITHOUT_LOGPROBS = "use another endpoint, or turn them off (--set logprobs=false, top_logprobs=None), which leaves answer_margin undefined"
_PINNED_FIELDS = ("kind", "endpoint", "api", "model", "temperature", "seed", "extra_body")


class ChatModel(PromptedModel):
    """A model behind an OpenAI-compatible endpoint.

    The `openai` client retries timeouts, dropped connections, 408, 409, 429 and 5xx up to `max_retries` times, after the
    seconds of `Retry-After` or an exponential wait.  It follows a `Retry-After` of up to one or two minutes, depending on
    its version.  A longer one ends the call with a retryable `ModelError` that contains the time; the caller then decides
    (a recording resumes when it is run again).

    The API key and the values of `default_headers` never appear in the fingerprint, in the cache, in messages or in
    logs.  Do not put secrets into `extra_body`: it is part of fingerprint and cache.

    Async calls use one client per event loop, closed with the loop or by `aclose`.

    Args:
        model: The model's name at the endpoint.
        base_url: The endpoint, usually ending with `/v1`; default: `OPENAI_BASE_URL`, then OpenAI's. Several endpoints of
            the same model may be given in a list or separated by commas: each request goes to the healthy endpoint with
            the fewest in flight, but requests about one question go to the same endpoint, to use its prefix cache.
        api_key: The key of all endpoints; None for `OPENAI_API_KEY`.  Local servers need no key: pass an empty text.
        prompt: Turns question and passages into messages.
        position: The position of the answer in a reply; default: after the marker `Answer:`, or at the start if the prompt is
            prefilled.
        api: `chat` or `completions`.
        max_tokens: Largest number of tokens to generate; None = not sent (some models need another field, see `extra_body`).
        temperature: Sampling temperature; None = not sent.
        top_logprobs: Number of alternatives per token to request; None requests no log-probabilities.
        seed: Sampling seed; None = not sent.
        timeout_s: Longest silence of the endpoint, seconds; counted anew for each retry.
        max_retries: Largest number of retries of one call.
        extra_body: Further fields of the request.
        default_headers: Further headers of every request; not part of the cache's key, and not sent along on a redirect
            to another host.
        total_s: Longest time from a request to the end of its reply, seconds; counted anew for each retry. None for
            ten times `timeout_s`.
        max_reply_bytes: Largest reply in bytes, after decompression; a longer one raises `ModelError`.
        cache: The response cache; None sends every request.
        limits: Limits on requests and tokens a minute, and on concurrent requests; models may share them.
        name: Name in reports; default: `model`.

    Raises:
        DataError: A parameter is out of range.
    """

    def __init__(
        self,
        model: str,
        *,
        base_url: str | Sequence[str] | None = None,
        api_key: str | None = None,
        prompt: Prompt = ANSWER_FIRST,
        position: AnswerPosition | None = None,
        api: Api = "chat",
        max_tokens: int | None = 64,
        temperature: float | None = 0.0,
        top_logprobs: int | None = 5,
        seed: int | None = None,
        timeout_s: float = 120.0,
        max_retries: int = 4,
        extra_body: Mapping[str, Any] | None = None,
        default_headers: Mapping[str, str] | None = None,
        total_s: float | None = None,
        max_reply_bytes: int = MAX_REPLY_BYTES,
        cache: Cache | None = None,
        limits: RequestLimits | None = None,
        name: str | None = None,
    ) -> None:
        if api not in get_args(Api):
            raise DataError(f"api must be one of {', '.join(get_args(Api))}, got {api!r}")
        super().__init__(prompt, position, top_logprobs)
        self.model, self.api, self.cache, self.name = model, api, cache, name or model
        self.timeout_s, self.max_retries = float(timeout_s), max_retries
        self.stats = ChatStats()
        self._settings = checked_settings(
            {
                "max_tokens": max_tokens,
                "temperature": temperature,
                "top_logprobs": top_logprobs,
                "seed": seed,
                "extra_body": dict(extra_body or {}),
            }
        )
        self._connection = connect(
            base_url,
            api_key,
            timeout_s=self.timeout_s,
            max_retries=max_retries,
            default_headers=default_headers,
            total_s=total_s,
            max_reply_bytes=max_reply_bytes,
            limits=limits,
        )
        self.endpoint, self._clients = self._connection.endpoint, self._connection.clients
        self._lock = threading.Lock()
        self.tokenizer = EndpointTokenizer(self._connection, model)

    def __repr__(self) -> str:
        return f"ChatModel({self.model!r}, base_url={self.endpoint!r}, prompt={self.prompt.prompt_id!r})"

    @property
    def refused(self) -> int:
        """Number of requests, retries included, that the endpoint refused with status 429 (rate limit)."""
        return self._connection.endpoints.refused

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect the replies, JSON-ready and without keys, headers or other secrets."""
        return {
            "kind": "chat",
            "endpoint": self.endpoint,
            "api": self.api,
            "model": self.model,
            **self._reading_pin(),
            **self._settings,
        }

    def pin(self) -> dict[str, Any]:
        """Return the part of the fingerprint that also applies to requests with another prompt, such as a judge's."""
        fingerprint = self.fingerprint()
        return {name: fingerprint[name] for name in _PINNED_FIELDS}

    def answer(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Answer a question; see `Answerer.answer`.

        A reply from the response cache has the costs of the original call; `stats` counts calls and cache hits.
        """
        return self.read(self.complete(self.prompt.messages(question, passages)))

    async def answer_async(self, question: str, passages: Sequence[Passage] = ()) -> Reply:
        """Like `answer`, without blocking the event loop; cancelling the task cancels the request."""
        return self.read(await self.complete_async(self.prompt.messages(question, passages)))

    @cached_property
    def takes_token_ids(self) -> bool:
        """True if the endpoint takes and returns token ids, which two short requests test on first use."""
        return are_exchanged(self)

    def tokenize(self, text: str, *, begins: bool = False) -> tuple[int, ...]:
        """Return the token ids of a text from the endpoint's tokenizer (`/tokenize` of llama.cpp and vLLM).

        Args:
            text: The text.
            begins: True if a prompt begins with the text, so that the server adds its beginning-of-sequence token, if any.

        Raises:
            ModelError: The endpoint failed, or has no tokenizer.
        """
        return finished(self.tokenizer.ids(text, begins=begins, blocking=True))

    def complete(self, messages: Asked, *, use_cache: bool = True, sample: int = 0, **overrides: Any) -> Completion:
        """Send messages or one text and return the unparsed reply, for judges, drafts and probes.

        Args:
            messages: Chat messages, or the text of one user message; the legacy interface sends them as one text, and also takes token ids.
            use_cache: Whether the response cache may be read and may store the reply.
            sample: Number of this reply, from 0, if the same request is sent several times; each reply is cached on its own.
            **overrides: `max_tokens`, `temperature`, `top_logprobs`, `seed` or `extra_body` for this call only.

        Raises:
            DataError: An override is unknown or out of range.
            ModelError: The endpoint failed; `retryable` is true if trying again may help.
        """
        return finished(self._complete(messages, overrides, use_cache=use_cache, sample=sample, blocking=True))[0]

    async def complete_async(
        self, messages: Asked, *, use_cache: bool = True, sample: int = 0, **overrides: Any
    ) -> Completion:
        """Like `complete`, without blocking the event loop; cancelling the task cancels the request."""
        awaited = self._complete(messages, overrides, use_cache=use_cache, sample=sample, blocking=False)
        return (await awaited)[0]

    async def stream_async(
        self, messages: Asked, chunks: list[Mapping[str, Any]], leaves: Callable[[], None], **overrides: Any
    ) -> Completion:
        """Send one text as in `complete`, and append each chunk of the reply to `chunks` as it arrives.

        `leaves` is called just before the request is sent, and before each retry.  Cancelling the task cancels the
        request.  The response cache is not used.
        """
        call = self._call(messages, overrides, use_cache=False, sample=0, n=1)
        self._count(requests_sent=1)

        async def receive(client: Any) -> None:
            async with await client.completions.create(stream=True, **call.arguments()) as stream:
                async for chunk in stream:
                    chunks.append(chunk.to_dict(mode="json"))  # noqa: PERF401 - each as it arrives

        sent = EndpointCall(affinity=affinity_of(messages), tokens=expected_tokens(call.body), leaves=leaves)
        try:
            _, seconds = await self._connection.request(
                receive, sent, blocking=False, wants_logprobs=call.wants_logprobs
            )
            text = self._connection.redact_reply(ended_text(chunks, sent.endpoint))
            (completion,) = self._parse(call, text, seconds)
        except ModelError:
            self._count(failures=1)
            raise
        self._settle(sent, (completion,))
        return completion

    def complete_several(
        self,
        messages: Asked,
        n: int,
        *,
        use_cache: bool = True,
        sample: int = 0,
        **overrides: Any,
    ) -> tuple[Completion, ...]:
        """Send one request for `n` replies (the field `n`), and return those that arrived.

        The endpoint reports the tokens of all replies together, so each reply is charged an equal share of the call and
        of the tokens.  Each reply has the seconds of the whole call.

        Args:
            messages: As in `complete`.
            n: Number of replies to request.  An endpoint that does not know the field returns one, or fails.
            use_cache: Whether the response cache may be read and may store the replies.
            sample: Number of the first of these replies, from 0; see `complete`.
            **overrides: As in `complete`.

        Raises:
            DataError: An override is unknown or out of range.
            ModelError: The endpoint failed.
        """
        return finished(self._complete(messages, overrides, use_cache=use_cache, sample=sample, n=n, blocking=True))

    async def complete_several_async(
        self,
        messages: Asked,
        n: int,
        *,
        use_cache: bool = True,
        sample: int = 0,
        **overrides: Any,
    ) -> tuple[Completion, ...]:
        """Like `complete_several`, without blocking the event loop; cancelling the task cancels the request."""
        return await self._complete(messages, overrides, use_cache=use_cache, sample=sample, n=n, blocking=False)

    async def _complete(
        self,
        messages: Asked,
        overrides: Mapping[str, Any],
        *,
        use_cache: bool,
        sample: int,
        n: int = 1,
        blocking: bool,
        is_batchable: bool = True,
    ) -> tuple[Completion, ...]:
        """Answer from the cache, the batches of the running recording, or the endpoint; if `blocking`, never suspend."""
        call = self._call(messages, overrides, use_cache=use_cache, sample=sample, n=n)
        stored = self._lookup(call)
        if stored is not None:
            return stored
        if is_batchable and (batches := BATCHES.get()) is not None:
            return self._from_batch(batches, call)
        self._count(requests_sent=1)
        sent = EndpointCall(affinity=affinity_of(messages), tokens=expected_tokens(call.body))
        try:
            reply, seconds = await self._connection.request(
                lambda client: (
                    client.chat.completions if self.api == "chat" else client.completions
                ).with_raw_response.create(**call.arguments()),
                sent,
                blocking=blocking,
                wants_logprobs=call.wants_logprobs,
            )
            self._count(retries=reply.retries_taken)
            text = self._connection.text_of(reply)
            completions = self._parse(call, text, seconds)
        except ModelError:
            self._count(failures=1)
            raise
        if call.cache is not None:
            call.cache.put(call.requests[0], {"body": text, "seconds": seconds})
        self._settle(sent, completions)
        return completions

    def _from_batch(self, batches: BatchReplies, call: CacheableCall) -> tuple[Completion, ...]:
        """Return the replies that a batch contained; their duration is unknown."""
        url = "/v1/chat/completions" if self.api == "chat" else "/v1/completions"
        request = BatchRequest(request=call.requests[0], url=url, body=call.body, connection=self._connection)
        text = batches.reply(request)
        completions = self._parse(call, text, math.nan)
        self._note(self._connection.endpoints.urls[0], completions[0])
        self._count(requests_sent=1)
        if call.wants_logprobs and self.capabilities >= LOGPROB_NEEDS:
            for completion in filter(
                lambda item: item.text, completions
            ):  # the batch may have run on another engine than the endpoint
                self._require_logprobs(completion)
        if call.cache is not None:
            call.cache.put(call.requests[0], {"body": text, "seconds": None})
        return completions

    def _settle(self, sent: EndpointCall, completions: Sequence[Completion]) -> None:
        self._note(sent.endpoint, completions[0])
        self._connection.endpoints.limits.settle(sent.tokens, sum(item.cost.tokens for item in completions))

    def _note(self, url: str, reply: Completion) -> None:
        self._connection.endpoints.note_reply(url, self.model, reply.model, reply.completion_id)

    def read(self, completion: Completion) -> Reply:
        """Parse a completion: its answer, the tokens of the answer, the stated confidence and the cost."""
        text = completion.text_for(self.position)
        return self._read(text, completion.tokens, completion.cost, **completion.origin)

    def verify(self, needs: frozenset[str]) -> None:
        """If log-probabilities are needed, check with one short request that they arrive; call this before a paid run.

        Raises:
            LogprobsUnavailableError: Log-probabilities are missing, lack two alternatives, or were computed after sampling.
            ModelError: The endpoint failed.
        """
        if not LOGPROB_NEEDS & needs:
            return
        if not self.capabilities >= LOGPROB_NEEDS:
            raise LogprobsUnavailableError(
                f"log-probabilities are needed, but top_logprobs is {self.top_logprobs!r}: set it to 2 or more"
            )
        asked = self._complete(
            "Reply with one word.",
            {"max_tokens": 4},
            use_cache=False,
            sample=0,
            blocking=True,
            is_batchable=False,
        )
        self._require_logprobs(finished(asked)[0])

    def _require_logprobs(self, reply: Completion) -> None:
        """Raise if a reply lacks log-probabilities from which a margin can be computed."""
        if reply.tokens is None:
            raise LogprobsUnavailableError(
                f"{self.endpoint} returns no log-probabilities for {self.model!r}: {_WITHOUT_LOGPROBS}"
            )
        most = max(len(token.alternatives) for token in reply.tokens)
        if most < MIN_ALTERNATIVES:
            raise LogprobsUnavailableError(
                f"{self.endpoint} returns {most} alternatives, but two are needed: {_WITHOUT_LOGPROBS}"
            )
        if is_processed(reply):
            raise LogprobsUnavailableError(
                f"{self.endpoint} returns log-probabilities after sampling (0 for the chosen token, minus infinity for the "
                f"others): switch it to raw ones (vLLM: --logprobs-mode raw_logprobs), or {_WITHOUT_LOGPROBS}"
            )

    def close(self) -> None:
        """Close the connections of sync calls."""
        self._clients.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        await self._clients.aclose()

    def _call(
        self,
        messages: Asked,
        overrides: Mapping[str, Any],
        *,
        use_cache: bool,
        sample: int,
        n: int,
    ) -> CacheableCall:
        unknown = sorted(set(overrides) - set(self._settings))
        if unknown:
            known = ", ".join(self._settings)
            raise DataError(f"cannot override {unknown[0]!r}; allowed: {known}")
        settings = checked_settings({**self._settings, **overrides}) if overrides else self._settings
        for name, value, least in (("n", n, 1), ("sample", sample, 0)):
            if isinstance(value, bool) or not isinstance(value, int) or value < least:
                raise DataError(f"{name} must be a whole number of at least {least}, got {value!r}")
        body = request_body(self.api, self.model, messages, settings, n)
        # The first sample has the key of a request without samples, so that caches of older releases stay valid.
        index = {"sample": sample} if sample else {}
        return CacheableCall(
            body=body,
            requests=[
                {"endpoint": url, "api": self.api, "body": body, **index} for url in self._connection.endpoints.urls
            ],
            cache=self.cache if use_cache else None,
            wants_logprobs=settings["top_logprobs"] is not None,
        )

    def _lookup(self, call: CacheableCall) -> tuple[Completion, ...] | None:
        """Return the stored replies, if any, and count the request or cache hit."""
        replies = () if call.cache is None else map(call.cache.get, call.requests)
        stored = next((reply for reply in replies if reply is not None), None)
        if stored is None:
            return None
        self._count(cache_hits=1)
        body, seconds = stored.get("body"), count_of(stored.get("seconds"))
        if not isinstance(body, str):
            raise DataError(f"{call.cache!r} contains an invalid reply for this request: start a new cache")
        return self._parse(call, body, seconds, from_cache=True)

    def _parse(
        self, call: CacheableCall, text: str, seconds: float, *, from_cache: bool = False
    ) -> tuple[Completion, ...]:
        return parse(
            text,
            seconds=seconds,
            where=self.endpoint,
            wants_logprobs=call.wants_logprobs,
            from_cache=from_cache,
        )

    def _count(self, **more: int) -> None:
        with self._lock:
            for name, value in more.items():
                setattr(self.stats, name, getattr(self.stats, name) + value)
