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
"""Advice for needs that model endpoints do not meet, by the terms of `Signal.needs`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The measurements of an `Enricher` for one round.

    Attributes:
        signals: Values by name.
        costs: Costs by component.
        embedding: The answer's embedding, shape ``(width,)``; None unless the enricher is an embedder.
    """

    signals: Mapping[str, float]
    costs: Mapping[str, Cost]
    embedding: npt.NDArray[np.float32] | None = field(default=None, compare=False, repr=False)


@runtime_checkable
class Enricher(Protocol):
    """Measures signals of a round with a call of its own, such as a judge or a cross-encoder.

    A recording measures every round.  A live loop measures lazily: only if the policy, evaluated member by member, reads
    a signal whose `component` is the name of this enricher, or one in its optional attribute `columns`.
    """

    @property
    def name(self) -> str:
        """The component to which its costs are charged."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it provides besides the model, in the terms of `Signal.needs`."""
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes its measurements, JSON-ready and without secrets."""
        ...

    async def measure(self, question: str, passages: Sequence[Passage], reply: Reply) -> Measurement:
        """Measure one round.

        Raises:
            ModelError: The call failed.
        """
        ...
