"""The order in which rounds reveal evidence, and measurements that need a call of their own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from suffice.retrieval import Retriever
from suffice.rounds import Cost, Passage, Reply

__all__ = ["Enricher", "Evidence", "Measurement", "rank_evidence"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A question's ranked passages.

    Attributes:
        passages: In the order in which rounds reveal them; no title twice.
        pool_scores: The retriever's scores of all candidates, best first.
        cost: What ranking took.
    """

    passages: tuple[Passage, ...]
    pool_scores: tuple[float, ...]
    cost: Cost


def rank_evidence(retriever: Retriever, question: str, pool: Sequence[Passage], max_rounds: int) -> Evidence:
    """Rank once against the question and skip passages with an already seen title (TASR section 3.1).

    Args:
        retriever: Ranks the pool, or its own corpus.
        question: The question.
        pool: The question's own passages; none = search the retriever's corpus.
        max_rounds: How many rounds may need a passage.
    """
    began = time.perf_counter()
    # A corpus is asked for more than the rounds need: some titles repeat, and scores describe the candidates.
    ranked = retriever.rank(question, pool=pool or None, k=None if pool else 4 * max_rounds)
    seen: set[str] = set()
    passages = []
    for passage in ranked:
        key = passage.title.strip().lower() or passage.passage_id
        if key not in seen:
            seen.add(key)
            passages.append(passage)
    cost = Cost(calls=1, seconds=time.perf_counter() - began)
    return Evidence(passages=tuple(passages), pool_scores=tuple(passage.score for passage in ranked), cost=cost)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What an `Enricher` found out about one round: signals by name, costs by component."""

    signals: Mapping[str, float]
    costs: Mapping[str, Cost]


@runtime_checkable
class Enricher(Protocol):
    """Measures signals of a round with a call of its own: a judge, a cross-encoder."""

    @property
    def name(self) -> str:
        """The component that its costs are booked under."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it adds to what the model gives, in the words of `Signal.needs`."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes what it measures, JSON-ready and without secrets."""
        ...

    async def measure(self, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
        """Measure one round.

        Raises:
            ModelError: The call failed.
        """
        ...
