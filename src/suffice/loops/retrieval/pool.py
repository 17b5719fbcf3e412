"""A retriever for tests and demonstrations that keeps the given order."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.loops.retrieval.retriever import checked_k, required_pool
from suffice.policy.rounds import Passage


class InMemoryRetriever:
    """Returns passages in the given order; a public test double.

    >>> retriever = InMemoryRetriever([Passage(passage_id=name, title=name, text="") for name in "abc"])
    >>> [(passage.title, passage.score) for passage in retriever.rank("anything", k=2)]
    [('a', 1.0), ('b', 0.5)]

    Args:
        passages: Passages for questions without a pool; None requires a pool.
        scores: Scores by passage id; other passages keep their score, or get ``1 / rank``.
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
        """Return the pool, or else the constructor's passages, in their order, for any question.

        Raises:
            DataError: There are no passages, or `k` is below 1.
        """
        passages = required_pool(self.name, self._passages if pool is None else pool)
        chosen = passages[: checked_k(k, len(passages))]
        return [replace(passage, score=self._score(passage, rank)) for rank, passage in enumerate(chosen, start=1)]

    def _score(self, passage: Passage, rank: int) -> float:
        own = 1 / rank if math.isnan(passage.score) else passage.score
        return float(self._scores.get(passage.passage_id, own))
