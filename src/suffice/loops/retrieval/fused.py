"""Hybrid retrieval: fuse the rankings of several retrievers by reciprocal ranks (Cormack et al., 2009)."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from suffice.errors import DataError
from suffice.loops.retrieval.ranking import RankedPassages, RanksByCosts, costed_ranking, is_pinned
from suffice.loops.retrieval.retriever import (
    AsyncRetriever,
    Identity,
    Retriever,
    ScoreKind,
    checked_k,
    identity_of,
    is_async,
)
from suffice.policy.round_parts import added_costs
from suffice.policy.rounds import Passage

RRF_CONSTANT = 60.0
"""The constant of reciprocal rank fusion in its paper."""


class Fused(RanksByCosts):
    """A retriever that fuses the rankings of several retrievers.

    The score of a passage is the sum of ``1 / (constant + rank)`` over the rankings; ranks begin at 1, and a ranking
    without the passage adds nothing (Cormack, Clarke and Buettcher, 2009).  Scores of the retrievers do not count, so BM25
    and a dense retriever need no common scale.  Passages with equal ids are the same; ties are ordered by the first
    retriever's ranking, then by the second one's, and so on.  If one retriever is an `AsyncRetriever`, the fused retriever
    is an `AsyncRetriever` too.

    >>> from suffice.loops.retrieval.retriever import InMemoryRetriever
    >>> def ranking(names):
    ...     return InMemoryRetriever([Passage(passage_id=name, title=name, text="") for name in names])
    >>> fused = Fused(ranking("abc"), ranking("bcd"), constant=1)
    >>> [(passage.title, round(passage.score, 3)) for passage in fused.rank("anything")]
    [('b', 0.833), ('c', 0.583), ('a', 0.5), ('d', 0.25)]

    Args:
        *retrievers: Two or more retrievers that search the same passages.
        constant: At least 0; the larger it is, the less the first ranks count.
        candidates: Number of passages taken from each ranking, at least 1.

    Raises:
        DataError: There are fewer than two retrievers, one searches its own corpus and another ranks pools, or a number
            is out of range.
    """

    score_kind: ScoreKind = "reciprocal_ranks"

    def __init__(
        self, *retrievers: Retriever | AsyncRetriever, constant: float = RRF_CONSTANT, candidates: int = 100
    ) -> None:
        kinds = {bool(getattr(item, "has_corpus", False)) for item in retrievers}
        identities = {identity_of(item) for item in retrievers}
        if len(retrievers) < 2 or len(kinds) > 1 or len(identities) > 1:  # noqa: PLR2004
            names = ", ".join(item.name for item in retrievers) or "none"
            raise DataError(
                f"a fusion needs two or more retrievers of the same passages, all of one corpus or all of each question's own, got {names}"
            )
        if not 0 <= constant < float("inf") or candidates < 1:
            raise DataError(
                f"constant is {constant!r} and candidates is {candidates!r}; allowed: a finite constant of at least 0, and at "
                "least 1 candidate"
            )
        if any(map(is_async, retrievers)):
            self.rank = self._rank_async  # type: ignore[assignment]
        self.retrievers, self.constant, self.candidates = retrievers, constant, candidates
        self.has_corpus = kinds.pop()
        self.identity: Identity = identities.pop()
        self.name = f"{'+'.join(item.name for item in retrievers)}+fused"

    def __repr__(self) -> str:
        return f"Fused({', '.join(map(repr, self.retrievers))}, constant={self.constant}, candidates={self.candidates})"

    @property
    def is_pinned(self) -> bool:
        """True if all retrievers are pinned."""
        return all(map(is_pinned, self.retrievers))

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprints of the retrievers, the constant and the number of candidates."""
        return {
            "name": self.name,
            "retrievers": [item.fingerprint() for item in self.retrievers],
            "constant": self.constant,
            "candidates": self.candidates,
        }

    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank` with the costs of all retrievers."""
        wanted = max(self.candidates, k or 1)
        rankings = [await self._ranking(item, question, pool, wanted) for item in self.retrievers]
        scores: dict[str, float] = {}
        passages: dict[str, Passage] = {}
        for ranking in rankings:
            for rank, passage in enumerate(ranking.passages, start=1):
                name = passage.passage_id
                scores[name] = scores.get(name, 0.0) + 1 / (self.constant + rank)
                passages.setdefault(name, passage)
        best = sorted(scores, key=lambda name: -scores[name])[: checked_k(k, len(scores))]
        return RankedPassages(
            passages=[replace(passages[name], score=scores[name]) for name in best],
            costs=added_costs(*(ranking.costs for ranking in rankings)),
            from_cache=all(ranking.from_cache for ranking in rankings),
        )

    async def _ranking(
        self, retriever: Retriever | AsyncRetriever, question: str, pool: Sequence[Passage] | None, k: int
    ) -> RankedPassages:
        """Return one retriever's ranking; run it in a thread if the fusion is asynchronous."""
        own = None if self.has_corpus else pool
        is_awaited = asyncio.iscoroutinefunction(self.rank)
        return await costed_ranking(retriever, question, pool=own, k=k, in_thread=is_awaited)
