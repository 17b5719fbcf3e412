"""A completion that is generated during other requests, and can be cancelled at the cost incurred so far."""

from __future__ import annotations

import asyncio
import json
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from suffice.errors import ModelError
from suffice.loops.models._wire import Asked, Completion, are_ids, completion_of, mapping_or_empty
from suffice.policy.rounds import Cost

if TYPE_CHECKING:
    from suffice.loops.models.chat import ChatModel

_COUNTED = {"stream_options": {"include_usage": True, "continuous_usage_stats": True}, "timings_per_token": True}
"""Fields that make a server count in each chunk what it has read and generated: vLLM's, and llama.cpp's."""


class StreamedCompletion:
    """A completion in progress; the request begins when the object is created.

    Args:
        model: The model.
        prompt: Returns the prompt.
        settings: The parameters of the request, as in `ChatModel.complete`.

    Attributes:
        is_sent: True once the request has been sent; before that, it waits for the prompt and the limits on requests.
    """

    def __init__(self, model: ChatModel, prompt: Callable[[], Awaitable[Asked]], settings: Mapping[str, Any]) -> None:
        self._chunks: list[Mapping[str, Any]] = []
        self._prompt_tokens, self.is_sent = math.nan, False
        self._task = asyncio.create_task(self._run(model, prompt, settings))

    async def _run(
        self, model: ChatModel, prompt: Callable[[], Awaitable[Asked]], settings: Mapping[str, Any]
    ) -> Completion:
        asked = await prompt()
        self._prompt_tokens = float(len(asked)) if are_ids(asked) else math.nan
        body = {**_COUNTED, **settings.get("extra_body", model.fingerprint()["extra_body"])}
        return await model.stream_async(asked, self._chunks, self._leaves, **{**settings, "extra_body": body})

    def _leaves(self) -> None:
        self.is_sent = True

    async def result(self) -> Completion:
        """Wait for the completion and return it; its cost has the seconds of this wait.

        Raises:
            ModelError: The endpoint failed, or its reply broke off.
        """
        began = time.perf_counter()
        completion = await self._task
        return replace(completion, cost=replace(completion.cost, seconds=time.perf_counter() - began))

    async def cancel(self) -> tuple[Cost, bool]:
        """Cancel the completion; return its cost so far, and True if a request in flight had to be cancelled.

        A request that failed or was not yet sent costs nothing.  Generated tokens are counted if they had arrived; the
        server may generate a few more before it notices the end.  If no token had arrived, the cost is one call with all
        prompt tokens, an upper bound.  The number of prompt tokens is NaN if the prompt was text instead of token ids.
        """
        cancelled = self._task.cancel()
        (end,) = await asyncio.gather(self._task, return_exceptions=True)
        if isinstance(end, Exception) or not self.is_sent:
            return Cost(), cancelled and self.is_sent
        if not self._chunks:
            return Cost(calls=1.0, uncached_tokens=self._prompt_tokens), cancelled
        body = joined(self._chunks)
        return completion_of(body, body["choices"][0], seconds=0.0).cost, cancelled


def ended_text(chunks: Sequence[Mapping[str, Any]], where: str) -> str:
    """Join the chunks of a streamed completion to the body that a reply without streaming would have, as JSON text.

    Raises:
        ModelError: The stream broke off: no chunk has a finish reason.
    """
    body = joined(chunks)
    if body["choices"][0]["finish_reason"] is None:
        raise ModelError(
            f"{where} ended a stream after {len(chunks):,} chunks, none with a finish_reason: it broke off, or the endpoint does not "
            "stream. Try again; if it stays so, leave out --overlap (overlap=True)",
            retryable=True,
        )
    return json.dumps(body)


def joined(chunks: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Join the chunks of a streamed completion to the body that a reply without streaming would have.

    >>> chunk = {"choices": [{"text": "a", "token_ids": [1]}], "usage": {"prompt_tokens": 2, "completion_tokens": 1}}
    >>> joined([chunk, chunk])["choices"][0]["text"]
    'aa'
    """
    whole: dict[str, Any] = {}
    choice: dict[str, Any] = {"text": "", "finish_reason": None}
    logprobs: dict[str, list[Any]] = {}
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name != "choices" and value is not None}
        for part in chunk.get("choices") or ():
            choice["text"] += part.get("text") or ""
            choice["finish_reason"] = part.get("finish_reason") or choice["finish_reason"]
            if part.get("token_ids"):
                choice["token_ids"] = [*choice.get("token_ids", ()), *part["token_ids"]]
            for name, values in mapping_or_empty(part.get("logprobs")).items():
                logprobs.setdefault(name, []).extend(values if isinstance(values, list) else ())
    timings = mapping_or_empty(whole.get("timings"))
    if "usage" not in whole and timings:  # cancelled: llama.cpp's usage would have come last
        read = timings.get("cache_n", 0) + timings.get("prompt_n", 0)
        whole["usage"] = {"prompt_tokens": read, "completion_tokens": timings.get("predicted_n")}
    return {**whole, "choices": [{**choice, "logprobs": logprobs or None}]}
