"""Signals of a chain of reasoning that asks for its own evidence: Self-Ask, IRCoT, FLARE, DRAGIN."""

from __future__ import annotations

import math

from suffice.policy.signals.definitions import declare

CHAIN = "chain"
"""What a loop provides whose rounds are steps of a chain, in the terms of `Signal.needs`."""

declare(
    "chain_ended",
    "Whether the chain has ended: it states its answer, asks no further question, or nothing more was written.",
    "bool",
    (0.0, 1.0),
    CHAIN,
    source="Trivedi et al. (2023), section 3; Press et al. (2023), section 3",
    component="",
    first_round=1,
)
declare(
    "queries",
    "The number of queries that the round asked the retriever; 0 = the method saw no need of evidence.",
    "count",
    (0.0, math.inf),
    CHAIN,
    source="Jiang et al. (2023), section 3.2",
    component="",
    first_round=1,
)
declare(
    "lowest_probability",
    "The lowest token probability of the sentence written before retrieving; FLARE retrieves below theta.",
    "probability",
    (0.0, 1.0),
    CHAIN,
    source="Jiang et al. (2023), section 3.2",
    component="",
    first_round=1,
)
declare(
    "rind",
    "The largest need for retrieval over the words written before retrieving; DRAGIN retrieves above theta.",
    "score",
    (0.0, math.inf),
    CHAIN,
    source="Su et al. (2024), section 3.1",
    component="",
    first_round=1,
)
