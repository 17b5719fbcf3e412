"""Units of resampling, which are questions, or clusters of rows that repeat a question.

Units are ordered, and divided (for example into folds), by the hashes of their names.  This module also defines the
tolerance within which figures count as equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats
from suffice.policy.seen import id_hash

Clusters = Sequence[Any] | npt.NDArray[Any] | None
"""The unit of each row, by any name; None if each row is its own unit."""


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
            DataError: There are no rows, or `clusters` does not have one entry for each row.
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
        """Number of rows in all units."""
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


def hash_places(names: Sequence[object], *, salt: str = "") -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each name, computed from its hash.

    The numbers are uniformly distributed, so about 30 % of the names have a number below 0.3.

    >>> hash_places(["q1", "q2"]).round(3).tolist()
    [0.779, 0.746]

    Args:
        names: Names of questions or clusters.
        salt: Another salt gives another division.
    """
    return np.array([int(id_hash(f"{salt}{name}"), 16) / 2**64 for name in names], dtype=np.float64)


def hash_order(names: Sequence[object], *, salt: str = "") -> npt.NDArray[np.int64]:
    """Return the order of distinct names by their hashes, so that neither a person nor a file's order decides it.

    >>> hash_order(["q1", "q2", "q1"]).tolist(), hash_order(["q2", "q1"]).tolist()
    ([1, 0], [0, 1])

    Args:
        names: Names of the rows' questions or clusters, in the order of `Units`; repeated names count once.
        salt: Another salt gives another order.
    """
    return np.argsort(hash_places(list(dict.fromkeys(names)), salt=salt), kind="stable")


def hash_folds(names: Sequence[object], n_folds: int, *, width: int = 16) -> npt.NDArray[np.int64]:
    """Return the fold of each name, 0..n_folds - 1.

    >>> hash_folds(["q1", "q2", "q1"], 5).tolist()
    [1, 0, 1]

    Args:
        names: Names of questions or clusters.
        n_folds: Number of folds; a fold may be empty.
        width: The last `width` hexadecimal digits of the hash determine the fold.

    Raises:
        DataError: Fewer than two folds.
    """
    if n_folds < 2:  # noqa: PLR2004 - one to fit on, one to report on
        raise DataError(f"cross-fitting needs at least two folds, not {n_folds!r}")
    return np.array([int(id_hash(str(name))[-width:], 16) % n_folds for name in names], dtype=np.int64)


def drawn_folds(n_rows: int, n_folds: int, *, clusters: Clusters = None, seed: int) -> npt.NDArray[np.int64]:
    """Return a random fold for each row: folds of equal sizes, each cluster within one fold.

    >>> sorted(drawn_folds(5, 2, seed=0).tolist())
    [0, 0, 0, 1, 1]

    Args:
        n_rows: Number of rows.
        n_folds: Number of folds, at most the number of clusters.
        clusters: The cluster of each row; None = each row is its own cluster.
        seed: Seed of the draw.
    """
    units = Units.of(n_rows, clusters)
    of_unit = np.random.default_rng(seed).permutation(np.arange(units.n_units) % max(1, min(n_folds, units.n_units)))
    return of_unit if units.codes is None else of_unit[units.codes]


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
        DataError: There are no rows, `clusters` does not have one entry for each row, or a difference is NaN or infinite.
    """
    matrix = np.atleast_2d(np.asarray(deltas, dtype=np.float64))
    units = Units.of(matrix.shape[-1], clusters)
    check_differences(matrix)
    return matrix, units


def standard_errors(deltas: Floats, units: Units) -> Floats:
    """Return the standard error of each rule's mean difference, shape ``(n_rules,)``.

    With clusters, this is the linearised error of a ratio of sums (Cochran 1977, section 6.3); without clusters, it is
    the usual standard error of a mean.

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

    Means over orders and means of random twins add the same numbers in different orders; without the tolerance, equal
    questions would count as pairs that differ.

    >>> difference(np.array([0.1 + 0.2, 0.5]), np.array([0.3, 0.25])).tolist()
    [0.0, 0.25]
    """
    found = values - others
    found[np.abs(found) <= ROUNDING * np.maximum(1.0, np.abs(others))] = 0.0
    return found
