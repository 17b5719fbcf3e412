"""Rivals: fixed budgets or random stopping with at least the same quality for less, even if some rounds never ran."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.common.tables import figure
from suffice.errors import DataError, NotFoundError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.costs import COSTS
from suffice.evaluation.statistics import ROUNDING


@dataclass(frozen=True, slots=True, kw_only=True)
class Rival:
    """The cheapest fixed_k or random run of at least the same quality; fields as in `suffice.evaluation.replay.Row`.

    Attributes:
        mixed: A note if no single run dominates a rule, and a mixture of two fixed budgets does: each question takes one of
            them by a throw of a coin.  It needs no signal, so anyone can have it.
    """

    match: str | None = None
    dominating: str | None = None
    undecided: tuple[str, ...] = ()
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
        """Return whether this run dominates another: in every case (`surely`), or in some case.

        It does if it costs no more, is no worse, and is better in one of the two.
        """
        quality, its_quality = (self.worst, other.best) if surely else (self.best, other.worst)
        spent, its_cost = (self.most, other.least) if surely else (self.least, other.most)
        slack = ROUNDING * max(1.0, abs(other.least))
        no_worse = quality >= its_quality - ROUNDING and spent <= its_cost + slack
        return no_worse and (spent < its_cost - slack or quality > its_quality + ROUNDING)


def find_rival(run: Run, runs: Sequence[Run], metrics: Sequence[str], cost: str) -> Rival:
    """Return the cheapest fixed_k or random run with at least the quality of a run, and whether one dominates it.

    Args:
        run: The run.
        runs: All runs.
        metrics: The first is the quality; without metrics there is no rival.
        cost: One of `suffice.evaluation.replay.result.COSTS`.
    """
    return find_rivals([run], runs, metrics, cost)[0]


def find_rivals(those: Sequence[Run], runs: Sequence[Run], metrics: Sequence[str], cost: str) -> list[Rival]:
    """Call `find_rival` for each of several runs."""
    if not metrics:
        return [Rival() for _ in those]
    blind = [other for other in runs if other.kind in ("fixed", "random")]
    rivals = [_Point.of(other, metrics[0], cost) for other in blind]
    fixed = [point for point, other in zip(rivals, blind, strict=True) if other.kind == "fixed"]
    found = []
    for run in those:
        mine = _Point.of(run, metrics[0], cost)
        rival = _rival_among(mine, rivals)
        if run.kind == "rule" and rival.dominating is None:
            rival = replace(rival, mixed=_mixed(mine, fixed, cost))
        found.append(rival)
    return found


def _mixed(mine: _Point, fixed: Sequence[_Point], cost: str) -> str:
    """Return a note if the best mixture of two fixed budgets that costs no more surely scores more; else an empty text."""
    known = [point for point in fixed if math.isfinite(point.most)]
    best, names = mine.best + ROUNDING, ("", "")
    for cheap in known:
        for dear in known:
            if cheap.most <= mine.least < dear.most:
                share = (mine.least - cheap.most) / (dear.most - cheap.most)
                quality = (1 - share) * cheap.worst + share * dear.worst
                if quality > best:
                    best, names = quality, (cheap.label, dear.label)
    if not names[0]:
        return ""
    scores = " against ".join(figure(quality, ".1f", 100) for quality in (best, mine.best))
    return f"a mixture of {names[0]} and {names[1]} costs as much ({cost}) and scores {scores} on these questions"


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
    return min(points, key=lambda point: (point.least, -point.worst), default=None)


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
