"""The area under the ROC curve of one score for each question, with an interval."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.rounds import Floats

__all__ = ["Area", "area_under_roc"]

_FEWEST = 2
_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """The area under a ROC curve: how often a positive has the larger score than a negative, ties counting half.

    Attributes:
        value: In [0, 1]; 0.5 is chance. NaN without a positive and a negative.
        low: Lower end of the interval; NaN where the spread is unknown.
        high: Upper end.
        level: Nominal coverage.
        n: Rows with a defined score.
        n_positive: Positives among them.
    """

    value: float
    low: float
    high: float
    level: float
    n: int
    n_positive: int


def area_under_roc(scores: npt.ArrayLike, labels: npt.ArrayLike, *, level: float = 0.95) -> Area:
    """Return the area under the ROC curve, with DeLong's interval on the logit scale (Biometrics 44, 1988).

    >>> area_under_roc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).value
    0.75

    Args:
        scores: Shape ``(n,)``; rows whose score is NaN are left out.
        labels: 0 or 1, same shape.
        level: Nominal coverage.

    Raises:
        DataError: Shapes that differ, or labels other than 0 and 1.
    """
    score, label = np.asarray(scores, dtype=np.float64), np.asarray(labels, dtype=np.float64)
    if score.shape != label.shape or score.ndim != 1:
        raise DataError(f"scores of shape {score.shape} for labels of shape {label.shape}: give one of each a question")
    if not np.isin(label, (0.0, 1.0)).all():
        raise DataError("labels of an area under the ROC curve are 0 or 1: put a threshold on a graded outcome")
    known = ~np.isnan(score)
    above, below = score[known & (label == 1)], score[known & (label == 0)]
    counts: dict[str, Any] = {"level": level, "n": int(known.sum()), "n_positive": len(above)}
    if not len(above) or not len(below):
        return Area(value=math.nan, low=math.nan, high=math.nan, **counts)
    won, beaten = _placements(above, below), 1 - _placements(below, above)
    area = float(won.mean())
    if min(len(above), len(below)) < _FEWEST or not _ROUNDING < area < 1 - _ROUNDING:
        return Area(value=area, low=math.nan, high=math.nan, **counts)
    spread = math.sqrt(won.var(ddof=1) / len(won) + beaten.var(ddof=1) / len(beaten)) / (area * (1 - area))
    if not spread > 0:
        return Area(value=area, low=math.nan, high=math.nan, **counts)
    reach = NormalDist().inv_cdf((1 + level) / 2) * spread
    logit = math.log(area / (1 - area))
    return Area(value=area, low=_expit(logit - reach), high=_expit(logit + reach), **counts)


def _placements(of: Floats, among: Floats) -> Floats:
    """Return the share of `among` that each value of `of` exceeds, ties counting half."""
    ordered = np.sort(among)
    both = np.searchsorted(ordered, of, side="left") + np.searchsorted(ordered, of, side="right")
    share: Floats = both / (2 * len(among))
    return share


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0  # noqa: PLR2004
