"""Measurements of a round that need a call of their own: a judge, a cross-encoder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt

from suffice.rounds import Cost, Passage, Reply

__all__ = ["REMEDIES", "Enricher", "Measurement"]

REMEDIES: Mapping[str, str] = MappingProxyType(
    {
        "feedback": "Use a loop with a critic (suffice draft answer, DraftingLoop)",
        "passages": "Use a loop that retrieves (suffice answer, RetrievalLoop)",
        "pool_scores": "Use a loop that retrieves (suffice answer, RetrievalLoop)",
        "p_known": "Put a gate in front (--gate PROBE, RetrievalLoop(gate=...))",
        "information_score": (
            "Have drafts marked by a panel of judges (suffice draft answer --judge-model NAME, or enrichers=(Panel(...),) with two "
            "marks or more)"
        ),
        "judge": "Give a judge (suffice answer --judge-model NAME, or enrichers=(EntailmentJudge(...),))",
        "reranker": "Give a cross-encoder (suffice answer --rerank-signal ID, or enrichers=(CrossEncoderScorer(...),))",
        "embedding": "Have drafts embedded (suffice draft answer --embedder minilm, or enrichers=(DraftEmbedder(MiniLM()),))",
    }
)
"""What to do about a need that no model's endpoint meets, by the words of `Signal.needs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """What an `Enricher` found out about one round.

    Attributes:
        signals: By name.
        costs: By component.
        embedding: The answer's embedding, shape ``(width,)``, of an embedder; None of any other.
    """

    signals: Mapping[str, float]
    costs: Mapping[str, Cost]
    embedding: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)


@runtime_checkable
class Enricher(Protocol):
    """Measures signals of a round with a call of its own: a judge, a cross-encoder.

    A recording measures every round.  A live loop measures lazily, as SEMANTICS wants a policy's costs counted: only
    where the policy, evaluated member by member, reads a signal whose `component` is this enricher's name, or one that
    it names in `columns`, an attribute that it may have.
    """

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
