"""Cache rankings on disk by retriever, question and k, so that a repeated search costs nothing."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, Protocol

from suffice.common.json_text import number_from_json, number_to_json
from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval.ranking import RankedPassages, RanksByCosts, costed_ranking, is_pinned
from suffice.loops.retrieval.retriever import (
    AsyncRetriever,
    Identity,
    Retriever,
    ScoreKind,
    identity_of,
    is_async,
    score_kind_of,
)
from suffice.policy.rounds import Cost, Passage
from suffice.policy.seen import Seen
from suffice_retrieval.indexes.corpus_bm25 import passages_hash


class RankingCache(Protocol):
    """Protocol of a cache that stores JSON responses by request, such as `suffice.recordings.ResponseCache`."""

    def get(self, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the stored response to a request; None if no response is stored."""
        ...

    def put(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store a response durably."""
        ...


class CachedRetriever(RanksByCosts):
    """A retriever whose rankings are cached by its fingerprint, the question, its pool and k.

    A cached ranking has the costs of the original ranking, like a cached reply of a model.  `hits` counts cached
    rankings, and `misses` counts new rankings.  Several threads and processes may use one cache.

    Only a retriever whose attribute `is_pinned` is true can be cached.  The fingerprint of such a retriever identifies
    its passages and models, so that a changed index never gets old rankings.  Corpora that this package indexes are
    pinned, and so are retrievers of other libraries whose settings contain a `version`.

    >>> class Once(dict):
    ...     def get(self, request): return super().get(str(request))
    ...     def put(self, request, response): self[str(request)] = response
    >>> from suffice.loops.retrieval.bm25 import PoolBM25
    >>> retriever = CachedRetriever(PoolBM25(), Once())
    >>> pool = [Passage(passage_id="1", title="Munch", text="Munch was born in Norway.")]
    >>> retriever.rank("Munch", pool=pool) == retriever.rank("Munch", pool=pool)
    True
    >>> retriever.hits, retriever.misses
    (1, 1)

    Args:
        retriever: Ranks passages if the cache does not contain the ranking.
        cache: Stores the rankings.

    Raises:
        DataError: The retriever is not pinned.
    """

    has_corpus: bool

    def __init__(self, retriever: Retriever | AsyncRetriever, cache: RankingCache) -> None:
        if not is_pinned(retriever):
            raise DataError(
                f"the rankings of {retriever.name!r} cannot be cached, because nothing says when its passages or its model change: "
                "name a version (settings={'version': ...}, or the revision of a model), or leave the cache out"
            )
        if is_async(retriever):
            self.rank = self._rank_async  # type: ignore[assignment]
        self.retriever, self.cache = retriever, cache
        self.name = retriever.name
        self.has_corpus = getattr(retriever, "has_corpus", False)
        self.is_pinned = True
        self.hits = self.misses = 0
        self._lock = threading.Lock()

    def __repr__(self) -> str:
        return f"CachedRetriever({self.retriever!r}, {self.cache!r})"

    @property
    def seen(self) -> Seen | None:
        """The questions on which the retriever was trained; see `Reranked.seen`."""
        return getattr(self.retriever, "seen", Seen())

    @property
    def identity(self) -> Identity:
        """The field that identifies a passage of the retriever."""
        return identity_of(self.retriever)

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of the retriever's scores."""
        return score_kind_of(self.retriever)

    def fingerprint(self) -> dict[str, Any]:
        """Return the fingerprint of the wrapped retriever, since the cache does not change rankings."""
        return self.retriever.fingerprint()

    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank`, with costs; a cached ranking has the costs of the original ranking."""
        own = None if pool is None or self.has_corpus else passages_hash(pool)
        request = {"retriever": self._fingerprint, "question": question, "pool": own, "k": k}
        stored = self.cache.get(request)
        with self._lock:
            self.hits, self.misses = self.hits + (stored is not None), self.misses + (stored is None)
        if stored is not None:
            return _from_json(stored, self.cache)
        ranking = await costed_ranking(self.retriever, question, pool=pool, k=k)
        self.cache.put(request, _to_json(ranking))
        return ranking

    @cached_property
    def _fingerprint(self) -> dict[str, Any]:
        return self.retriever.fingerprint()


def _to_json(ranking: RankedPassages) -> dict[str, Any]:
    passages = [[item.passage_id, item.title, item.text, number_to_json(item.score)] for item in ranking.passages]
    return {"passages": passages, "costs": {name: cost.to_dict() for name, cost in ranking.costs.items()}}


def _from_json(stored: Mapping[str, Any], cache: RankingCache) -> RankedPassages:
    try:
        passages = [
            Passage(passage_id=name, title=title, text=text, score=number_from_json(score))
            for name, title, text, score in stored["passages"]
        ]
        costs = {name: Cost.from_dict(cost) for name, cost in stored["costs"].items()}
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise SchemaError(f"{cache!r} contains an invalid ranking ({error!r}): start a new cache") from error
    return RankedPassages(passages=passages, costs=costs, from_cache=True)
