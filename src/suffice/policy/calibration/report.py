"""The match of probabilities and outcomes: Brier score, expected calibration error, reliability bins."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """One of the reliability bins, which have equal width.

    A bin is [low, high), but the last bin includes its upper edge.

    Attributes:
        low: Lower edge, a probability.
        high: Upper edge.
        n: Rows in the bin.
        predicted: Mean probability; NaN if the bin is empty.
        observed: Mean outcome; NaN if the bin is empty.
    """

    low: float
    high: float
    n: int
    predicted: float
    observed: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationReport:
    """The calibration of one set of rows.

    A lower Brier score does not promise a better stopping rule (TASR section 6.3), so read it beside the quality and
    calls of the rule.

    Attributes:
        n: Rows with both a probability and an outcome.
        brier: Mean squared difference between probability and outcome, in [0, 1]; lower is better.
        brier_uninformed: The Brier score of a constant prediction of the mean outcome.
        ece: Expected calibration error over the bins, in [0, 1].
        bins: Reliability bins.
        ece_if_calibrated: Approximate mean that `ece` would have if outcomes had exactly these probabilities. Chance
            alone makes it larger than 0, most of all with few rows.
    """

    n: int
    brier: float
    brier_uninformed: float
    ece: float
    bins: tuple[ReliabilityBin, ...]
    ece_if_calibrated: float = math.nan


def calibration_report(probabilities: npt.ArrayLike, outcomes: npt.ArrayLike, *, n_bins: int = 10) -> CalibrationReport:
    """Compare probabilities with outcomes, which have the same shape and lie in [0, 1]; rows with NaN are left out.

    >>> report = calibration_report([0.0, 0.5, 0.5, 1.0], [0, 0, 1, 1])
    >>> report.brier, report.ece, round(report.ece_if_calibrated, 2)
    (0.125, 0.0, 0.14)

    Raises:
        DataError: No usable row, or values outside [0, 1].
    """
    p, y = np.asarray(probabilities, dtype=np.float64).ravel(), np.asarray(outcomes, dtype=np.float64).ravel()
    usable = np.isfinite(p) & np.isfinite(y)
    p, y = p[usable], y[usable]
    if not len(p):
        raise DataError("no row has both a probability and an outcome")
    if p.min() < 0 or p.max() > 1 or y.min() < 0 or y.max() > 1:
        raise DataError("probabilities and outcomes must lie in [0, 1]")
    which = np.minimum((p * n_bins).astype(np.int64), n_bins - 1)
    bins = []
    ece = chance = 0.0
    for position in range(n_bins):
        rows = which == position
        n = int(rows.sum())
        predicted, observed = (float(p[rows].mean()), float(y[rows].mean())) if n else (float("nan"), float("nan"))
        if n:
            ece += n / len(p) * abs(predicted - observed)
            # The mean size of a normal deviation is sqrt(2 / pi) standard deviations.
            chance += math.sqrt(2 / math.pi * float((p[rows] * (1 - p[rows])).sum())) / len(p)
        low, high = position / n_bins, (position + 1) / n_bins
        bins.append(ReliabilityBin(low=low, high=high, n=n, predicted=predicted, observed=observed))
    return CalibrationReport(
        n=len(p),
        brier=float(np.mean((p - y) ** 2)),
        brier_uninformed=float(np.mean((y.mean() - y) ** 2)),
        ece=ece,
        bins=tuple(bins),
        ece_if_calibrated=chance,
    )
