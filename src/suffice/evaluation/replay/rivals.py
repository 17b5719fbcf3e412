"""Rivals of a run: fixed budgets, mixtures of them, or random stops that reach the run's quality at a lower cost.

Where rounds are missing, quality and cost have bounds, and a comparison may be undecided.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.tables import figure
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.costs import COSTS
from suffice.evaluation.replay.front import Mixture, best_mixture
from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rounds import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The rival of a run: the cheapest fixed_k or random run whose quality is at least that of the run.

    The fields are as in `suffice.evaluation.replay.Row`.

    Attributes:
        mixture: For a rule, the best mixture of two fixed budgets that costs no more than the rule; None if every
            budget costs more.
        mixed: A note if the rule is dominated by the mixture but by no single run; "" otherwise.  `dominating` is then
            the label of the mixture.
    """

    match: str | None = None
    dominating: str | None = None
    undecided: tuple[str, ...] = ()
    mixture: Mixture | None = None
    mixed: str = ""


@dataclass(frozen=True, slots=True)
class _Point:
    """Bounds of a run's quality and cost; lower and upper bound are equal if all rounds ran and were measured."""

    label: str
    worst: float
    best: float
    least: float
    most: float

    @classmethod
    def of(cls, run: Run, metric: str, cost: str) -> _Point:
        spent = float(run.ledger.spent(cost).mean())
        worst, best = (float(np.nan_to_num(v[metric], nan=u).mean()) for v, u in ((run.worst, 0.0), (run.best, 1.0)))
        return cls(run.label, worst, best, spent, spent if run.exact else math.inf)

    def dominates(self, other: _Point, *, surely: bool) -> bool:
        """Return whether this run dominates another run.

        With `surely`, this run must dominate for all values within the bounds of both runs, otherwise for some values.

        A run dominates another if it costs no more, has no lower quality, and is better in one of the two.
        """
        quality, its_quality = (self.worst, other.best) if surely else (self.best, other.worst)
        spent, its_cost = (self.most, other.least) if surely else (self.least, other.most)
        slack = ROUNDING * max(1.0, abs(other.least))
        no_worse = quality >= its_quality - ROUNDING and spent <= its_cost + slack
        return no_worse and (spent < its_cost - slack or quality > its_quality + ROUNDING)


def find_rivals(those: Sequence[Run], runs: Sequence[Run], metrics: Sequence[str], cost: str) -> list[Rival]:
    """Return, for each run in `those`, its rival: the cheapest fixed_k or random run of at least the run's quality.

    A rival also states whether the run is dominated.

    Args:
        those: The runs whose rivals are sought.
        runs: All runs.
        metrics: The first is the quality; without metrics there is no rival.
        cost: One of `suffice.evaluation.replay.costs.COSTS`.
    """
    if not metrics:
        return [Rival() for _ in those]
    blind = [other for other in runs if other.kind in ("fixed", "random")]
    rivals = [_Point.of(other, metrics[0], cost) for other in blind]
    budgets = _Budgets.of([point for point, other in zip(rivals, blind, strict=True) if other.kind == "fixed"])
    found = []
    for run in those:
        mine = _Point.of(run, metrics[0], cost)
        rival = _rival_among(mine, rivals)
        found.append(budgets.beside(rival, mine, cost) if run.kind == "rule" else rival)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Budgets:
    """The fixed budgets whose mixtures are compared with every rule.

    Attributes:
        worst, best: Bounds of their quality, shape ``(n_budgets,)``.
        least, most: Bounds of their cost, same shape.
    """

    labels: tuple[str, ...]
    worst: Floats
    best: Floats
    least: Floats
    most: Floats

    @classmethod
    def of(cls, points: Sequence[_Point]) -> _Budgets:
        bounds = {
            name: np.array([getattr(point, name) for point in points], dtype=np.float64)
            for name in ("worst", "best", "least", "most")
        }
        return cls(labels=tuple(point.label for point in points), **bounds)

    def beside(self, rival: Rival, mine: _Point, cost: str) -> Rival:
        """Add the best mixture of fixed budgets to the rival of a rule.

        If no single run dominates the rule and the mixture certainly scores more, the mixture dominates the rule.
        """
        mixture = self._best(self.worst, self.most, mine.least)
        possible = self._best(self.best, self.least, mine.most)
        rival = replace(rival, mixture=mixture)
        if rival.dominating is not None:
            return rival
        if mixture is not None and mixture.quality > mine.best + ROUNDING:
            scores = " against ".join(figure(quality, ".1f", 100) for quality in (mixture.quality, mine.best))
            return replace(
                rival,
                dominating=mixture.label,
                undecided=tuple(name for name in rival.undecided if name != "dominated_by"),
                mixed=f"{mixture.label} costs as much ({cost}) and scores {scores} on these questions",
            )
        if possible is not None and possible.quality > mine.worst + ROUNDING:
            return replace(rival, undecided=tuple(dict.fromkeys([*rival.undecided, "dominated_by"])))
        return rival

    def _best(self, quality: Floats, cost: Floats, budget: float) -> Mixture | None:
        known = np.flatnonzero(np.isfinite(cost) & np.isfinite(quality))
        return best_mixture([self.labels[place] for place in known], quality[known], cost[known], budget)


def _rival_among(mine: _Point, points: Sequence[_Point]) -> Rival:
    rivals = [rival for rival in points if rival.label != mine.label]
    sure = [rival for rival in rivals if rival.worst >= mine.best - ROUNDING and math.isfinite(rival.most)]
    match = _cheapest(sure)
    dominating = _cheapest([rival for rival in sure if rival.dominates(mine, surely=True)])
    undecided = []
    open_rivals = [
        rival
        for rival in rivals
        if rival.best >= mine.worst - ROUNDING
        and not (rival.worst >= mine.best - ROUNDING and math.isfinite(rival.most))
    ]
    if any(match is None or rival.least < match.least for rival in open_rivals):
        undecided.append("cheapest_match")
    if dominating is None and any(rival.dominates(mine, surely=False) for rival in rivals):
        undecided.append("dominated_by")
    return Rival(
        match=None if match is None else match.label,
        dominating=None if dominating is None else dominating.label,
        undecided=tuple(undecided),
    )


def _cheapest(points: Sequence[_Point]) -> _Point | None:
    """Return the point with the least cost; among ties the one with the most quality, then the first.

    Costs that differ only by rounding count as equal.
    """
    if not points:
        return None
    least = min(point.least for point in points)
    cheap = [point for point in points if point.least <= least + ROUNDING * max(1.0, abs(least))]
    most = max(point.worst for point in cheap)
    return next(point for point in cheap if point.worst >= most - ROUNDING)


def check_cost(runs: Sequence[Run], cost: str) -> None:
    """Raise a `DataError` if a cost is unknown for some policy or budget."""
    if cost not in COSTS:
        raise NotFoundError(f"there is no cost {cost!r}; allowed: {', '.join(COSTS)}")
    unknown = [
        run.label for run in runs if run.kind in ("rule", "fixed", "random") and np.isnan(run.ledger.spent(cost)).any()
    ]
    if unknown:
        needs = "prices, and token counts in every round" if cost == "money" else "them recorded in every round"
        raise DataError(f"the {cost} of {unknown[0]!r} are unknown: judging by {cost} needs {needs}; or judge by calls")
