"""Resampled means: one draw for each question set serves every rule and every metric.

Differences between rules then carry no noise from the draw itself, and all of them cost one matrix product.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics.units import Units
from suffice.policy.rounds import Floats

__all__ = ["blocks", "bootstrap_weights", "check_weights", "quantiles", "resampled_means"]

_LARGEST_BLOCK = 2**23
"""Resampled means held at once, a bound on memory (64 MiB)."""

_WORTH_THREADS = 2**18
"""Numbers from which partitioning on several threads pays."""


def bootstrap_weights(n_units: int, n_resamples: int = 1000, *, rng: np.random.Generator | int) -> Floats:
    """Return how often each unit is drawn, shape ``(n_resamples, n_units)``; each row sums to `n_units`.

    Draw it once for a question set and share it: two rules are then compared on the same resamples.  The draws are
    those of `scipy.stats.bootstrap(..., paired=True)` with the same generator.  One unit alone can only be drawn again:
    its weights are NaN, so that no interval pretends to have no width.

    >>> bootstrap_weights(3, 2, rng=0).tolist()
    [[0.0, 2.0, 1.0], [3.0, 0.0, 0.0]]

    Args:
        n_units: Units to draw from and to draw.
        n_resamples: Draws.
        rng: Generator, or the seed of one.

    Raises:
        DataError: A count below 1.
    """
    if n_units < 1 or n_resamples < 1:
        raise DataError(f"a bootstrap needs units and resamples, not {n_units!r} and {n_resamples!r}; allowed: >= 1")
    if n_units == 1:
        return np.full((n_resamples, 1), np.nan)
    units = np.random.default_rng(rng).integers(0, n_units, size=(n_resamples, n_units))
    units += n_units * np.arange(n_resamples)[:, None]
    counts = np.bincount(units.ravel(), minlength=n_resamples * n_units)
    return counts.reshape(n_resamples, n_units).astype(np.float64)


def check_weights(weights: Floats, units: Units) -> None:
    """Raise a `DataError` for weights of another number of units."""
    if weights.ndim != 2 or weights.shape[1] != units.n_units:  # noqa: PLR2004
        raise DataError(
            f"weights of shape {weights.shape} for {units.n_units} units: draw bootstrap_weights({units.n_units}, ...)"
        )


def blocks(n_rules: int, n_resamples: int) -> Iterator[slice]:
    """Yield slices of rules whose resampled means fit the bound on memory."""
    step = max(1, _LARGEST_BLOCK // n_resamples)
    for start in range(0, n_rules, step):
        yield slice(start, min(start + step, n_rules))


def resampled_means(deltas: Floats, weights: Floats, units: Units) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rules with their resampled means, shape ``(n_rules_in_block, n_resamples)``."""
    check_weights(weights, units)
    alone = units.codes is None
    sums = deltas if alone else units.sums(deltas)
    rows = (
        units.n_units if alone else weights @ units.sizes
    )  # a resample of unequal clusters has its own number of rows
    for block in blocks(len(sums), len(weights)):
        means = sums[block] @ weights.T  # of whole numbers (EM, calls) exact, whatever the order of summation
        means /= rows
        yield block, means


def quantiles(means: Floats, levels: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return two quantiles of each row, linear between order statistics (numpy's and scipy's default); reorders rows.

    One draw, or none, shows no spread: the quantiles are NaN.
    """
    last = means.shape[-1] - 1
    if last < 1:
        return np.full(len(means), np.nan), np.full(len(means), np.nan)
    places = [(math.floor(level * last), level * last) for level in levels]
    wanted = sorted({min(place + step, last) for place, _ in places for step in (0, 1)})
    _partition(means, wanted)
    low, high = (
        means[:, place] + (exact - place) * (means[:, min(place + 1, last)] - means[:, place])
        for place, exact in places
    )
    return low, high


def _partition(means: Floats, places: list[int]) -> None:
    """Partition each row in place; large blocks on several threads, since numpy releases the interpreter lock."""
    threads = min(len(means), os.cpu_count() or 1) if means.size >= _WORTH_THREADS else 1
    if threads == 1:
        means.partition(places, axis=-1)
        return
    with ThreadPoolExecutor(threads) as pool:
        for task in [pool.submit(part.partition, places, axis=-1) for part in np.array_split(means, threads)]:
            task.result()
