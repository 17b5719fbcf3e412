"""Tests of the convergence of drafts: a slope is fitted to each trajectory, and tests are over trajectories.

The conjecture of Semantic Early-Stopping is that the distance between consecutive drafts does not increase on average.
This module measures whether that is so, and does not assume it: no contraction and no limit is claimed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.evaluation.statistics import Resampling, cohens_d_z
from suffice.policy.rounds import Floats, Mask
from suffice_papers.multinomial import draws_by_place
from suffice_papers.paired_tests import paired_t_test, wilcoxon_test
from suffice_papers.semantic.data import Drafts

_FEWEST_DISTANCES = 2
"""Fewest distances for a slope."""

_RISE = 1e-9
"""Increases of the distance up to this size count as rounding errors of the embeddings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AtRound:
    """The distances between the draft of one round and the previous draft, over questions.

    Attributes:
        round_index: The round of the later draft.
        n: Number of questions with a defined distance at this round.
        mean: Mean distance.
        low: Lower end of the mean's interval.
        high: Upper end.
        median: Median distance.
        below: Share of distances below the threshold of convergence.
    """

    round_index: int
    n: int
    mean: float
    low: float
    high: float
    median: float
    below: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """The published test, which pools the steps of all trajectories although steps of one trajectory are dependent.

    Attributes:
        n_steps: Number of steps from one distance to the next.
        mean_step: Mean step.
        statistic: Wilcoxon's statistic of the steps, as in scipy.
        p_decreasing: One-sided p-value of decreasing distances; NaN if all steps are zero.
    """

    n_steps: int
    mean_step: float
    statistic: float
    p_decreasing: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Convergence:
    """The change of the distances of consecutive drafts over rounds.

    Attributes:
        n: Number of trajectories.
        n_usable: Number of usable trajectories, which have at least two defined distances; the fields below use only
            these.
        n_clusters: Number of clusters of usable trajectories.
        monotone: Share of trajectories whose distance never increases; NaN without usable trajectories.
        falling: Share of trajectories with a negative slope.
        slope: Mean over trajectories of the least-squares slope of distance on round (change per round).
        low: Lower end of the slope's bootstrap interval over trajectories.
        high: Upper end.
        d_z: Mean slope over its standard deviation.
        p_t: Two-sided p-value of the t test of a mean slope of zero, over trajectories.
        p_wilcoxon: Two-sided p-value of Wilcoxon's signed-rank test of the slopes, over trajectories.
        mean: Mean of all defined distances.
        median: Median of all defined distances.
        below: Share of defined distances below the threshold.
        pooled: The published test.
        rounds: The distances by round.
        warning: A limitation of the interval; empty if the interval has no limitation.
    """

    n: int
    n_usable: int
    n_clusters: int
    monotone: float
    falling: float
    slope: float
    low: float
    high: float
    d_z: float
    p_t: float
    p_wilcoxon: float
    mean: float
    median: float
    below: float
    pooled: Pooled
    rounds: tuple[AtRound, ...]
    warning: str = ""

    @property
    def verdict(self) -> str:
        """The verdict on the conjecture, in words; it follows from the interval of the slope."""
        if math.isnan(self.slope):
            return "not testable: no trajectory has two distances"
        if self.high < 0:
            return "distances fall on average"
        return "distances rise on average" if self.low > 0 else "no trend is shown"


def slopes(distance: Floats, index: npt.NDArray[np.int64]) -> Floats:
    """Return the least-squares slope of distance on round for each trajectory; NaN with fewer than two distances.

    >>> slopes(np.array([[np.nan, 0.3, 0.2, 0.1], [np.nan, 0.3, np.nan, np.nan]]), np.arange(1, 5)).round(6).tolist()
    [-0.1, nan]

    Args:
        distance: Distances, shape ``(n_questions, n_rounds)``; undefined distances (NaN) are left out.
        index: The round of each column.
    """
    known = ~np.isnan(distance)
    count = known.sum(axis=1)
    usable = count >= _FEWEST_DISTANCES
    centre = np.divide((known * index).sum(axis=1), count, out=np.zeros(len(count)), where=usable)
    away = np.where(known, index - centre[:, None], 0.0)
    spread = (away**2).sum(axis=1)
    rise = (away * np.where(known, distance, 0.0)).sum(axis=1)
    slope: Floats = np.divide(rise, spread, out=np.full(len(count), math.nan), where=usable)
    return slope


