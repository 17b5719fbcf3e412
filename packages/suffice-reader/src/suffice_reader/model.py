"""The embedded span reader as a model of the retrieval loop: real answers offline, on two cores."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.policy.rounds import Cost, Passage, Reply
from suffice_reader.span_reader import SpanReader


class SpanReaderModel:
    """Answers with a span of the passages, or with "yes" or "no"; without passages it cannot answer.

    The margin compares whole answers, not single tokens.  It is the log-probability of the best span minus the
    log-probability of the best span with another normalised answer, in nats.

    Args:
        path: Folder of a trained reader; None = the one in the package.
        threads: Worker threads for encoding passages.
        cache_size: Number of encoded (question, passage) pairs to cache; with a cache, a round encodes only the new passage.
    """

    name = "span-reader"
    capabilities = frozenset({"logprobs", "answer_probability"})
    """Its own `answer_margin` and `answer_probability`."""

    def __init__(self, path: str | Path | None = None, *, threads: int = 2, cache_size: int = 4096) -> None:
        self._reader = SpanReader(path, threads=threads, cache_size=cache_size)

    def fingerprint(self) -> Mapping[str, Any]:
        """The revision of the weights."""
        return {"model": self.name, "revision": self._reader.revision}

    def answer(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Read the passages; see `Answerer.answer`.  Without passages there is no answer."""
        if not passages:
            return Reply(answer=None, costs={"generator": Cost()}, finish_reason="stop")
        began = time.perf_counter()
        reading = self._reader.read(question, [(passage.title, passage.text) for passage in passages])
        cost = Cost(
            calls=1,
            uncached_tokens=reading.new_tokens,
            cached_tokens=reading.cached_tokens,
            seconds=time.perf_counter() - began,
        )
        return Reply(
            answer=reading.answer or None,
            text=reading.answer,
            signals={"answer_margin": reading.answer_margin, "answer_probability": reading.answer_probability},
            costs={"generator": cost},
            finish_reason="stop",
        )

    def verify(self, needs: frozenset[str]) -> None:
        """Do nothing: `capabilities` already shows which needs are met."""

    async def answer_async(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Like `answer`, but in a worker thread."""
        return await asyncio.to_thread(self.answer, question, passages)
