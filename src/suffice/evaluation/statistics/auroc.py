"""The area under the ROC curve of a score, with an interval that takes the question as the unit."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.units import ROUNDING
from suffice.policy.rounds import Floats, Mask

Codes = npt.NDArray[np.int64]
_FEWEST = 2


@dataclass(frozen=True, slots=True)
class Coded:
    """A column stored as its sorted distinct values, and the position of each row's value, for fast ranks and counts.

    Attributes:
        values: The different values, ascending, shape ``(n_values,)``.
        codes: The position of each row's value, shape ``(n_rows,)``; -1 where undefined.
    """

    values: Floats
    codes: Codes

    @classmethod
    def of(cls, column: Floats) -> Coded:
        """Code a column, shape ``(n_rows,)`` with NaN where undefined."""
        defined = ~np.isnan(column)
        codes = np.full(len(column), -1, dtype=np.int64)
        values, inverse = np.unique(column[defined], return_inverse=True)
        codes[defined] = inverse
        return cls(values, codes)

    @property
    def defined(self) -> Mask:
        """Mask of the rows with a defined value, shape ``(n_rows,)``."""
        return self.codes >= 0

    def counts(self, rows: Mask) -> Codes:
        """Count the rows with each value, shape ``(n_values,)``."""
        return np.bincount(self.codes[rows & self.defined], minlength=len(self.values))

    def ranks(self, rows: Mask) -> Floats:
        """Return the average ranks of some rows among themselves, shape ``(n,)``; all of them must be defined."""
        codes = self.codes[rows]
        counts = np.bincount(codes, minlength=len(self.values))
        average: Floats = np.cumsum(counts) - (counts - 1) / 2
        return average[codes]


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """The area under a ROC curve: the probability that a positive has a larger score than a negative.

    Ties count half.

    Attributes:
        value: The area, in [0, 1]; 0.5 is chance. NaN without a positive and a negative.
        low: Lower end of the interval; NaN if the spread is unknown.
        high: Upper end.
        level: Nominal coverage.
        n: Number of rows with a defined score.
        n_positive: Number of these rows that are positive.
    """

    value: float
    low: float
    high: float
    level: float
    n: int
    n_positive: int


def area_under_roc(
    scores: npt.ArrayLike | Coded, labels: npt.ArrayLike, *, unit: Codes | None = None, level: float = 0.95
) -> Area:
    """Return the area under the ROC curve, with an interval on the logit scale, which stays in (0, 1).

    Rows of one question depend on each other, so the variance is Obuchowski's for clustered data (Biometrics 53, 1997).
    If each question has one row, this is DeLong's variance (Biometrics 44, 1988).

    >>> area_under_roc([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1]).value
    0.75

    Args:
        scores: Scores of shape ``(n,)``, or a coded column; rows with a NaN score are left out.
        labels: 0 or 1, same shape; rows with a NaN label are left out.
        unit: The question of each row, 0..n_units - 1; None = each row is a question of its own.
        level: Nominal coverage.

    Returns:
        The area; NaN without a positive and a negative row.  The ends are NaN where the area is 0 or 1, the score is
        constant, or fewer than two questions have positive or negative rows: the spread is then unknown.

    Raises:
        DataError: Shapes that differ, or labels other than 0, 1 and NaN.
    """
    score = scores if isinstance(scores, Coded) else Coded.of(np.asarray(scores, dtype=np.float64))
    label = np.asarray(labels, dtype=np.float64)
    if score.codes.shape != label.shape or label.ndim != 1:
        raise DataError(
            f"scores of shape {score.codes.shape} for labels of shape {label.shape}: give one label a score"
        )
    if not np.isin(label[~np.isnan(label)], (0.0, 1.0)).all():
        raise DataError("labels of an area under the ROC curve are 0 or 1: put a threshold on a graded outcome")
    right, wrong = (score.defined & (label == outcome) for outcome in (1, 0))
    above, below = score.counts(right), score.counts(wrong)
    n_right, n_wrong = int(above.sum()), int(below.sum())
    undefined = Area(value=math.nan, low=math.nan, high=math.nan, level=level, n=n_right + n_wrong, n_positive=n_right)
    if not n_right or not n_wrong:
        return undefined
    beaten = (np.cumsum(below) - below / 2) / n_wrong  # share of wrong rows that a right row of each value beats
    beating = 1 - (np.cumsum(above) - above / 2) / n_right  # share of right rows that beat a wrong row of each value
    area = (
        float((above * beaten).sum()) / n_right
    )  # no BLAS here, since starting its threads takes longer than such short sums
    units = np.arange(len(label)) if unit is None else unit
    n_units = int(units.max()) + 1
    won = np.bincount(units[right], beaten[score.codes[right]] - area, n_units)
    lost = np.bincount(units[wrong], beating[score.codes[wrong]] - area, n_units)
    clusters = [np.bincount(units[rows], minlength=n_units) > 0 for rows in (right, wrong)]
    k_right, k_wrong, k = (int(mask.sum()) for mask in (*clusters, clusters[0] | clusters[1]))
    known = replace(undefined, value=area)
    if min(k_right, k_wrong) < _FEWEST or not ROUNDING < area < 1 - ROUNDING:
        return known
    variance = (
        k_right / (k_right - 1) * float((won**2).sum()) / n_right**2
        + k_wrong / (k_wrong - 1) * float((lost**2).sum()) / n_wrong**2
        + 2 * k / (k - 1) * float((won * lost).sum()) / (n_right * n_wrong)
    )
    if variance <= 0:
        return known
    reach = NormalDist().inv_cdf((1 + level) / 2) * math.sqrt(variance) / (area * (1 - area))
    logit = math.log(area / (1 - area))
    return replace(known, low=_expit(logit - reach), high=_expit(logit + reach))


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0  # noqa: PLR2004
