"""The part of a random twin's uncertainty that is due to its shares of stops, estimated from the same questions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.policy.rounds import Floats, Positions


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedShares:
    """The data for the uncertainty that arises because a random twin's shares of stops are estimated.

    The rule stops at round k with the share ``p[k]``.  If a question has the metric ``m[k]`` at round k, its twin scores
    ``sum(p * m)``.  The shares are estimated from the same questions, so a question changes the twin's mean in two ways:
    by its own metric, and by changing the shares of all questions.  To first order, a question that stops at k adds
    ``mean(m[k]) - sum(p * mean(m))`` through the shares (the influence function of ``sum(p * mean(m))``).  These terms
    sum to 0 over questions.

    Attributes:
        group: Number of recorded rounds of each question, shape ``(n_questions,)``.  Questions with the same number
            form a group; a twin exchanges stops only within a group.
        stops: Number of orders in which each question stops at each round, shape ``(n_questions, n_rounds + 1)``; the
            last column counts stops at rounds that never ran.
        sums: By name of the metric or cost, then by group: the metric or cost of a stop at each round, summed over the
            group's questions and orders, shape ``(n_rounds + 1,)``.  The last entry is for rounds that never ran.
            Unknown metrics count as 1.
    """

    group: Positions
    stops: Positions
    sums: Mapping[str, Mapping[int, Floats]]

    @classmethod
    def of(
        cls, group: Positions, place: Positions, *, metrics: Mapping[str, Floats], costs: Mapping[str, Floats]
    ) -> EstimatedShares:
        """Return the stops and sums of some questions.

        Args:
            group: See the class.
            place: The position of each stop, shape ``(n_orders * n_questions,)``: all questions in the first order,
                then in the next.  The position is `n_rounds` if that round never ran.
            metrics: By name, the metric of a stop at each round, shape ``(n_orders * n_questions, n_rounds)``.
            costs: By name, the cost of a stop at each round, in the shape of a metric.
        """
        n, width = len(group), next(iter(costs.values())).shape[1] + 1
        cells = np.tile(np.arange(n), len(place) // n) * width + place
        rows = {int(g): np.flatnonzero(np.tile(group == g, len(place) // n)) for g in np.unique(group)}
        return cls(
            group=group,
            stops=np.bincount(cells, minlength=n * width).reshape(n, width),
            sums={
                name: {
                    g: np.append((table if len(some) == len(table) else table[some]).sum(axis=0), beyond * len(some))
                    for g, some in rows.items()
                }
                for tables, beyond in ((metrics, 1.0), (costs, 0.0))
                for name, table in tables.items()
            },
        )

    def __add__(self, other: EstimatedShares) -> EstimatedShares:
        """Add the stops and sums of further orders of the same questions."""
        return replace(self, stops=self.stops + other.stops, sums=_added([self.sums, other.sums]))

    @classmethod
    def joined(cls, parts: Sequence[EstimatedShares]) -> EstimatedShares:
        """Return the stops and sums of all questions, in the order of the parts."""
        return cls(
            group=np.concatenate([part.group for part in parts]),
            stops=np.concatenate([part.stops for part in parts]),
            sums=_added([part.sums for part in parts]),
        )

    def influence(self, name: str) -> Floats:
        """Return each question's influence on the mean of a figure by changing the shares, shape ``(n_questions,)``.

        The influences sum to 0.
        """
        added = np.zeros(len(self.group))
        for g, sums in self.sums[name].items():
            rows = np.flatnonzero(self.group == g)
            stops = self.stops[rows]
            total = stops.sum(axis=0)
            mean = np.where(total > 0, sums / total.sum(), 0.0)  # sums may be NaN where no question stops
            added[rows] = (stops / stops.sum(axis=1, keepdims=True) - total / total.sum()) @ mean
        return added


def _added(sums: Sequence[Mapping[str, Mapping[int, Floats]]]) -> dict[str, dict[int, Floats]]:
    """Add sums by figure and group; a part may lack a group."""
    groups = {name: sorted({g for part in sums for g in part[name]}) for name in sums[0]}
    return {
        name: {g: np.sum([part[name][g] for part in sums if g in part[name]], axis=0) for g in known}
        for name, known in groups.items()
    }
