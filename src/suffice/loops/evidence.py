"""Rank a question's passages, and reveal them round by round."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from suffice.common.blocking import finished
from suffice.loops.retrieval import AsyncRetriever, Retriever, identity_of
from suffice.loops.retrieval.ranking import costed_ranking
from suffice.policy.rounds import Cost, Passage, added_costs

_MOST_TIMES = 16
"""Largest factor by which the number of requested passages may grow."""


class Evidence:
    """A question's passages in the order in which rounds reveal them, without repeats (TASR section 3.1).

    The retriever decides which passages are the same, see `Retriever`.  Passages are ranked once, when a round first
    needs evidence, so a question that stops at round 0 costs no retrieval.

    Args:
        retriever: Ranks the passages of the pool or, if the retriever has a corpus, those of the corpus.
        question: The question.
        pool: The question's own passages; empty = search the retriever's corpus.  A retriever with a corpus
            (`has_corpus`) ignores the pool.
        max_rounds: Largest number of rounds that need a passage.

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
        """The ranking, computed on first use unless `rank` did so before.

        Raises:
            DataError: There is neither a pool nor a corpus.
        """
        if self._ranking is None:
            self._ranking = finished(self._rank(in_thread=False))
        return self._ranking

    async def rank(self) -> Ranking:
        """Compute the ranking without blocking the event loop.

        Raises:
            DataError: There is neither a pool nor a corpus.
        """
        if self._ranking is None:
            self._ranking = await self._rank(in_thread=True)
        return self._ranking

    async def _rank(self, *, in_thread: bool) -> Ranking:
        costs: dict[str, Cost] = {}
        wanted = max(4 * self._max_rounds, len(self._pool) + 1)  # more than the pool, so that all of it is ranked
        most = _MOST_TIMES * wanted
        while True:
            ranked = await costed_ranking(
                self._retriever, self._question, pool=self._pool or None, k=wanted, in_thread=in_thread
            )
            candidates, costs = ranked.passages, added_costs(costs, ranked.costs)
            passages = distinct_passages(candidates, self._by_title)
            # A corpus may repeat titles, so ask for more until every round has a passage or the corpus is exhausted.
            if len(passages) >= self._max_rounds or len(candidates) < wanted or wanted >= most:
                break
            wanted = min(4 * wanted, most)
        if len(passages) < min(self._max_rounds, len(candidates)):
            warnings.warn(_REPEATED, stacklevel=2)
        return Ranking(passages=passages, pool_scores=tuple(passage.score for passage in candidates), costs=costs)

    def reveal(self, r: int) -> tuple[Passage, ...] | None:
        """Return the first `r` passages, which round `r` sees; None if there are fewer."""
        if r == 0:
            return ()
        return self.ranked.passages[:r] if r <= len(self.ranked.passages) else None


def distinct_passages(passages: Sequence[Passage], by_title: bool) -> tuple[Passage, ...]:
    """Remove passages that repeat a title (if `by_title`) or an id."""
    distinct: dict[str, Passage] = {}
    for passage in passages:
        title = passage.title.strip().lower() if by_title else ""
        distinct.setdefault(title or passage.passage_id, passage)
    return tuple(distinct.values())


_REPEATED = (
    "some questions have fewer rounds than passages, because passages of the same title, or id, count as one: if titles are "
    "not unique (chunks of one document), give each passage its own title, or set the retriever's attribute "
    "identity = 'passage_id'"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A question's ranked passages.

    Attributes:
        pool_scores: The retriever's scores of all candidates, best first.
        costs: The cost of computing the ranking, by component.  Each request to the retriever counts as one call.
    """

    passages: tuple[Passage, ...]
    pool_scores: tuple[float, ...]
    costs: Mapping[str, Cost]
