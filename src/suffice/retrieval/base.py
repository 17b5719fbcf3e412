"""The seam between the loop and whatever ranks passages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from suffice.errors import DataError
from suffice.rounds import Passage

__all__ = ["Retriever", "best_first", "checked_k", "required_pool"]


@runtime_checkable
class Retriever(Protocol):
    """Ranks passages for a question.

    A retriever searches either the pool that comes with each question (the *distractor* setting) or a corpus of its
    own.  The first kind refuses a question without a pool; the second kind takes no notice of one, and says so with an
    attribute `has_corpus` that is true (not a member here: without it the loop passes the pool on).
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