def monotone(distance: Floats) -> Mask:
    """Return a mask of the trajectories whose defined distances never increase, shape ``(n_questions,)``."""
    falls = np.ones(len(distance), dtype=np.bool_)
    before = np.full(len(distance), np.inf)
    for column in distance.T:
        known = ~np.isnan(column)
        falls &= ~(known & (column > before + _RISE))
        before = np.where(known, column, before)
    return falls


def converge(drafts: Drafts, eps: float, *, resampling: Resampling = Resampling()) -> Convergence:
    """Measure the convergence of recorded drafts.

    Args:
        drafts: The drafts.
        eps: Threshold of convergence, for the shares below it.
        resampling: Settings of the intervals.
    """
    distance, clusters = drafts.distance, drafts.prepared.recording.clusters
    slope = slopes(distance, drafts.index)
    usable = ~np.isnan(slope)
    defined = distance[~np.isnan(distance)]
    common = {
        "n": drafts.n,
        "n_usable": int(usable.sum()),
        "mean": float(defined.mean()) if defined.size else math.nan,
        "median": float(np.median(defined)) if defined.size else math.nan,
        "below": float((defined < eps).mean()) if defined.size else math.nan,
        "pooled": _pooled(distance),
        "rounds": _distances_by_round(drafts, eps, resampling),
    }
    if not usable.any():
        undefined = dict.fromkeys(("monotone", "falling", "slope", "low", "high", "d_z", "p_t", "p_wilcoxon"), math.nan)
        return Convergence(**common, **undefined, n_clusters=0)  # type: ignore[arg-type]
    row, units = slope[usable], clusters[usable]
    draws = draws_by_place(resampling, len(row), units)
    interval = draws.paired(row)
    return Convergence(
        **common,  # type: ignore[arg-type]
        n_clusters=draws.units.n_units,
        monotone=float(monotone(distance[usable]).mean()),
        falling=float((row < 0).mean()),
        slope=interval.delta,
        low=interval.low,
        high=interval.high,
        d_z=cohens_d_z(row, clusters=units),
        p_t=float(paired_t_test(row, clusters=units)[0]),
        p_wilcoxon=wilcoxon_test(row, clusters=units),
        warning=interval.warning,
    )


def _pooled(distance: Floats) -> Pooled:
    """Return the published test: a one-sided Wilcoxon test on the steps of all trajectories together."""
    from scipy.stats import wilcoxon

    steps = np.diff(distance, axis=1)
    steps = steps[~np.isnan(steps)]
    if not steps.any():
        return Pooled(
            n_steps=len(steps), mean_step=0.0 if len(steps) else math.nan, statistic=math.nan, p_decreasing=math.nan
        )
    test = wilcoxon(steps, alternative="less")
    return Pooled(
        n_steps=len(steps),
        mean_step=float(steps.mean()),
        statistic=float(test.statistic),
        p_decreasing=float(test.pvalue),
    )


def _distances_by_round(drafts: Drafts, eps: float, resampling: Resampling) -> tuple[AtRound, ...]:
    rounds = []
    for position, r in enumerate(drafts.index.tolist()):
        column = drafts.distance[:, position]
        known = ~np.isnan(column)
        if not known.any():
            continue
        values, units = column[known], drafts.prepared.recording.clusters[known]
        interval = draws_by_place(resampling, len(values), units).paired(values)
        rounds.append(
            AtRound(
                round_index=r,
                n=len(values),
                mean=interval.delta,
                low=interval.low,
                high=interval.high,
                median=float(np.median(values)),
                below=float((values < eps).mean()),
            )
        )
    return tuple(rounds)
