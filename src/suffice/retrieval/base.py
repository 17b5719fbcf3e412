"""The seam between the loop and whatever ranks passages."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol, get_args, runtime_checkable

from suffice.errors import DataError
from suffice.rounds import Passage

__all__ = [
    "AsyncRetriever",
    "Identity",
    "Retriever",
    "best_first",
    "checked_k",
    "identity_of",
    "is_async",
    "required_pool",
]

Identity = Literal["title", "passage_id"]
"""What makes two passages the same, so that a loop reveals one of them only."""


@runtime_checkable
class Retriever(Protocol):
    """Ranks passages for a question.

    A retriever searches either the pool that comes with each question (the *distractor* setting) or a corpus of its
    own.  The first kind refuses a question without a pool; the second kind takes no notice of one, and says so with an
    attribute `has_corpus` that is true (not a member here: without it the loop passes the pool on).

    Another optional attribute, `identity`, says what makes two passages the same: `title`, as in pools of Wikipedia
    paragraphs, or `passage_id`, as for chunks that share the title of their document.  Without it a corpus goes by
    `passage_id`, and a pool by `title`.

    A loop calls `rank` in a thread, from several threads where several questions run at once.  A retriever whose
    `rank` is a coroutine function is an `AsyncRetriever`, and is awaited.
    """

    @property
    def name(self) -> str:
        """Short name for reports and cells."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON-ready values that identify how and over what it ranks; a recording stores them."""
        ...

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return passages, best first, each with its `score`; ties keep their original order.

        Args:
            question: Any text; an empty one scores every passage 0.
            pool: The question's own passages.
            k: At most this many, at least 1; None for all.
        """
        ...


@runtime_checkable
class AsyncRetriever(Protocol):
    """A `Retriever` that is awaited: an endpoint or a vector store with an asynchronous client."""

    @property
    def name(self) -> str:
        """Short name for reports and cells."""
        ...

    def fingerprint(self) -> dict[str, Any]:
        """Return JSON-ready values that identify how and over what it ranks; a recording stores them."""
        ...

    async def rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> list[Passage]:
        """Return passages, best first, each with its `score`, as `Retriever.rank` does."""
        ...


def is_async(retriever: Retriever | AsyncRetriever) -> bool:
    """Return whether a retriever is awaited."""
    return inspect.iscoroutinefunction(retriever.rank)


def identity_of(retriever: Retriever | AsyncRetriever) -> Identity:
    """Return what makes two passages of a retriever the same, see `Retriever`.

    Raises:
        DataError: Its `identity` is neither `title` nor `passage_id`.
    """
    default: Identity = "passage_id" if getattr(retriever, "has_corpus", False) else "title"
    identity: Identity = getattr(retriever, "identity", default)
    if identity not in get_args(Identity):
        raise DataError(
            f"the identity of retriever {retriever.name!r} is {identity!r}; allowed: {', '.join(get_args(Identity))}"
        )
    return identity


def required_pool(name: str, pool: Sequence[Passage] | None) -> Sequence[Passage]:
    """Return the pool, or explain why there must be one.

    Raises:
        DataError: There is no pool.
    """
    if pool is None:
        raise DataError(
            f"retriever {name!r} ranks a question's own passages, and none were given: pass pool=..., or search a "
            "corpus (CorpusBM25, open_corpus)."
        )
    return pool


def checked_k(k: int | None, size: int) -> int:
    """Return how many of `size` passages to give back.

    Raises:
        DataError: `k` is below 1.
    """
    if k is not None and k < 1:
        raise DataError(f"k is {k!r}; allowed is 1 or more, or None for every passage.")
    return size if k is None else min(k, size)


def best_first(pool: Sequence[Passage], scores: Sequence[float], k: int | None) -> list[Passage]:
    """Return the `k` best passages with their scores; ties keep the order of `pool`."""
    order: Iterable[int] = sorted(range(len(pool)), key=lambda i: -scores[i])[: checked_k(k, len(pool))]
    return [replace(pool[i], score=float(scores[i])) for i in order]
