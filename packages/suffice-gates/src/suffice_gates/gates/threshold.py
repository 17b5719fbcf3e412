"""Choice of a gate's threshold from the metrics of answers without and with retrieval."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask


@dataclass(frozen=True, slots=True)
class BothWays:
    """A metric of the same questions, answered without and with retrieval.

    Attributes:
        direct: Metric of the answers without retrieval, shape ``(n,)``, in [0, 1].
        retrieved: Metric of the answers with retrieval, same shape.
    """

    direct: Floats
    retrieved: Floats

    def __getitem__(self, questions: Mask) -> BothWays:
        return BothWays(self.direct[questions], self.retrieved[questions])

    @property
    def right(self) -> tuple[Mask, Mask]:
        """Masks of the right answers, without and with retrieval. An answer is right if its metric is at least one half."""
        return self.direct >= 0.5, self.retrieved >= 0.5  # noqa: PLR2004

    @property
    def not_needed(self) -> Mask:
        """Mask of the questions that do not need retrieval: right without retrieval, or wrong with retrieval."""
        direct, retrieved = self.right
        return direct | ~retrieved


def choose_beta(scores: Floats, answers: BothWays, *, low: bool = False, rate: float | None = None) -> float:
    """Return the threshold with the best mean metric on tune questions; among ties, the threshold with the fewest retrievals.

    >>> import numpy as np
    >>> choose_beta(np.array([0.9, 0.4, 0.1]), BothWays(np.array([1.0, 0.0, 0.0]), np.array([1.0, 1.0, 0.0])))
    0.4

    Args:
        scores: Scores of the gate, shape ``(n,)``; NaN retrieves.
        answers: The metric of the same questions.
        low: True if low scores answer directly.
        rate: Choose the threshold whose retrieval rate is nearest to this rate, instead of the one with the best
            metric.

    Raises:
        DataError: No score is defined, or the rate is outside [0, 1].
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
    """Cross-fit a gate and its threshold.

    For each fold, a gate is fitted on the other folds, and its threshold is chosen on the cross-fitted scores of those
    folds.  Return each question's score minus the threshold, and the score itself, both of shape ``(n,)``.

    Args:
        folds: The fold of each question.
        fit: Function that fits a gate on a mask of questions; it returns the cross-fitted scores of these questions,
            and a function that scores any mask of questions.
        answers: The metric of the questions.
        low: True if low scores answer directly; the first result then has the opposite sign, the second does not.
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
