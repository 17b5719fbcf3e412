"""Signals of evidence, and signals of chains of questions.

Signals of evidence are scores that the retriever, a judge, a cross-encoder or the model gives.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

import numpy as np

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import declare, register_signal
from suffice.policy.signals.state import top_score
from suffice.policy.signals.text import parse_confidence

RETRIEVAL = "retrieval"
"""The component that finds passages; embedding the question on this machine is part of it."""

EMBEDDING = "embedding"
"""The component that embeds questions at an endpoint, to find passages; that of drafts is `embedder`."""

RERANKING = "reranking"
"""The component that orders the passages of a retriever; the signal `rerank_score` has another one, `reranker`."""

_INFINITY = float("inf")
_ANY = (-_INFINITY, _INFINITY)
_SECTION_5_3 = "TASR, section 5.3"
_SECTION_5_4 = "TASR, section 5.4"
_retrieved = partial(declare, component=RETRIEVAL)
_score_of = partial(register_signal, component=RETRIEVAL, first_round=1, reads={"pool_scores"})

_retrieved(
    "overlap",
    "IDF-weighted token Jaccard of the new passage with the earlier ones together.",
    "ratio",
    (0.0, 1.0),
    "passages",
    source="TASR, section 3.2",
    first_round=2,
    fitted=True,
)
_retrieved(
    "top_score",
    "The retriever's score of rank 1.",
    "score",
    _ANY,
    "pool_scores",
    compute=top_score,
    reads={"pool_scores", "signals.top_score"},
    source=_SECTION_5_3,
    first_round=1,
)


@_score_of("score", (0.0, _INFINITY), "pool_scores", source=_SECTION_5_3)
def score_gap(rounds: Sequence[Round]) -> float:
    """The retriever's score of rank 1 minus that of rank 2.

    NaN with fewer than two scores.

    >>> score_gap([Round(index=1, pool_scores=(7.5, 5.0, 1.0))])
    2.5
    """
    scores = rounds[-1].pool_scores
    return scores[0] - scores[1] if len(scores) > 1 else math.nan


@_score_of("z", _ANY, "pool_scores", source=_SECTION_5_3)
def top_score_z_pool(rounds: Sequence[Round]) -> float:
    """top_score within the question's pool, in standard deviations.

    The signal is the distance of the top score from the mean of the pool, divided by the population standard deviation.
    Mean and deviation include rank 1. NaN with fewer than two scores, if a score is not finite, or if all scores are
    equal.

    >>> top_score_z_pool([Round(index=1, pool_scores=(4.0, 2.0, 2.0, 0.0))])
    1.414213562373095
    """
    scores = rounds[-1].pool_scores
    if not _comparable(scores):
        return math.nan
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - mean) * (score - mean) for score in scores) / len(scores))
    return (scores[0] - mean) / deviation if 0 < deviation < _INFINITY else math.nan


_retrieved(
    "top_score_z",
    "top_score against the tune questions, by mean and standard deviation.",
    "z",
    _ANY,
    "pool_scores",
    source=_SECTION_5_3,
    first_round=1,
    fitted=True,
)


@_score_of("z", _ANY, "pool_scores", source=_SECTION_5_4)
def top_score_z_robust(rounds: Sequence[Round]) -> float:
    """top_score within the question's pool, in interquartile ranges from its median.

    Quartiles are interpolated linearly and include rank 1. NaN where `top_score_z_pool` is NaN, or if the quartiles are
    equal (the authors' code then gives 0).

    >>> top_score_z_robust([Round(index=1, pool_scores=(9.0, 4.0, 3.0, 2.0, 1.0))])
    3.0
    """
    scores = rounds[-1].pool_scores
    if not _comparable(scores):
        return math.nan
    with np.errstate(over="ignore", invalid="ignore"):
        low, median, high = np.percentile(scores, [25, 50, 75]).tolist()
    return (scores[0] - median) / (high - low) if 0 < high - low < _INFINITY else math.nan


def _comparable(scores: Sequence[float]) -> bool:
    """Return True if the scores are not all equal.

    For equal scores, rounding of the mean would give a deviation of about 1e-17 instead of 0.
    """
    return len(scores) > 1 and all(map(math.isfinite, scores)) and min(scores) < max(scores)


declare(
    "rerank_score",
    "A cross-encoder's score of the new passage.",
    "score",
    _ANY,
    "reranker",
    source=_SECTION_5_4,
    component="reranker",
    first_round=1,
)
declare(
    "judge_entailment",
    "A judge model's mark of how well the evidence entails the answer, 1..5.",
    "score",
    (1.0, 5.0),
    "judge",
    source=_SECTION_5_3,
    component="judge:entailment",
    first_round=1,
)


declare(
    "context_sufficient",
    "A judge model's verdict whether the passages suffice to answer the question: 1 or 0.",
    "bool",
    (0.0, 1.0),
    "sufficiency",
    source="Joren et al. (2025), section 3",
    component="judge:context_sufficient",
    first_round=1,
)


@register_signal("score", (1.0, 5.0), "verbal_confidence", source="TASR, section 3.2", reads={"text"})
def verbal_confidence(rounds: Sequence[Round]) -> float:
    """The confidence that the model states in its reply, 1..5.

    NaN if the reply states no confidence.
    """
    return parse_confidence(rounds[-1].text)


declare(
    "calibrated_confidence",
    "P(correct) by the policy's calibrator of verbal_confidence.",
    "probability",
    (0.0, 1.0),
    "verbal_confidence",
    source="TASR, section 3.2",
    fitted=True,
)
declare(
    "answer_probability",
    "The model's own probability of its answer, summed over the spans that spell it.",
    "probability",
    (0.0, 1.0),
    "answer_probability",
)


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
