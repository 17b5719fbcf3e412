"""A gate's threshold: chosen on what the answers without and with retrieval are worth."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask

__all__ = ["BothWays", "choose_beta", "cross_fit"]


@dataclass(frozen=True, slots=True)
class BothWays:
    """A metric of the same questions, answered without and with retrieval.

    Attributes:
        direct: Of the answers without retrieval, shape ``(n,)``, in [0, 1].
        retrieved: Of those with it, same shape.
    """

    direct: Floats
    retrieved: Floats

    def __getitem__(self, questions: Mask) -> BothWays:
        return BothWays(self.direct[questions], self.retrieved[questions])

    @property
    def right(self) -> tuple[Mask, Mask]:
        """Whether each answer is right without and with retrieval: at least half of the metric."""
        return self.direct >= 0.5, self.retrieved >= 0.5  # noqa: PLR2004

    @property
    def not_needed(self) -> Mask:
        """Whether retrieval does not make a wrong answer right."""
        direct, retrieved = self.right
        return direct | ~retrieved


def choose_beta(scores: Floats, answers: BothWays, *, low: bool = False, rate: float | None = None) -> float:
    """Return the threshold with the best mean on tune questions; among equals the one that retrieves least.

    >>> import numpy as np
    >>> choose_beta(np.array([0.9, 0.4, 0.1]), BothWays(np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0])))
    0.4

    Args:
        scores: Shape ``(n,)``; NaN retrieves.
        answers: The metric of the same questions.
        low: Whether low scores answer directly.
        rate: Choose by the retrieval rate instead: the threshold whose rate is nearest to this.

    Raises:
        DataError: No score is defined, or a rate outside [0, 1].
    """
    sign = -1.0 if low else 1.0
    signed = sign * np.asarray(scores, dtype=np.float64)
    known = np.unique(signed[np.isfinite(signed)])
    if not len(known):
        raise DataError("a gate without a single defined score has no threshold to choose")
    betas = np.concatenate([[np.nextafter(known[0], -np.inf)], known])
    direct = np.where(np.isfinite(signed), signed, -np.inf)[None, :] > betas[:, None]
    rates = 1 - direct.mean(axis=1)
    if rate is None:
        quality = np.where(direct, answers.direct, answers.retrieved).mean(axis=1)
        best = int(np.argmax(quality >= quality.max() - 1e-12))  # ascending betas: the first retrieves least
    elif 0 <= rate <= 1:
        best = int(np.argmin(np.abs(rates - rate)))
    else:
        raise DataError(f"a retrieval rate lies in [0, 1], not {rate!r}")
    return float(sign * betas[best])


def cross_fit(
    folds: npt.NDArray[np.int64],
    fit: Callable[[Mask], tuple[Floats, Callable[[Mask], Floats]]],
    answers: BothWays,
    *,
    low: bool = False,
    rate: float | None = None,
) -> tuple[Floats, Floats]:
    """Return each question's score less its threshold, and the score, both from the other folds, shape ``(n,)``.

    For each fold a gate is fitted on the others, and its threshold is chosen on the others' own cross-fitted scores.

    Args:
        folds: The fold of each question.
        fit: From a mask of questions to their cross-fitted scores and a function that scores any mask of questions.
        answers: The metric of the questions.
        low: Whether low scores answer directly; the sign of the first result is then reversed, the second is not.
        rate: See `choose_beta`.
    """
    sign = -1.0 if low else 1.0
    above, ranks = np.full(len(folds), np.nan), np.full(len(folds), np.nan)
    for fold in np.unique(folds):
        inside = folds == fold
        scores, score = fit(~inside)
        beta = choose_beta(scores, answers[~inside], low=low, rate=rate)
        ranks[inside] = score(inside)
        above[inside] = sign * (ranks[inside] - beta)
    return above, ranks
