"""Rankings with their costs by component, which a recording stores and a replay charges."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from suffice.common.blocking import finished
from suffice.loops.retrieval.retriever import AsyncRetriever, Retriever, is_async
from suffice.policy.rounds import Cost, Passage
from suffice.policy.signals import RETRIEVAL


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedPassages:
    """The passages of one ranking, with its cost.

    Attributes:
        costs: Costs by component; a ranking from a cache has the costs of the original ranking.
    """

    passages: Sequence[Passage]
    costs: Mapping[str, Cost]
    from_cache: bool = False


class RanksByCosts(ABC):
    """Base class of retrievers that build on other retrievers; subclasses define `costed_rank`."""

    @abstractmethod
    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank` with their costs."""

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return passages, best first; see `Retriever.rank`."""
        return list(finished(self.costed_rank(question, pool=pool, k=k)).passages)

    async def _rank_async(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> list[Passage]:
        return list((await self.costed_rank(question, pool=pool, k=k)).passages)


@runtime_checkable
class CostedRetriever(Protocol):
    """Protocol of a retriever that reports its costs by component; other retrievers' costs are measured."""

    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank` with their costs, without suspending unless `rank` is a coroutine function."""
        ...


async def costed_ranking(
    retriever: Retriever | AsyncRetriever,
    question: str,
    *,
    pool: Sequence[Passage] | None = None,
    k: int | None = None,
    in_thread: bool = False,
) -> RankedPassages:
    """Return a ranking with its costs.

    A synchronous retriever runs without suspending, unless `in_thread` is set.
    """
    if in_thread and not is_async(retriever):
        # Create the coroutine in the thread: if the task is cancelled earlier, none is left that was never awaited.
        return await asyncio.to_thread(lambda: finished(costed_ranking(retriever, question, pool=pool, k=k)))
    if isinstance(retriever, CostedRetriever):
        return await retriever.costed_rank(question, pool=pool, k=k)
    began = time.perf_counter()
    ranking: Any = retriever.rank(question, pool=pool, k=k)
    passages: Sequence[Passage] = await ranking if is_async(retriever) else ranking
    return RankedPassages(passages=passages, costs={RETRIEVAL: Cost(calls=1.0, seconds=time.perf_counter() - began)})


def is_pinned(retriever: Retriever | AsyncRetriever) -> bool:
    """Return whether a retriever declares that its fingerprint identifies its passages and models."""
    return bool(getattr(retriever, "is_pinned", False))
