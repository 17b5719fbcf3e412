"""Paired comparisons: bootstrap intervals and exact sign-flip tests.

The unit is the question; rows that repeat a question form a cluster and are drawn together.  One draw per question
set serves every rule and every metric, so that differences between rules carry no noise from the draw itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.rounds import Floats

__all__ = [
    "FEW_NONZERO",
    "Clusters",
    "Intervals",
    "PairedResult",
    "Units",
    "bootstrap_weights",
    "check_differences",
    "few_warning",
    "json_ready",
    "paired_bootstrap",
    "paired_results",
    "quantiles",
    "resampled_means",
    "sign_flip_test",
]

Clusters = Sequence[Any] | npt.NDArray[Any] | None
"""The unit of each row, by any name; None if each row is its own."""

FEW_NONZERO = 10
"""With fewer non-zero pairs than this, percentile intervals under-cover and an exact test is given (SEMANTICS)."""

_LARGEST_BLOCK = 2**23
"""Resampled means held at once, a bound on memory (64 MiB)."""

_WORTH_THREADS = 2**18
"""Numbers from which partitioning on several threads pays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """What a resample draws: the clusters of the rows.

    Attributes:
        codes: The unit of each row, shape ``(n_rows,)``, integers 0..n_units - 1; None if each row is its own unit.
        sizes: Rows in each unit, shape ``(n_units,)``.
    """

    codes: npt.NDArray[np.int64] | None
    sizes: Floats

    @classmethod
    def of(cls, n_rows: int, clusters: Clusters = None) -> Units:
        """Return the units of `n_rows` rows; `clusters` names each row's cluster, None = all differ.

        >>> Units.of(3, ["a", "b", "a"]).sizes.tolist()
        [2.0, 1.0]

        Raises:
            DataError: Not one cluster for each row, or no rows.
        """
        if n_rows < 1:
            raise DataError("no questions to compare: the recording has none, or all of them failed")
        if clusters is None:
            return cls(codes=None, sizes=np.ones(n_rows))
        if len(clusters) != n_rows:
            raise DataError(f"{len(clusters)} clusters for {n_rows} rows: give one for each row")
        order: dict[Any, int] = {}
        codes = np.fromiter((order.setdefault(name, len(order)) for name in clusters), np.int64, n_rows)
        if len(order) == n_rows:
            return cls(codes=None, sizes=np.ones(n_rows))
        return cls(codes=codes, sizes=np.bincount(codes).astype(np.float64))

    @property
    def n_rows(self) -> int:
        """Rows in all units."""
        return int(self.sizes.sum())

    def sums(self, rows: Floats) -> Floats:
        """Return the sum over the rows of each unit: ``(..., n_rows)`` to ``(..., n_units)``."""
        if self.codes is None:
            return rows
        totals = np.zeros((*rows.shape[:-1], len(self.sizes)))
        np.add.at(np.moveaxis(totals, -1, 0), self.codes, np.moveaxis(rows, -1, 0))
        return totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Intervals:
    """Mean paired differences of several rules with percentile intervals; every array has shape ``(n_rules,)``.

    Attributes:
        delta: Mean difference, in the unit of the metric.
        low: Lower end of the interval.
        high: Upper end.
        level: Nominal coverage.
        n_resamples: Draws.
    """

    delta: Floats
    low: Floats
    high: Floats
    level: float
    n_resamples: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PairedResult:
    """The mean paired difference of one rule against a baseline.

    Attributes:
        delta: Mean difference, in the unit of the metric; positive = larger than the baseline.
        low: Lower end of the percentile interval.
        high: Upper end.
        level: Nominal coverage of the interval.
        n: Rows (questions, or runs of questions).
        n_clusters: Units that were resampled; equals `n` unless rows repeat a question.
        n_nonzero: Units whose difference is not zero.
        n_resamples: Draws.
        p_exact: Two-sided p-value of the exact sign-flip test; NaN where there are enough non-zero pairs without it.
        warning: What limits the interval; empty if nothing does.
    """

    delta: float
    low: float
    high: float
    level: float
    n: int
    n_clusters: int
    n_nonzero: int
    n_resamples: int
    p_exact: float = float("nan")
    warning: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return json_ready(asdict(self))


def json_ready(values: dict[str, Any]) -> dict[str, Any]:
    """Return flat values with None for NaN and infinities."""
    return {
        name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in values.items()
    }


