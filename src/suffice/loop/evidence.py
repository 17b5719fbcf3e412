"""The order in which rounds reveal evidence."""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suffice.loop.blocking import finished
from suffice.retrieval import AsyncRetriever, Retriever, identity_of, is_async
from suffice.rounds import Cost, Passage

__all__ = ["Evidence", "Ranking"]

_MOST_TIMES = 16
"""How many times as many passages as at first a corpus is asked for at most."""


class Evidence:
    """A question's passages in the order in which rounds reveal them; none twice (TASR section 3.1).

    What makes two passages the same is the retriever's choice, see `Retriever`.  Ranked once, and only when a round
    needs evidence: a question that stops at round 0 costs no retrieval.

    Args:
        retriever: Ranks the pool, or its own corpus.
        question: The question.
        pool: The question's own passages; none = search the retriever's corpus.  A retriever that searches a corpus
            (`has_corpus`) is asked for as much whatever the question brings.
        max_rounds: How many rounds may need a passage.

    Raises:
        DataError: The retriever has an unknown `identity`.
    """

    def __init__(
        self, retriever: Retriever | AsyncRetriever, question: str, pool: Sequence[Passage], max_rounds: int
    ) -> None:
        self._retriever, self._question, self._max_rounds = retriever, question, max_rounds
        self._pool: Sequence[Passage] = () if getattr(retriever, "has_corpus", False) else pool
        self._by_title = identity_of(retriever) == "title"
        self._ranking: Ranking | None = None

    @property
    def ranked(self) -> Ranking:
        """The ranking, made here at the first use unless `rank` has made it.

        Raises:
            DataError: There is neither a pool nor a corpus.
        """
        if self._ranking is None:
            self._ranking = finished(self._rank())
        return self._ranking

    async def rank(self) -> Ranking:
        """Return the ranking without blocking the event loop: made in a thread, or awaited.

        Raises:
            DataError: There is neither a pool nor a corpus.
        """
        if self._ranking is None:
            ranked = self._rank() if is_async(self._retriever) else asyncio.to_thread(finished, self._rank())
            self._ranking = await ranked
        return self._ranking

    async def _rank(self) -> Ranking:
        """Rank; with a synchronous retriever this never suspends."""
        began = time.perf_counter()
        wanted = max(4 * self._max_rounds, len(self._pool) + 1)  # one more than the pool: it has been seen whole
        most = _MOST_TIMES * wanted
        while True:
            ranked: Any = self._retriever.rank(self._question, pool=self._pool or None, k=wanted)
            candidates: list[Passage] = await ranked if is_async(self._retriever) else ranked
            passages = self._distinct(candidates)
            # A corpus may repeat titles: ask for more until the rounds are served or it has no more.
            if len(passages) >= self._max_rounds or len(candidates) < wanted or wanted >= most:
                break
            wanted = min(4 * wanted, most)
        if len(passages) < min(self._max_rounds, len(candidates)):
            warnings.warn(_REPEATED, stacklevel=2)
        cost = Cost(calls=1, seconds=time.perf_counter() - began)
        return Ranking(passages=passages, pool_scores=tuple(passage.score for passage in candidates), cost=cost)

    def _distinct(self, passages: Sequence[Passage]) -> tuple[Passage, ...]:
        seen: dict[str, Passage] = {}
        for passage in passages:
            title = passage.title.strip().lower() if self._by_title else ""
            seen.setdefault(title or passage.passage_id, passage)
        return tuple(seen.values())

    def reveal(self, r: int) -> tuple[Passage, ...] | None:
        """Return the passages that round `r` sees; None once the evidence has run out."""
        if r == 0:
            return ()
        return self.ranked.passages[:r] if r <= len(self.ranked.passages) else None


_REPEATED = (
    "some questions have fewer rounds than passages, because passages of the same title, or id, count as one: if titles do "
    "not tell passages apart (chunks of one document), give each a title of its own, or set the retriever's attribute "
    "identity = 'passage_id'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A question's ranked passages.

    Attributes:
        passages: Best first, none twice.
        pool_scores: The retriever's scores of all candidates, best first.
        cost: What ranking took.
    """

    passages: tuple[Passage, ...]
    pool_scores: tuple[float, ...]
    cost: Cost
