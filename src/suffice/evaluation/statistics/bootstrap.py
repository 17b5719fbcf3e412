"""Resampled means: one draw per question serves every rule and every metric.

Differences between rules then contain no noise from separate draws, and all are computed by one matrix product.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.statistics.keyed import KeyedWeights
from suffice.evaluation.statistics.units import Units
from suffice.policy.rounds import Floats

Weights = Floats | KeyedWeights
"""Number of times each unit is drawn, ``(n_resamples, n_units)``: a matrix, or an object that generates it in pieces."""

_LARGEST_BLOCK = 2**23
"""Resampled means held at once, a bound on memory (64 MiB)."""

_WORTH_THREADS = 2**18
"""Fewest numbers for which partitioning on several threads pays."""


def products(rows: Floats, weights: Weights) -> Floats:
    """Return the weighted sum of each row of values in every draw, ``(..., n_units)`` to ``(..., n_resamples)``."""
    if isinstance(weights, KeyedWeights):
        return weights.sums(rows)
    sums: Floats = rows @ weights.T  # exact for whole numbers (EM, calls), in any order of summation
    return sums


def count_of(weights: Weights) -> int:
    """Return the number of draws."""
    return weights.n_resamples if isinstance(weights, KeyedWeights) else len(weights)


def check_weights(weights: Weights, units: Units) -> None:
    """Raise a `DataError` if weights and units differ in number."""
    shape = (weights.n_resamples, len(weights.keys)) if isinstance(weights, KeyedWeights) else weights.shape
    if len(shape) != 2 or shape[1] != units.n_units:  # noqa: PLR2004
        raise DataError(f"weights of shape {shape} for {units.n_units} units: draw them with Resampling.draws(names)")


def blocks(n_rules: int, n_resamples: int) -> Iterator[slice]:
    """Yield slices of rules whose resampled means fit into the allowed memory."""
    step = max(1, _LARGEST_BLOCK // n_resamples)
    for start in range(0, n_rules, step):
        yield slice(start, min(start + step, n_rules))


def resampled_means(deltas: Floats, weights: Weights, units: Units) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rules with their resampled means, shape ``(n_rules_in_block, n_resamples)``.

    A resampled mean is a ratio of two sums, since resamples differ in their number of rows.
    """
    check_weights(weights, units)
    sums, rows = units.sums(deltas), products(units.sizes, weights)
    for block in blocks(len(sums), count_of(weights)):
        means = products(sums[block], weights)
        means /= rows
        yield block, means


def quantiles(means: Floats, levels: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return two quantiles of each row, interpolated linearly (as by default in numpy and scipy).

    This reorders `means`.

    With fewer than two draws the quantiles are NaN.
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
    """Partition each row in place.

    Large blocks are partitioned on several threads, which run in parallel because numpy releases the interpreter lock.
    """
    threads = min(len(means), os.cpu_count() or 1) if means.size >= _WORTH_THREADS else 1
    if threads == 1:
        means.partition(places, axis=-1)
        return
    with ThreadPoolExecutor(threads) as pool:
        for task in [pool.submit(part.partition, places, axis=-1) for part in np.array_split(means, threads)]:
            task.result()
