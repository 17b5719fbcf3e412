"""Signals of the retriever and the evidence, and the declarations of all that is measured elsewhere."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from suffice.rounds import Round
from suffice.signals.base import Signal, register_signal
from suffice.signals.state import top_score
from suffice.signals.text import parse_confidence

__all__ = ["score_gap", "top_score", "top_score_z_pool", "top_score_z_robust", "verbal_confidence"]

_NAN = float("nan")
_INFINITY = float("inf")
_ANY = (-_INFINITY, _INFINITY)
_TWO = 2


def score_gap(rounds: Sequence[Round]) -> float:
    """Return the score of rank 1 minus that of rank 2, in the retriever's unit, >= 0; NaN with fewer than two.

    >>> score_gap([Round(index=1, pool_scores=(7.5, 5.0, 1.0))])
    2.5
    """
    scores = rounds[-1].pool_scores
    return scores[0] - scores[1] if len(scores) >= _TWO else _NAN


def top_score_z_pool(rounds: Sequence[Round]) -> float:
    """Return how many standard deviations rank 1 lies above the mean of the question's own pool.

    Standard deviation of the population, rank 1 included.  NaN with fewer than two scores, if one is not finite, or
    if they do not differ.

    >>> top_score_z_pool([Round(index=1, pool_scores=(4.0, 2.0, 2.0, 0.0))])
    1.414213562373095
    """
    scores = rounds[-1].pool_scores
    if not _comparable(scores):
        return _NAN
    mean = sum(scores) / len(scores)
    deviation = math.sqrt(sum((score - mean) * (score - mean) for score in scores) / len(scores))
    return (scores[0] - mean) / deviation if 0 < deviation < _INFINITY else _NAN


def top_score_z_robust(rounds: Sequence[Round]) -> float:
    """Return how many interquartile ranges rank 1 lies above the median of the question's own pool.

    Quartiles are interpolated linearly, rank 1 included.  NaN where `top_score_z_pool` is, or if the quartiles do not
    differ (there the authors' code says 0).

    >>> top_score_z_robust([Round(index=1, pool_scores=(9.0, 4.0, 3.0, 2.0, 1.0))])
    3.0
    """
    scores = rounds[-1].pool_scores
    if not _comparable(scores):
        return _NAN
    with np.errstate(over="ignore", invalid="ignore"):
        low, median, high = np.percentile(scores, [25, 50, 75]).tolist()
    return (scores[0] - median) / (high - low) if 0 < high - low < _INFINITY else _NAN


def _comparable(scores: Sequence[float]) -> bool:
    """Return whether scores have a spread; without that, rounding of a mean would leave a deviation of about 1e-17."""
    return len(scores) >= _TWO and all(map(math.isfinite, scores)) and min(scores) < max(scores)


def verbal_confidence(rounds: Sequence[Round]) -> float:
    """Return the confidence that the model states in its reply, 1..5; NaN if it states none (TASR, section 3.2)."""
    return parse_confidence(rounds[-1].text)


_RETRIEVAL = "retrieval"
_SEARCHED = "TASR, section 5.3"
_NEGATIVE = "TASR, section 5.4"

register_signal(
    Signal(
        name="overlap",
        compute=None,
        range=(0.0, 1.0),
        unit="ratio",
        needs=frozenset({"passages"}),
        source="TASR, section 3.2",
        component=_RETRIEVAL,
        first_round=2,
        fitted=True,
        doc="IDF-weighted token Jaccard of the new passage with the earlier ones together.",
    )
)
register_signal(
    Signal(
        name="top_score",
        compute=top_score,
        range=_ANY,
        unit="score",
        needs=frozenset({"pool_scores"}),
        source=_SEARCHED,
        component=_RETRIEVAL,
        first_round=1,
        doc="The retriever's score of rank 1.",
    )
)
register_signal(
    Signal(
        name="score_gap",
        compute=score_gap,
        range=(0.0, _INFINITY),
        unit="score",
        needs=frozenset({"pool_scores"}),
        source=_SEARCHED,
        component=_RETRIEVAL,
        first_round=1,
        doc="The retriever's score of rank 1 minus that of rank 2.",
    )
)
register_signal(
    Signal(
        name="top_score_z_pool",
        compute=top_score_z_pool,
        range=_ANY,
        unit="z",
        needs=frozenset({"pool_scores"}),
        source=_SEARCHED,
        component=_RETRIEVAL,
        first_round=1,
        doc="top_score within the question's pool, in standard deviations.",
    )
)
register_signal(
    Signal(
        name="top_score_z",
        compute=None,
        range=_ANY,
        unit="z",
        needs=frozenset({"pool_scores"}),
        source=_SEARCHED,
        component=_RETRIEVAL,
        first_round=1,
        fitted=True,
        doc="top_score against the tune questions, by mean and standard deviation.",
    )
)
register_signal(
    Signal(
        name="top_score_z_robust",
        compute=top_score_z_robust,
        range=_ANY,
        unit="z",
        needs=frozenset({"pool_scores"}),
        source=_NEGATIVE,
        component=_RETRIEVAL,
        first_round=1,
        doc="top_score within the question's pool, in interquartile ranges from its median.",
    )
)
register_signal(
    Signal(
        name="rerank_score",
        compute=None,
        range=_ANY,
        unit="score",
        needs=frozenset({"reranker"}),
        source=_NEGATIVE,
        component="reranker",
        first_round=1,
        doc="A cross-encoder's score of the new passage.",
    )
)
register_signal(
    Signal(
        name="judge_entailment",
        compute=None,
        range=(1.0, 5.0),
        unit="score",
        needs=frozenset({"judge"}),
        source=_SEARCHED,
        component="judge:entailment",
        first_round=1,
        doc="A judge model's mark of how well the evidence entails the answer, 1..5.",
    )
)
register_signal(
    Signal(
        name="verbal_confidence",
        compute=verbal_confidence,
        range=(1.0, 5.0),
        unit="score",
        needs=frozenset({"verbal_confidence"}),
        source="TASR, section 3.2",
        doc="The confidence that the model states in its reply, 1..5.",
    )
)
register_signal(
    Signal(
        name="calibrated_confidence",
        compute=None,
        range=(0.0, 1.0),
        unit="probability",
        needs=frozenset({"verbal_confidence"}),
        source="TASR, section 3.2",
        fitted=True,
        doc="P(correct) by the policy's calibrator of verbal_confidence.",
    )
)
register_signal(
    Signal(
        name="answer_probability",
        compute=None,
        range=(0.0, 1.0),
        unit="probability",
        needs=frozenset({"answer_probability"}),
        doc="The model's own probability of its answer, summed over the spans that spell it.",
    )
)
register_signal(
    Signal(
        name="p_correct",
        compute=None,
        range=(0.0, 1.0),
        unit="probability",
        needs=frozenset({"logprobs"}),
        source="TASR, section 3.3",
        fitted=True,
        doc="P(correct) by the policy's calibrator of answer_margin.",
    )
)
register_signal(
    Signal(
        name="round",
        compute=None,
        range=(0.0, _INFINITY),
        unit="count",
        component="",
        doc="The index of the round; known to every policy.",
    )
)
register_signal(
    Signal(
        name="calls",
        compute=None,
        range=(0.0, _INFINITY),
        unit="count",
        needs=frozenset({"costs"}),
        component="",
        doc="The loop's own generation calls since its first round.",
    )
)
register_signal(
    Signal(
        name="tokens",
        compute=None,
        range=(0.0, _INFINITY),
        unit="count",
        needs=frozenset({"costs"}),
        component="",
        doc="Input and output tokens of the loop's own generation calls since its first round.",
    )
)
register_signal(
    Signal(
        name="seconds",
        compute=None,
        range=(0.0, _INFINITY),
        unit="seconds",
        needs=frozenset({"costs"}),
        component="",
        doc="Seconds of the loop's own generation calls since its first round; not exactly replayable.",
    )
)
