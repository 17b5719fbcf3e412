"""Divide questions into sets and folds by hashes of their names, equal in every file, order and version."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.units import Clusters, Units
from suffice.policy.seen import id_hash


def hash_places(names: Sequence[object], *, salt: str = "") -> npt.NDArray[np.float64]:
    """Return a number in [0, 1) for each name, uniform over names; a set consists of the names below a share.

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
        width: Number of the hash's last hexadecimal digits that are used.

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
        clusters: The cluster of each row; None = all differ.
        seed: Seed of the draw.
    """
    units = Units.of(n_rows, clusters)
    of_unit = np.random.default_rng(seed).permutation(np.arange(units.n_units) % max(1, min(n_folds, units.n_units)))
    return of_unit if units.codes is None else of_unit[units.codes]
