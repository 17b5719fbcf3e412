"""The signal before an answer: the probability that the model knows the answer (CBDR, section 3.1)."""

from __future__ import annotations

from suffice.signals.base import declare

__all__ = ["GATE", "KNOWN"]

GATE = "gate"
"""The component that decides at round 0, before any answer: its costs are those of the decision."""

KNOWN = "p_known"
"""The signal of a gate."""

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
