"""Disagreement among sampled replies: the entropy of their meanings, and the spread of their states.

Both numbers are higher if the model knows less.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.metrics import normalize_answer

_MATRIX = 2
_REGULARIZER = 1e-3

Same = Callable[[str, str], bool]
"""A function that returns True if two answers mean the same."""


def same_answer(first: str, second: str) -> bool:
    """Return whether two answers are equal without case, punctuation and articles.

    >>> same_answer("The Beatles", "beatles.")
    True
    """
    return normalize_answer(first) == normalize_answer(second)


def clusters(answers: Sequence[str], same: Same = same_answer) -> list[int]:
    """Return the cluster of each answer, numbered in order of appearance.

    An answer joins the first cluster whose first member implies the answer and is implied by it (bidirectional
    entailment; Kuhn et al., 2023, algorithm 1).

    >>> clusters(["Paris", "Rome", "paris."])
    [0, 1, 0]

    Args:
        answers: Samples of one question.
        same: Function that returns True if its first argument implies its second. The default tests whether both are
            the same answer (see `same_answer`); an entailment model may be used instead.
    """
    firsts: list[str] = []
    labels = []
    for answer in answers:
        for number, first in enumerate(firsts):
            if same(answer, first) and same(first, answer):
                labels.append(number)
                break
        else:
            labels.append(len(firsts))
            firsts.append(answer)
    return labels


def semantic_entropy(
    answers: Sequence[str], logprobs: Sequence[float] | None = None, *, same: Same = same_answer
) -> float:
    """Return the entropy over the meanings of sampled answers, nats in [0, log(number of answers)].

    Without log-probabilities all samples count equally (the discrete estimate of Farquhar et al., 2024, methods).  With
    log-probabilities, the weight of a meaning is the summed probability of its different wordings (Kuhn et al., 2023,
    equations 3 and 4); repeated wordings count once.  The weights are normalised to sum 1, as in Farquhar et al., 2024.

    >>> round(semantic_entropy(["Paris", "paris", "Rome", "Bonn"]), 4)
    1.0397

    Args:
        answers: Samples of one question, at least one.
        logprobs: Log-probability of each sample, nats.
        same: Returns True if the first answer implies the second.

    Raises:
        DataError: `answers` is empty, or the number of log-probabilities differs.
    """
    if not answers or (logprobs is not None and len(logprobs) != len(answers)):
        n_logprobs = "none" if logprobs is None else len(logprobs)
        raise DataError(f"semantic entropy needs samples: got {len(answers)} answers, {n_logprobs} log-probabilities")
    groups = np.array(clusters(answers, same))
    weights = np.full(len(answers), 1.0 / len(answers))
    if logprobs is not None:
        values = np.asarray(logprobs, dtype=np.float64)
        if not np.isfinite(values).all():
            return math.nan
        weights = np.exp(values - values.max())
        wordings: set[str] = set()
        for i, answer in enumerate(answers):
            weights[i] *= answer not in wordings
            wordings.add(answer)
        weights /= weights.sum()
    shares = np.bincount(groups, weights=weights)
    shares = shares[shares > 0]
    return max(0.0, float(-(shares * np.log(shares)).sum()))


def gram_uncertainty(states: npt.NDArray[np.floating], *, regularizer: float = _REGULARIZER) -> float:
    """Return the spread of the states of sampled answers: ``log det(Z J Z' + a I) / k``.

    Z has one state per row, J subtracts the mean of each row, and a keeps the determinant positive.  Source: SeaKR (Yao et
    al., 2024, section 3.2), which takes it from INSIDE (Chen et al., 2024, equation 6, EigenScore).

    Args:
        states: Shape ``(k, width)``, one state for each sample.
        regularizer: a, above 0.

    Returns:
        A score without unit, lowest if all samples agree.  NaN if a state is undefined.

    Raises:
        DataError: `states` is empty, or the regularizer is not positive.
    """
    rows = np.asarray(states, dtype=np.float64)
    if rows.ndim != _MATRIX or not len(rows) or not regularizer > 0:
        raise DataError(
            f"the Gram determinant needs states of shape (k, width) and a regularizer above 0, got {rows.shape!r} "
            f"and {regularizer!r}"
        )
    if not np.isfinite(rows).all():
        return math.nan
    centred = rows - rows.mean(axis=1, keepdims=True)
    _, logdet = np.linalg.slogdet(centred @ centred.T + regularizer * np.eye(len(rows)))
    return float(logdet) / len(rows)
