"""The signals before an answer: what a gate says of a question."""

from __future__ import annotations

from suffice.signals.base import declare

__all__ = ["COMPLEXITY", "GATE", "KNOWN"]

GATE = "gate"
"""The component that decides at round 0, before any answer: its costs are those of the decision."""

KNOWN = "p_known"
"""The signal of a gate."""

COMPLEXITY = "complexity"
"""The signal of a gate that also says whether one retrieval is enough."""

declare(
    KNOWN,
    "P(the model's closed-book answer is correct), by a gate that reads the question alone; round 0 only.",
    "probability",
    (0.0, 1.0),
    KNOWN,
    source="CBDR, section 3.1",
    component=GATE,
    last_round=0,
)
declare(
    COMPLEXITY,
    "What a classifier of questions expects to be enough: 0 no retrieval, 1 a single one, 2 more; round 0 only.",
    "count",
    (0.0, 2.0),
    COMPLEXITY,
    source="Adaptive-RAG, section 3.2",
    component=GATE,
    last_round=0,
)
