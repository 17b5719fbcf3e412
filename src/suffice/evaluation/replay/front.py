"""The Pareto front of quality against cost, and the upper convex hull, which mixtures of two points reach."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rounds import Floats, Mask


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixture:
    """A mixture of two policies: for each question, one of them is drawn at random, without looking at any signal.

    Attributes:
        cheap: The cheaper policy.
        dear: The more expensive policy, used for a `share` of questions.  It equals `cheap` if a single policy is
            better than any mixture.
    """

    cheap: str
    dear: str
    share: float
    quality: float

    @property
    def label(self) -> str:
        """The name of the mixture in tables.

        >>> Mixture(cheap="fixed_k(1)", dear="fixed_k(3)", share=0.25, quality=0.5).label
        'a mixture of fixed_k(1) and fixed_k(3)'
        """
        return self.cheap if self.cheap == self.dear else f"a mixture of {self.cheap} and {self.dear}"


def best_mixture(labels: Sequence[str], quality: Floats, cost: Floats, budget: float) -> Mixture | None:
    """Find the mixture of highest quality among all mixtures whose mean cost is within a budget.

    A mixture consists of one or two points.

    >>> mixture = best_mixture("abc", np.array([0.2, 0.3, 0.8]), np.array([1.0, 2.0, 3.0]), 2.0)
    >>> mixture.cheap, mixture.dear, mixture.share, mixture.quality
    ('a', 'c', 0.5, 0.5)

    Args:
        labels: The names of the points.
        quality: Shape ``(n_points,)``, no NaN.
        cost: Same shape, no NaN.
        budget: The largest mean cost, up to rounding.

    Returns:
        The mixture; None if every point costs more.
    """
    hull = upper_hull(quality, cost)
    slack = ROUNDING * max(1.0, abs(budget))
    within = sum(cost[place] <= budget + slack for place in hull)
    if not within:
        return None
    cheap = dear = hull[within - 1]
    share, left = 0.0, budget - cost[cheap]
    if within < len(hull) and left > slack:
        dear = hull[within]
        share = float(left / (cost[dear] - cost[cheap]))
    mixed = float((1 - share) * quality[cheap] + share * quality[dear])
    return Mixture(cheap=labels[cheap], dear=labels[dear], share=share, quality=mixed)


def upper_hull(quality: Floats, cost: Floats) -> tuple[int, ...]:
    """Return the positions of the points on the upper hull, from cheap to expensive.

    A point is on the hull if it is dominated neither by another point nor by a mixture of two other points.

    >>> upper_hull(np.array([0.2, 0.3, 0.8, 0.8]), np.array([1.0, 2.0, 3.0, 4.0]))
    (0, 2)

    Args:
        quality: Shape ``(n_points,)``, no NaN.
        cost: Same shape, no NaN.
    """
    hull: list[int] = []
    for place in np.lexsort((-quality, cost)).tolist():
        if hull and quality[place] <= quality[hull[-1]]:
            continue
        while len(hull) > 1:
            left, middle = hull[-2:]
            rise, run = quality[place] - quality[left], cost[place] - cost[left]
            if (quality[middle] - quality[left]) * run > rise * (cost[middle] - cost[left]):
                break  # the middle one is above the line of the others
            hull.pop()
        hull.append(place)
    return tuple(hull)


def pareto_front(quality: Floats, cost: Floats) -> Mask:
    """Return a mask of the points that no other point dominates.

    A point dominates another if it costs no more, has no lower quality, and is better in one of the two.

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
