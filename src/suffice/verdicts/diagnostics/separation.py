"""The separation of a signal between right and wrong answers: Cohen's d, with the question as the unit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from suffice.evaluation.statistics import ROUNDING, Resampling
from suffice.policy.rounds import Floats
from suffice.verdicts.diagnostics.rows import Rows

MOST_UNDEFINED = 0.05
"""The share of draws in which a statistic may be undefined before its interval is."""


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
    n1, s1, q1, n0, s0, q0 = np.moveaxis(totals, -2, 0)  # 1 = right, 0 = wrong
    usable = (n1 > 0) & (n0 > 0) & (n1 + n0 > 2)  # noqa: PLR2004
    n1, n0 = np.where(usable, n1, 1.0), np.where(usable, n0, 2.0)  # any numbers that divide without a warning
    within = (q1 - s1**2 / n1) + (q0 - s0**2 / n0)
    usable &= within > ROUNDING * (q1 + q0)
    pooled = np.sqrt(np.where(usable, within / (n1 + n0 - 2), 1.0))
    return np.where(usable, (s1 / n1 - s0 / n0) / pooled, np.nan)


def cohens_d(rows: Rows, names: Sequence[str]) -> Floats:
    """Return (mean when right - mean when wrong) / pooled standard deviation of each signal, shape ``(n_signals,)``.

    NaN where a class is empty or the signal does not vary within the classes.  Source: Cohen (1988), section 2.2.
    """
    return _d_of(_moments(rows, names).sum(axis=0))


def draw_d(rows: Rows, names: Sequence[str], resampling: Resampling) -> Floats:
    """Return Cohen's d of each signal in bootstrap draws of questions, shape ``(n_draws, n_signals)``.

    All signals share the draws.  NaN where d is undefined in a draw.
    """
    # d of a draw follows from the sums over units, so a draw is one product instead of a pass over all rounds.
    flat = _moments(rows, names).reshape(rows.n_units, 6 * len(names))
    drawn = resampling.draws(rows.names or range(rows.n_units)).sums(flat.T)
    return _d_of(drawn.T.reshape(drawn.shape[1], 6, len(names)))


def ends(draws: Floats, level: float) -> tuple[Floats, Floats]:
    """Return percentile ends of each column of draws; NaN where more than one draw in twenty is undefined."""
    # Linear interpolation between order statistics of the defined draws; `np.nanquantile` takes a Python loop over columns.
    ordered = np.sort(draws, axis=0)  # NaN last
    defined = (~np.isnan(draws)).sum(axis=0)
    usable = defined >= (1 - MOST_UNDEFINED) * len(draws)
    columns, last = np.arange(draws.shape[1]), np.maximum(defined - 1, 0)

    def quantile(share: float) -> Floats:
        place = share * last
        lower = np.floor(place).astype(np.int64)
        low, high = ordered[lower, columns], ordered[np.minimum(lower + 1, last), columns]
        return np.where(usable, low + (place - lower) * (high - low), np.nan)

    return quantile((1 - level) / 2), quantile((1 + level) / 2)


def with_ends(name: str) -> Callable[[Any], Any]:
    """Return a function that reads a figure with its interval, ``NAME_low`` to ``NAME_high``; without it if it is undefined."""

    def read(item: Any) -> Any:
        value, low, high = (getattr(item, f"{name}{end}") for end in ("", "_low", "_high"))
        return value if np.isnan(low) else (value, low, high)

    return read
