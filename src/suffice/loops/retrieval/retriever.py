"""The protocol between the loop and retrievers, and a retriever of passages in memory."""

from __future__ import annotations

import inspect
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from suffice.common.blocking import run_blocking
from suffice.errors import DataError
from suffice.policy.rounds import Passage

Identity = Literal["title", "passage_id"]
"""The field that identifies a passage; of passages that share its value, a loop reveals only one."""

ScoreKind = Literal[
    "bm25",
    "cosine",
    "inner_product",
    "negative_distance",
    "text_rank",
    "similarity",
    "cross_encoder",
    "reciprocal_ranks",
    "unknown",
]
"""Kinds of a retriever's scores; higher is always better.

`negative_distance` is a distance (Euclidean or Manhattan) times -1, `text_rank` the rank of a full-text search that is not BM25,
`reciprocal_ranks` the sum of a fusion (`Fused`), and `similarity` a search engine's own score for a comparison of vectors.
"""


class _Identified(Protocol):
    @property
    def name(self) -> str:
        """Short name in reports and recordings."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON-ready values that identify the method and its passages; a recording stores them."""
        ...


@runtime_checkable
class Retriever(_Identified, Protocol):
    """Protocol of a component that ranks passages for a question.

    A retriever searches either the pool of each question (the *distractor* setting) or its own corpus.  The first kind
    raises if a question has no pool.  The second kind ignores pools, and its attribute `has_corpus` is true.  This
    attribute is optional and therefore not declared here; without it the loop passes the pool to the retriever.

    Another optional attribute, `identity`, is the field that identifies a passage: `title`, as in pools of Wikipedia
    paragraphs, or `passage_id`, as for chunks that share the title of their document.  The default is `passage_id` for
    a corpus and `title` for a pool.  A third optional attribute, `score_kind`, is the kind of its scores (`ScoreKind`);
    a recording stores it.

    A true attribute `is_pinned` means that the fingerprint identifies the passages and models on which a ranking depends, so
    that a cache may keep rankings (`CachedRetriever`).

    A loop calls `rank` in a thread, and in several threads if several questions run at once.  If `rank` is a coroutine
    function, the retriever is an `AsyncRetriever` and is awaited.
    """

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return passages, best first, each with its `score`; ties keep their original order.

        Args:
            question: Any text; with an empty one every passage scores 0.
            pool: The question's own passages.
            k: Largest number of passages, at least 1; None for all.
        """
        ...


@runtime_checkable
class AsyncRetriever(_Identified, Protocol):
    """Protocol of a `Retriever` that is awaited, such as an endpoint or a store with an asynchronous client."""

    async def rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> list[Passage]:
        """Return passages, best first, each with its `score`, like `Retriever.rank`."""
        ...


def is_async(retriever: Retriever | AsyncRetriever) -> bool:
    """Return whether a retriever must be awaited."""
    return inspect.iscoroutinefunction(retriever.rank)


def identity_of(retriever: Retriever | AsyncRetriever) -> Identity:
    """Return the field that identifies a retriever's passages; see `Retriever`.

    Raises:
        DataError: Its `identity` is neither `title` nor `passage_id`.
    """
    default = "passage_id" if getattr(retriever, "has_corpus", False) else "title"
    identity: Identity = _declared(retriever, "identity", default, get_args(Identity))
    return identity


def score_kind_of(retriever: Retriever | AsyncRetriever) -> ScoreKind:
    """Return the kind of a retriever's scores; `unknown` if it does not declare one.

    Raises:
        DataError: Its `score_kind` is not one of `ScoreKind`.
    """
    kind: ScoreKind = _declared(retriever, "score_kind", "unknown", get_args(ScoreKind))
    return kind


def _declared(retriever: Retriever | AsyncRetriever, name: str, default: str, allowed: tuple[str, ...]) -> Any:
    value = getattr(retriever, name, default)
    if value not in allowed:
        raise DataError(
            f"the {name.replace('_', ' ')} of retriever {retriever.name!r} is {value!r}; allowed: {', '.join(allowed)}"
        )
    return value


def ranked_now(
    retriever: Retriever | AsyncRetriever, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
) -> list[Passage]:
    """Rank passages from synchronous code; the retriever may be an `AsyncRetriever`."""
    ranking: Any = retriever.rank(question, pool=pool, k=k)
    return run_blocking(ranking) if is_async(retriever) else ranking


def refuse_pool(name: str, pool: Sequence[Passage] | None) -> None:
    """Raise if there is a pool, which a retriever with its own passages would ignore."""
    if pool is not None:
        raise DataError(f"retriever {name!r} searches passages of its own, and cannot rank others: leave out pool=")


def required_pool(name: str, pool: Sequence[Passage] | None) -> Sequence[Passage]:
    """Return the pool; raise if it is missing."""
    if pool is None:
        raise DataError(
            f"retriever {name!r} ranks a question's own passages, but got none: pass pool=..., or search a "
            "corpus (CorpusBM25, open_corpus)"
        )
    return pool


def checked_k(k: int | None, size: int) -> int:
    """Return the number of passages to return, at most `size`; raise if `k` is below 1."""
    if k is not None and k < 1:
        raise DataError(f"k is {k!r}; allowed: 1 or more, or None for every passage")
    return size if k is None else min(k, size)


def best_first(pool: Sequence[Passage], scores: Sequence[float], k: int | None) -> list[Passage]:
    """Return the `k` best passages with their scores; ties keep the order of `pool`."""
    order: Iterable[int] = sorted(range(len(pool)), key=lambda i: -scores[i])[: checked_k(k, len(pool))]
    return [replace(pool[i], score=float(scores[i])) for i in order]


class InMemoryRetriever:
    """Returns passages in the given order; a public test double.

    >>> retriever = InMemoryRetriever([Passage(passage_id=name, title=name, text="") for name in "abc"])
    >>> [(passage.title, passage.score) for passage in retriever.rank("anything", k=2)]
    [('a', 1.0), ('b', 0.5)]

    Args:
        passages: Passages for questions without a pool; None = every question must have a pool.
        scores: Scores by passage id.  A passage without a score here keeps its own score or, if it has none, gets
            ``1 / rank``.
    """

    name = "in-memory"

    def __init__(self, passages: Sequence[Passage] | None = None, *, scores: Mapping[str, float] | None = None) -> None:
        self._passages = None if passages is None else tuple(passages)
        self._scores = dict(scores or {})

    def fingerprint(self) -> dict[str, Any]:
        """Return the name, the ids in order and the scores."""
        ids = None if self._passages is None else [passage.passage_id for passage in self._passages]
        return {"name": self.name, "passages": ids, "scores": dict(self._scores)}

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:  # noqa: ARG002 - the order does not depend on the question
        """Return the pool in its order; without a pool, return the passages that the constructor was given.

        Raises:
            DataError: There are no passages, or `k` is below 1.
        """
        passages = required_pool(self.name, self._passages if pool is None else pool)
        chosen = passages[: checked_k(k, len(passages))]
        return [replace(passage, score=self._score(passage, rank)) for rank, passage in enumerate(chosen, start=1)]

    def _score(self, passage: Passage, rank: int) -> float:
        own = 1 / rank if math.isnan(passage.score) else passage.score
        return float(self._scores.get(passage.passage_id, own))
