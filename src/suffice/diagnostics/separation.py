"""How far a signal lies apart for right and wrong answers: Cohen's d and AUROC, the question being the unit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np

from suffice.diagnostics.rows import Coded, Codes, Rows
from suffice.rounds import Floats, Mask
from suffice.statistics import bootstrap_weights

__all__ = ["auroc", "cohens_d", "draw_d", "ends"]

_NAN = math.nan
_LARGEST_DRAW = 2**23
_ROUNDING = 1e-12
MOST_UNDEFINED = 0.05
"""The share of draws in which a statistic may be undefined before its interval is."""


def auroc(
    signal: Coded, right: Mask, wrong: Mask, unit: Codes, n_units: int, *, level: float = 0.95
) -> tuple[float, float, float]:
    """Return the area under the ROC curve of a signal, with an interval that takes the question as the unit.

    The area is the probability that a right round has the larger signal than a wrong one, ties counting half.  Rounds
    of one question depend on each other, so its variance is the clustered one of Obuchowski (Biometrics 53, 1997),
    which is DeLong's where each question has one round; the interval is taken on the logit scale and stays in (0, 1).

    Args:
        signal: The signal of each row.
        right: Which rows are right, shape ``(n_rows,)``.
        wrong: Which rows are wrong.
        unit: The question of each row, 0..n_units - 1.
        n_units: How many questions there are.
        level: Nominal coverage.

    Returns:
        ``(area, low, high)``; NaN without a right and a wrong row.  The ends are NaN where the area is 0 or 1, the
        signal is constant, or fewer than two questions have right or wrong rows: its spread is then unknown.
    """
    right, wrong = right & signal.defined, wrong & signal.defined
    above, below = signal.counts(right), signal.counts(wrong)
    n_right, n_wrong = int(above.sum()), int(below.sum())
    if not n_right or not n_wrong:
        return _NAN, _NAN, _NAN
    beaten = (np.cumsum(below) - below / 2) / n_wrong  # by a right row of each value: share of wrong rows
    beating = 1 - (np.cumsum(above) - above / 2) / n_right  # a wrong row of each value: share of right rows
    area = float((above * beaten).sum()) / n_right  # no BLAS here: its threads cost more than such short sums
    won = np.bincount(unit[right], beaten[signal.codes[right]] - area, n_units)
    lost = np.bincount(unit[wrong], beating[signal.codes[wrong]] - area, n_units)
    clusters = [np.bincount(unit[rows], minlength=n_units) > 0 for rows in (right, wrong)]
    k_right, k_wrong, k = (int(mask.sum()) for mask in (*clusters, clusters[0] | clusters[1]))
    if k_right < 2 or k_wrong < 2 or not _ROUNDING < area < 1 - _ROUNDING:  # noqa: PLR2004
        return area, _NAN, _NAN
    variance = (
        k_right / (k_right - 1) * float((won**2).sum()) / n_right**2
        + k_wrong / (k_wrong - 1) * float((lost**2).sum()) / n_wrong**2
        + 2 * k / (k - 1) * float((won * lost).sum()) / (n_right * n_wrong)
    )
    if variance <= 0:
        return area, _NAN, _NAN
    spread = math.sqrt(variance) / (area * (1 - area))
    reach = NormalDist().inv_cdf((1 + level) / 2) * spread
    logit = math.log(area / (1 - area))
    return area, _expit(logit - reach), _expit(logit + reach)


def _expit(x: float) -> float:
    return 1 / (1 + math.exp(-x)) if x > -700 else 0.0  # noqa: PLR2004


def _moments(rows: Rows, names: Sequence[str]) -> Floats:
    """Return count, sum and sum of squares of right, then wrong rows, by unit: shape ``(n_units, 6, n_signals)``."""
    moments = np.zeros((rows.n_units, 6, len(names)))
    for position, name in enumerate(names):
        column = rows.columns[name]
        defined = ~np.isnan(column)
        if not defined.any():
            continue
        low, high = float(column[defined].min()), float(column[defined].max())
        scale = (high - low) or 1.0
        centred = np.where(defined, (column - low) / scale - 0.5, 0.0)  # d does not change, and squares stay small
        for half, mask in enumerate((rows.labelled(1) & defined, rows.labelled(0) & defined)):
            unit, values = rows.unit[mask], centred[mask]
            for power, weights in enumerate((None, values, values**2)):
                moments[:, 3 * half + power, position] = np.bincount(unit, weights, rows.n_units)
    return moments


def _d_of(totals: Floats) -> Floats:
    """Return Cohen's d from count, sum and sum of squares of both classes, shape ``(..., 6, n)`` to ``(..., n)``."""
    n1, s1, q1, n0, s0, q0 = np.moveaxis(totals, -2, 0)
    usable = (n1 > 0) & (n0 > 0) & (n1 + n0 > 2)  # noqa: PLR2004
    n1, n0 = np.where(usable, n1, 1.0), np.where(usable, n0, 2.0)
    within = (q1 - s1**2 / n1) + (q0 - s0**2 / n0)
    usable &= within > _ROUNDING * (q1 + q0)
    pooled = np.sqrt(np.where(usable, within / (n1 + n0 - 2), 1.0))
    return np.where(usable, (s1 / n1 - s0 / n0) / pooled, np.nan)


def cohens_d(rows: Rows, names: Sequence[str]) -> Floats:
    """Return (mean when right - mean when wrong) / pooled standard deviation of each signal, shape ``(n_signals,)``.

    NaN where a class is empty or the signal does not vary within the classes.  Source: Cohen (1988), section 2.2.
    """
    return _d_of(_moments(rows, names).sum(axis=0))


def draw_d(rows: Rows, names: Sequence[str], *, n_resamples: int, rng: np.random.Generator | int) -> Floats:
    """Return Cohen's d of each signal in bootstrap draws of questions, shape ``(n_resamples, n_signals)``.

    All signals share the draws.  NaN where d is undefined in a draw.
    """
    generator = np.random.default_rng(rng)
    flat = _moments(rows, names).reshape(rows.n_units, -1)
    step = max(1, _LARGEST_DRAW // rows.n_units)
    parts = []
    for start in range(0, n_resamples, step):
        weights = bootstrap_weights(rows.n_units, min(step, n_resamples - start), rng=generator)
        parts.append(_d_of((weights @ flat).reshape(len(weights), 6, len(names))))
    return np.concatenate(parts)


def ends(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return percentile ends of each column of draws; NaN where more than one draw in twenty is undefined."""
    ordered = np.sort(draws, axis=0)  # NaN last
    defined = (~np.isnan(draws)).sum(axis=0)
    usable = defined >= (1 - MOST_UNDEFINED) * len(draws)
    columns = np.arange(draws.shape[1])
    found = []
    for share in ((1 - level) / 2, (1 + level) / 2):
        place = share * np.maximum(defined - 1, 0)
        lower = np.floor(place).astype(np.int64)
        upper = np.minimum(lower + 1, np.maximum(defined - 1, 0))
        low, high = ordered[lower, columns], ordered[upper, columns]
        found.append(np.where(usable, low + (place - lower) * (high - low), np.nan))
    return found[0], found[1]
