"""Signals of a model's own knowledge, from a gate before the answer or from a reply."""

from __future__ import annotations

import math

from suffice.policy.signals.definitions import declare

GATE = "gate"
"""The component that decides at round 0, before any answer: its costs are those of the decision."""

KNOWN = "p_known"
"""The signal of a gate."""

COMPLEXITY = "complexity"
"""The signal of a gate that also says whether one retrieval is enough."""

RETRIEVE = "p_retrieve"
"""The signal of a gate of a model that says itself whether to retrieve."""

SEAKR = "seakr"
"""The component of SeaKR, which reads the states of sampled replies."""
SAMPLE_SPREAD = "sample_spread"
"""The signal of `SEAKR`."""
MONITOR = "ctrla"
"""The component of CtrlA, which reads the states of the reply's new words."""
NEW_CONFIDENCE = "new_confidence"
"""The signal of `MONITOR`."""
SELF_RAG = "self-rag"
"""The component of Self-RAG's critique."""
CRITIQUE = "critique_score"
"""The signal of `SELF_RAG`."""
PROBER = "prober"
"""The component of Probing-RAG's probes of the reply."""
ENOUGH = "p_enough"
"""The signal of `PROBER` on replies."""
SETTLED = "p_settled"
"""The signal of `PROBER` on chains of thought."""

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
declare(
    ENOUGH,
    "P(the round's answer is correct), by probes on the states of the model's own reply.",
    "probability",
    (0.0, 1.0),
    ENOUGH,
    source="Probing-RAG, section 3",
    component=PROBER,
)
declare(
    SETTLED,
    "P(the trial answer is right), by a probe on the model's states at the checkpoint, before it is asked.",
    "probability",
    (0.0, 1.0),
    SETTLED,
    source="thought calibration (Wu et al., 2025); LYNX (2025)",
    component=PROBER,
)
declare(
    RETRIEVE,
    "P([Retrieval]) against [No Retrieval], the model's own next token after the question; round 0 only.",
    "probability",
    (0.0, 1.0),
    RETRIEVE,
    source="Self-RAG, section 3.3",
    component=GATE,
    last_round=0,
)
declare(
    SAMPLE_SPREAD,
    "How far apart the end states of sampled replies are (Gram determinant); low where the model is sure.",
    "score",
    (-math.inf, math.inf),
    SAMPLE_SPREAD,
    source="SeaKR, section 3.2",
    component=SEAKR,
)
declare(
    NEW_CONFIDENCE,
    "Lowest projection on the direction of confidence among the new words of the reply; 0 lies midway.",
    "score",
    (-math.inf, math.inf),
    NEW_CONFIDENCE,
    source="CtrlA, section 3.2",
    component=MONITOR,
)
declare(
    CRITIQUE,
    "Weighted sum of IsRel, IsSup and IsUse, the model's own critique of evidence and answer.",
    "score",
    (-math.inf, math.inf),
    CRITIQUE,
    source="Self-RAG, section 3.3",
    component=SELF_RAG,
    first_round=1,
)
