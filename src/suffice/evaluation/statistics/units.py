"""Units of resampling: the question, or the cluster of rows that repeat it; and the rounding within which figures are equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats

Clusters = Sequence[Any] | npt.NDArray[Any] | None
"""The unit of each row, by any name; None if each row is its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Units:
    """The units that a resample draws: rows, or clusters of rows.

    Attributes:
        codes: The unit of each row, shape ``(n_rows,)``, integers 0..n_units - 1; None if each row is its own unit.
        sizes: Number of rows in each unit, shape ``(n_units,)``.
    """

    codes: npt.NDArray[np.int64] | None
    sizes: Floats

    @classmethod
    def of(cls, n_rows: int, clusters: Clusters = None) -> Units:
        """Return the units of `n_rows` rows; without `clusters`, each row is a cluster of its own.

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

    @property
    def n_units(self) -> int:
        """Number of units."""
        return len(self.sizes)

    def sums(self, rows: Floats) -> Floats:
        """Return the sum over the rows of each unit: ``(..., n_rows)`` to ``(..., n_units)``.

        >>> Units.of(3, ["a", "b", "a"]).sums(np.array([1.0, 2.0, 3.0])).tolist()
        [4.0, 2.0]
        """
        if self.codes is None:
            return rows
        starts = np.concatenate([[0], np.cumsum(self.sizes[:-1]).astype(np.int64)])
        sums: Floats = np.add.reduceat(rows[..., np.argsort(self.codes, kind="stable")], starts, axis=-1)
        return sums


def check_level(level: float) -> None:
    """Raise a `DataError` for a level outside (0, 1)."""
    if not 0 < level < 1:
        raise DataError(f"a level lies strictly between 0 and 1, as 0.95, not {level!r}")


def check_differences(deltas: Floats) -> None:
    """Raise a `DataError` for NaN or infinite differences."""
    if not np.isfinite(deltas).all():
        raise DataError("a paired difference is NaN or infinite: a question lacks its metric under one of the two")


def paired_rows(deltas: npt.ArrayLike, clusters: Clusters) -> tuple[Floats, Units]:
    """Return differences as a matrix, shape ``(n_rules, n_rows)``, and the units of its rows.

    Raises:
        DataError: No rows, not one cluster for each, NaN or infinite differences.
    """
    matrix = np.atleast_2d(np.asarray(deltas, dtype=np.float64))
    units = Units.of(matrix.shape[-1], clusters)
    check_differences(matrix)
    return matrix, units


def standard_errors(deltas: Floats, units: Units) -> Floats:
    """Return the standard error of each rule's mean difference, shape ``(n_rules,)``.

    With clusters it is the linearised error of a ratio of sums (Cochran 1977, section 6.3); without, the usual one.

    >>> standard_errors(np.array([[1.0, 0.0, -1.0], [0.1, 0.1, 0.1]]), Units.of(3)).round(4).tolist()
    [0.5774, 0.0]

    Args:
        deltas: Differences to the baseline, shape ``(n_rules, n_rows)``, no NaN.
        units: The units of the rows.

    Returns:
        The errors; 0 where the units do not vary, NaN if there is only one unit.
    """
    if units.n_units == 1:
        return np.full(len(deltas), np.nan)
    sums = units.sums(deltas)
    residuals = sums - units.sizes * deltas.mean(axis=-1, keepdims=True)
    squares = np.einsum("ru,ru->r", residuals, residuals)
    errors = np.sqrt(units.n_units / (units.n_units - 1) * squares) / units.n_rows
    means = sums / units.sizes
    # The mean of equal numbers may differ from them by rounding, so their extremes decide whether they vary.
    return np.where(means.min(axis=-1) == means.max(axis=-1), 0.0, errors)


ROUNDING = 1e-12
"""Largest difference between figures of size 1 that differ only by rounding, as sums in another order do."""


def difference(values: Floats, others: Floats) -> Floats:
    """Return the differences of values; 0 where they differ only by rounding.

    Means over orders and those of twins add the same numbers in different orders; without this, equal questions would
    count as pairs that differ.

    >>> difference(np.array([0.1 + 0.2, 0.5]), np.array([0.3, 0.25])).tolist()
    [0.0, 0.25]
    """
    found = values - others
    found[np.abs(found) <= ROUNDING * np.maximum(1.0, np.abs(others))] = 0.0
    return found
