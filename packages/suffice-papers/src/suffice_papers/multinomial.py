"""Multinomial draws of questions by their position, for published figures; equal to those of `scipy.stats.bootstrap`.

All other draws depend on names (`suffice.evaluation.statistics.Resampling.draws`), so that the order of the rows does
not matter.  But figures that are compared with a paper's figures use the paper's draws, which depend on positions.
"""

from __future__ import annotations

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics import Clusters, Draws, Resampling, Units
from suffice.policy.rounds import Floats


def draws_by_place(resampling: Resampling, n_rows: int, clusters: Clusters = None) -> Draws:
    """Return multinomial draws of `n_rows` questions.

    `clusters` contains the resampling unit of each question; with None, each question is a unit.

    >>> draws_by_place(Resampling(seed=1), 3).weights.shape
    (1000, 3)

    Raises:
        DataError: There are no rows or no resamples, or `clusters` has another length than `n_rows`.
    """
    units = Units.of(n_rows, clusters)
    weights = bootstrap_weights(units.n_units, resampling.n_resamples, rng=resampling.seed)
    if resampling.n_resamples == 1:  # one draw shows no spread, and no interval may pretend to have no width
        weights = np.full_like(weights, np.nan)
    own = None if units.codes is None else clusters
    return Draws(resampling=resampling, clusters=own, names=clusters, units=units, weights=weights)


def bootstrap_weights(n_units: int, n_resamples: int = 1000, *, rng: np.random.Generator | int) -> Floats:
    """Return how often each unit is drawn, shape ``(n_resamples, n_units)``; each row sums to `n_units`.

    Draw the weights once for a question set and share them, so that two rules are compared on the same resamples.  The
    draws are those of `scipy.stats.bootstrap(..., paired=True)` with the same generator.  The weights of a single unit
    are NaN, so that no interval has a false width of 0.

    >>> bootstrap_weights(3, 2, rng=0).tolist()
    [[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]

    Args:
        n_units: Number of units, which is also the number of draws in a resample.
        n_resamples: Number of resamples.
        rng: Generator, or the seed of one.

    Raises:
        DataError: `n_units` or `n_resamples` is below 1.
    """
    if n_units < 1 or n_resamples < 1:
        raise DataError(f"a bootstrap needs units and resamples, not {n_units!r} and {n_resamples!r}; allowed: >= 1")
    if n_units == 1:
        return np.full((n_resamples, 1), np.nan)
    units = np.random.default_rng(rng).integers(0, n_units, size=(n_resamples, n_units))
    units += n_units * np.arange(n_resamples)[:, None]
    counts = np.bincount(units.ravel(), minlength=n_resamples * n_units)
    return counts.reshape(n_resamples, n_units).astype(np.float64)