def bootstrap_weights(n_units: int, n_resamples: int = 1000, *, rng: np.random.Generator | int) -> Floats:
    """Return how often each unit is drawn, shape ``(n_resamples, n_units)``; each row sums to `n_units`.

    Draw it once for a question set and share it: two rules are then compared on the same resamples.  The draws are
    those of `scipy.stats.bootstrap(..., paired=True)` with the same generator.

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
    drawn = np.random.default_rng(rng).integers(0, n_units, size=(n_resamples, n_units))
    drawn += n_units * np.arange(n_resamples)[:, None]
    counts = np.bincount(drawn.ravel(), minlength=n_resamples * n_units)
    return counts.reshape(n_resamples, n_units).astype(np.float64)


def paired_bootstrap(deltas: Floats, weights: Floats, *, clusters: Clusters = None, level: float = 0.95) -> Intervals:
    """Return mean differences with percentile intervals, for many rules by one matrix product and one partition.

    >>> import numpy as np
    >>> deltas = np.array([[1.0, 0.0, 1.0], [0.0, 0.0, 0.0]])
    >>> intervals = paired_bootstrap(deltas, bootstrap_weights(3, 1000, rng=42))
    >>> intervals.low.tolist(), intervals.high.tolist()
    ([0.0, 0.0], [1.0, 0.0])

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        weights: From `bootstrap_weights`, shape ``(n_resamples, n_units)``.
        clusters: The unit of each row; None if each row is its own.
        level: Nominal coverage, in (0, 1).

    Raises:
        DataError: Shapes that do not fit, NaN or infinite differences, a level outside (0, 1).
    """
    deltas = np.atleast_2d(np.asarray(deltas, dtype=np.float64))
    units = Units.of(deltas.shape[-1], clusters)
    check_differences(deltas, level)
    tail = (1 - level) / 2
    low, high = np.empty(len(deltas)), np.empty(len(deltas))
    for block, means in resampled_means(deltas, weights, units):
        low[block], high[block] = quantiles(means, (tail, 1 - tail))
    return Intervals(delta=deltas.mean(axis=-1), low=low, high=high, level=level, n_resamples=len(weights))


def paired_results(
    deltas: Floats, weights: Floats, *, clusters: Clusters = None, level: float = 0.95
) -> list[PairedResult]:
    """Return the interval of each rule, with an exact test where few pairs differ; arguments as `paired_bootstrap`."""
    deltas = np.atleast_2d(np.asarray(deltas, dtype=np.float64))
    intervals = paired_bootstrap(deltas, weights, clusters=clusters, level=level)
    units = Units.of(deltas.shape[-1], clusters)
    results = []
    for position, sums in enumerate(units.sums(deltas)):
        nonzero = int(np.count_nonzero(sums))
        few = nonzero < FEW_NONZERO
        results.append(
            PairedResult(
                delta=float(intervals.delta[position]),
                low=float(intervals.low[position]),
                high=float(intervals.high[position]),
                level=level,
                n=units.n_rows,
                n_clusters=len(sums),
                n_nonzero=nonzero,
                n_resamples=intervals.n_resamples,
                p_exact=sign_flip_test(sums) if few else float("nan"),
                warning=few_warning(nonzero) if few else "",
            )
        )
    return results


def sign_flip_test(differences: npt.ArrayLike) -> float:
    """Return the two-sided p-value of the exact sign-flip (paired permutation) test of a mean of zero.

    Under the hypothesis each difference could as well have had the other sign; all ``2**k`` sign patterns of the k
    non-zero ones are enumerated.

    >>> sign_flip_test([1.0, 1.0, 0.0, 1.0])
    0.25

    Raises:
        DataError: More than 20 non-zero differences: too many to enumerate.
    """
    values = np.asarray(differences, dtype=np.float64).ravel()
    values = values[values != 0]
    k = len(values)
    if k > 20:  # noqa: PLR2004
        raise DataError(f"{k} non-zero pairs have 2**{k} sign patterns; the exact test takes at most 20")
    if k == 0:
        return 1.0
    signs = 1.0 - 2.0 * ((np.arange(2**k)[:, None] >> np.arange(k)) & 1)
    totals = np.abs(signs @ values)
    slack = 1e-12 * np.abs(values).sum()  # sums in another order differ in the last bits
    return float(np.mean(totals >= abs(values.sum()) - slack))


def few_warning(nonzero: int) -> str:
    """Return what a reader must know when only `nonzero` pairs differ."""
    return (
        f"only {nonzero} {'pair differs' if nonzero == 1 else 'pairs differ'} (fewer than {FEW_NONZERO}): intervals and t tests of sparse differences "
        "promise more than they keep; read the exact test"
    )


def check_differences(deltas: Floats, level: float) -> None:
    """Refuse NaN or infinite differences, and a level outside (0, 1), with a `DataError`."""
    if not 0 < level < 1:
        raise DataError(f"a level lies strictly between 0 and 1, as 0.95, not {level!r}")
    if not np.isfinite(deltas).all():
        raise DataError("a paired difference is NaN or infinite: a question lacks its metric under one of the two")


def resampled_means(deltas: Floats, weights: Floats, units: Units) -> Iterator[tuple[slice, Floats]]:
    """Yield blocks of rules with their resampled means, shape ``(n_rules_in_block, n_resamples)``."""
    n_units = len(units.sizes)
    if weights.ndim != 2 or weights.shape[1] != n_units:  # noqa: PLR2004
        raise DataError(f"weights of shape {weights.shape} for {n_units} units: draw bootstrap_weights({n_units}, ...)")
    alone = units.codes is None
    sums = deltas / n_units if alone else units.sums(deltas)
    rows = None if alone else weights @ units.sizes  # a resample of unequal clusters has its own number of rows
    step = max(1, _LARGEST_BLOCK // len(weights))
    for start in range(0, len(sums), step):
        block = slice(start, start + step)
        means = sums[block] @ weights.T
        if rows is not None:
            means /= rows
        yield block, means


def quantiles(means: Floats, levels: tuple[float, float]) -> tuple[Floats, Floats]:
    """Return two quantiles of each row, linear between order statistics (numpy's and scipy's default); reorders rows."""
    last = means.shape[-1] - 1
    places = [(math.floor(level * last), level * last) for level in levels]
    wanted = sorted({min(place + step, last) for place, _ in places for step in (0, 1)})
    _partition(means, wanted)
    low, high = (
        means[:, place] + (exact - place) * (means[:, min(place + 1, last)] - means[:, place])
        for place, exact in places
    )
    return low, high


def _partition(means: Floats, places: list[int]) -> None:
    """Partition each row in place; large blocks on several threads, since numpy lets go of the interpreter lock."""
    threads = min(len(means), os.cpu_count() or 1) if means.size >= _WORTH_THREADS else 1
    if threads == 1:
        means.partition(places, axis=-1)
        return
    with ThreadPoolExecutor(threads) as pool:
        for done in [pool.submit(part.partition, places, axis=-1) for part in np.array_split(means, threads)]:
            done.result()
