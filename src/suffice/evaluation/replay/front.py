"""The Pareto front of quality against cost."""

from __future__ import annotations

import numpy as np

from suffice.policy.rounds import Floats, Mask


def pareto_front(quality: Floats, cost: Floats) -> Mask:
    """Return a mask of the points that no other point dominates.

    A point dominates another with at most its cost and at least its quality, if it is better in one of them.

    >>> pareto_front(np.array([0.5, 0.6, 0.6, 0.55]), np.array([1.0, 2.0, 3.0, 2.5])).tolist()
    [True, True, False, False]

    Args:
        quality: Shape ``(n,)``; a point with NaN is on no front.
        cost: Shape ``(n,)``, no NaN.
    """
    known = np.where(np.isnan(quality), -np.inf, quality)
    # Only the best point of each cost can be on the front, and only if it beats all cheaper ones, so no pairs need
    # comparing.
    levels, group = np.unique(cost, return_inverse=True)
    best = np.full(len(levels), -np.inf)
    np.maximum.at(best, group, known)
    cheaper = np.concatenate([[-np.inf], np.maximum.accumulate(best)[:-1]])
    front: Mask = (known == best[group]) & (known > cheaper[group])
    return front
