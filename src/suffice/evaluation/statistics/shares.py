"""Divide a total of 1 into infinitely many shares, for an unlimited number of looks, windows or restarts."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from suffice.policy.rounds import Floats


def share(number: npt.ArrayLike, even: float = 1.0) -> Floats:
    """Return the share of the k-th part, k = 1, 2, ...; all shares add up to 1.

    It falls like ``1 / (k log(k)**2)``, almost the slowest decrease with a finite sum: the logarithm of the 100,000th
    share is -16.6, where that of ``1 / k`` would be -11.5.

    >>> share([1, 2, 3]).round(4).tolist()
    [0.4094, 0.1141, 0.0574]

    Args:
        number: The number k, any shape.
        even: Approximate number of first parts with nearly equal shares.
    """
    k = np.asarray(number, dtype=np.float64)
    # share_left(k) - share_left(k + 1), without cancellation
    shares: Floats = np.log1p(1 / (even + k - 1)) * share_left(k, even) * share_left(k + 1, even)
    return shares


def share_left(number: npt.ArrayLike, even: float = 1.0) -> Floats:
    """Return the share of the k-th part and all later ones, ``1 / (1 + log(1 + (k - 1) / even))``.

    >>> share_left([1, 2]).round(4).tolist()
    [1.0, 0.5906]
    """
    shares: Floats = 1 / (1 + np.log1p((np.asarray(number, dtype=np.float64) - 1) / even))
    return shares
