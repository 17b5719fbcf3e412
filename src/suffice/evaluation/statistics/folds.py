"""Questions divided into sets and folds, by the hash of a name: the same in every file, order and version."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.evaluation.statistics.units import Clusters, Units
from suffice.policy.seen import id_hash


def hash_places(names: Sequence[object], *, salt: str = "") -> npt.NDArray[np.float64]:
    """Return the place of each name in [0, 1), uniform over names: a set is the names below a share.

    >>> hash_places(["q1", "q2"]).round(3).tolist()
    [0.779, 0.746]

    Args:
        names: Of questions or clusters.
        salt: Another salt gives another division.
    """
    return np.array([int(id_hash(f"{salt}{name}"), 16) / 2**64 for name in names], dtype=np.float64)


def hash_order(names: Sequence[object], *, salt: str = "") -> npt.NDArray[np.int64]:
    """Return the order of distinct names by their hashes: nobody chooses it, and the order of a file means nothing.

    >>> hash_order(["q1", "q2", "q1"]).tolist(), hash_order(["q2", "q1"]).tolist()
    ([1, 0], [0, 1])

    Args:
        names: Of the questions or clusters of rows, in the order of `Units`; repeated ones count once.
        salt: Another salt gives another order.
    """
    return np.argsort(hash_places(list(dict.fromkeys(names)), salt=salt), kind="stable")


def hash_folds(names: Sequence[object], n_folds: int, *, width: int = 16) -> npt.NDArray[np.int64]:
    """Return the fold of each name, 0..n_folds - 1.

    >>> hash_folds(["q1", "q2", "q1"], 5).tolist()
    [1, 0, 1]

    Args:
        names: Of questions or clusters.
        n_folds: How many; a fold may be empty.
        width: The last hexadecimal digits of the hash that count.

    Raises:
        DataError: Fewer than two folds.
    """
    if n_folds < 2:  # noqa: PLR2004 - one to fit on, one to report on
        raise DataError(f"cross-fitting needs at least two folds, not {n_folds!r}")
    return np.array([int(id_hash(str(name))[-width:], 16) % n_folds for name in names], dtype=np.int64)


def drawn_folds(n_rows: int, n_folds: int, *, clusters: Clusters = None, seed: int) -> npt.NDArray[np.int64]:
    """Return a random fold for each row, of equal sizes, with the rows of a cluster in one fold.

    >>> sorted(drawn_folds(5, 2, seed=0).tolist())
    [0, 0, 0, 1, 1]

    Args:
        n_rows: How many rows.
        n_folds: How many folds, at most one for each cluster.
        clusters: The cluster of each row; None = all differ.
        seed: Of the draw.
    """
    units = Units.of(n_rows, clusters)
    of_unit = np.random.default_rng(seed).permutation(np.arange(units.n_units) % max(1, min(n_folds, units.n_units)))
    return of_unit if units.codes is None else of_unit[units.codes]
