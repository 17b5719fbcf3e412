"""The order in which rounds reveal evidence."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from suffice.retrieval import Retriever
from suffice.rounds import Cost, Passage

__all__ = ["Evidence", "Ranking"]


class Evidence:
    """A question's passages in the order in which rounds reveal them; no title twice (TASR section 3.1).

    Ranked once, and only when a round needs evidence: a question that stops at round 0 costs no retrieval.

    Args:
        retriever: Ranks the pool, or its own corpus.
        question: The question.
        pool: The question's own passages; none = search the retriever's corpus.  A retriever that searches a corpus
            (`has_corpus`) is asked for as much whatever the question brings.
        max_rounds: How many rounds may need a passage.
    """

    def __init__(self, retriever: Retriever, question: str, pool: Sequence[Passage], max_rounds: int) -> None:
        self._retriever, self._question, self._max_rounds = retriever, question, max_rounds
        self._pool: Sequence[Passage] = () if getattr(retriever, "has_corpus", False) else pool

    @cached_property
    def ranked(self) -> Ranking:
        """The ranking, made at the first use.

        Raises:
            DataError: There is neither a pool nor a corpus.
        """
        began = time.perf_counter()
        wanted = max(4 * self._max_rounds, len(self._pool) + 1)  # one more than the pool: it has been seen whole
        while True:
            found = self._retriever.rank(self._question, pool=self._pool or None, k=wanted)
            passages = _distinct(found)
            # A corpus may repeat titles: ask for more until the rounds are served or it has no more.
            if len(passages) >= self._max_rounds or len(found) < wanted:
                break
            wanted *= 4
        cost = Cost(calls=1, seconds=time.perf_counter() - began)
        return Ranking(passages=passages, pool_scores=tuple(passage.score for passage in found), cost=cost)

    def reveal(self, r: int) -> tuple[Passage, ...] | None:
        """Return the passages that round `r` sees; None once the evidence has run out."""
        if r == 0:
            return ()
        return self.ranked.passages[:r] if r <= len(self.ranked.passages) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranking:
    """A question's ranked passages.

    Attributes:
        passages: Best first, no title twice.
        pool_scores: The retriever's scores of all candidates, best first.
        cost: What ranking took.
    """

    passages: tuple[Passage, ...]
    pool_scores: tuple[float, ...]
    cost: Cost


def _distinct(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    seen: dict[str, Passage] = {}
    for passage in passages:
        seen.setdefault(passage.title.strip().lower() or passage.passage_id, passage)
    return tuple(seen.values())
