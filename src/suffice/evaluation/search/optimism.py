"""How much of the best rule's lead is luck: the naive best beside estimates that did not select on what they report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.evaluation.search.explore import Distinct, Explorer, SearchProgress
from suffice.evaluation.statistics import ROUNDING, Draws, PairedResult, drawn_folds, max_statistic
from suffice.policy.rounds import Floats, Positions

__all__ = ["Optimism", "RuleEstimate", "Trials", "measure_optimism"]

_LARGEST_FAMILY = 2**25
"""Rules times questions up to which the lead is tested against the whole family, a bound on memory (256 MiB)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEstimate:
    """What selecting the best rule within the budget is worth, by one way of estimating it.

    Attributes:
        how: `naive` (selected and reported on the same questions), `nested` (selected on tune), or `cross-fitted`
            (each question counts with the rule that the other folds select).
        rules: What was selected, most frequent first.
        quality: Mean of the metric, in [0, 1].
        calls: Mean calls.
        delta: The difference to the baseline, with its interval.  The interval takes the selection as given.
    """

    how: str
    rules: tuple[str, ...]
    quality: float
    calls: float
    delta: PairedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimism:
    """The optimism of a search.

    Attributes:
        estimates: Naive, nested and cross-fitted, as far as they are available.
        n_rules: Rules that were tried.
        n_distinct: Different sets of stops among them.
        n_within: Those within the budget, among which the best was selected.
        p_raw: One-sided bootstrap p-value of the naive best's lead, as if it had been the only rule.
        p_corrected: The same against the largest of all lead statistics of the rules within the budget.  NaN where
            these are too many to test together.
    """

    estimates: tuple[RuleEstimate, ...]
    n_rules: int
    n_distinct: int
    n_within: int
    p_raw: float
    p_corrected: float

    def estimate(self, how: str) -> RuleEstimate | None:
        """Return one of the estimates, None if it is not available."""
        return next((item for item in self.estimates if item.how == how), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trials:
    """All rules of a space on some questions, with what each gives and costs.

    Attributes:
        explorer: The space on the questions.
        distinct: The rules that stand for all that stop alike.
        means: Mean outcomes of each of them, by name in `OUTCOMES`.
        budget: Most mean calls of what is selected.
    """

    explorer: Explorer
    distinct: Distinct
    means: Mapping[str, Floats]
    budget: float

    @classmethod
    def of(cls, explorer: Explorer, budget: float, progress: SearchProgress | None = None) -> Trials:
        """Try every rule."""
        distinct = explorer.distinct(progress)
        return cls(explorer=explorer, distinct=distinct, means=explorer.means(distinct.number), budget=budget)

    @property
    def best(self) -> int | None:
        """The position of the best rule within the budget; None where no rule is."""
        return best_within(self.means["quality"], self.means["calls"], self.budget)


def best_within(quality: Floats, calls: Floats, budget: float) -> int | None:
    """Return the position of the best quality within the budget; among equals the fewest calls, then the first.

    >>> best_within(np.array([0.5, 0.7, 0.9]), np.array([1.0, 3.0, 3.1]), 3.0)
    1
    """
    allowed = np.flatnonzero(calls <= budget + ROUNDING)
    if not len(allowed):
        return None
    top = allowed[quality[allowed] >= quality[allowed].max() - ROUNDING]
    return int(top[np.argmin(calls[top])])


def measure_optimism(trials: Trials, on_tune: Positions, draws: Draws, folds: int) -> Optimism | None:
    """Return what selecting the best rule within the budget is worth; None where no rule is within it.

    Args:
        trials: The rules on the searched questions.
        on_tune: The number of the rule that tune selects; empty if there is none.
        draws: What is compared on; its seed draws the folds.
        folds: Of the cross-fitted estimate, at most one for each unit.
    """
    best, explorer, distinct = trials.best, trials.explorer, trials.distinct
    if best is None:
        return None
    within = np.flatnonzero(trials.means["calls"] <= trials.budget + ROUNDING)
    raw, corrected = _lead_p_values(explorer, distinct.number[within], int(np.searchsorted(within, best)), draws)
    estimates = [
        _estimate_of(how, explorer, number, draws)
        for how, number in (("naive", distinct.number[[best]]), ("nested", on_tune))
        if len(number)
    ]
    crossed = _cross_fit(trials, folds, draws)
    return Optimism(
        estimates=(*estimates, *([crossed] if crossed is not None else [])),
        n_rules=explorer.space.count,
        n_distinct=len(distinct),
        n_within=len(within),
        p_raw=raw,
        p_corrected=corrected,
    )


def _estimate_of(how: str, explorer: Explorer, number: Positions, draws: Draws) -> RuleEstimate:
    """Return what one rule gives on all questions."""
    means = explorer.means(number)
    _, deltas = next(explorer.deltas(number))
    return RuleEstimate(
        how=how,
        rules=(str(explorer.rules(number)[0]),),
        quality=float(means["quality"][0]),
        calls=float(means["calls"][0]),
        delta=draws.paired(deltas["quality"][0]),
    )


def _cross_fit(trials: Trials, folds: int, draws: Draws) -> RuleEstimate | None:
    """Return the estimate that selects each question's rule on the other folds; None where that cannot be done.

    Thresholds stay those of tune; folds are drawn over clusters, so that the runs of one question stay together.
    """
    explorer, numbers = trials.explorer, trials.distinct.number
    fold = drawn_folds(len(explorer.questions), folds, clusters=explorer.questions.clusters, seed=draws.resampling.seed)
    n_folds = int(fold.max()) + 1
    if n_folds < 2:  # noqa: PLR2004
        return None
    # Sums over each fold in one product; a mean without a fold is then a difference of sums, for all rules at once.
    member = (fold[:, None] == np.arange(n_folds)).astype(np.float64)
    totals = {name: np.empty((len(numbers), n_folds)) for name in ("quality", "calls")}
    for part, _, outcome in explorer.outcomes(numbers):
        for name, total in totals.items():
            total[part] = outcome(name) @ member
    size = member.sum(axis=0)
    best = []
    for k in range(n_folds):
        others = {name: (total.sum(axis=1) - total[:, k]) / (size.sum() - size[k]) for name, total in totals.items()}
        best.append(best_within(others["quality"], others["calls"], trials.budget))
    picked = [position for position in best if position is not None]
    return _estimate_by_fold(explorer, numbers[picked], fold, draws) if len(picked) == n_folds else None


def _estimate_by_fold(explorer: Explorer, picked: Positions, fold: Positions, draws: Draws) -> RuleEstimate:
    """Return the estimate in which each question counts with the rule picked for its fold."""
    order, place = np.unique(picked, return_inverse=True)
    mine = place[fold]  # which of the different rules each question counts with
    quality, calls, delta = np.empty((3, len(explorer.questions)))
    for part, side, outcome in explorer.outcomes(order):
        here = np.flatnonzero((mine >= part.start) & (mine < part.stop))
        rows = mine[here] - part.start
        quality[here], calls[here] = (outcome(name)[rows, here] for name in ("quality", "calls"))
        delta[here] = quality[here] - side.baseline["quality"][here]
    texts = list(map(str, explorer.rules(order)))
    by_use = np.argsort(-np.bincount(place), kind="stable")
    return RuleEstimate(
        how="cross-fitted",
        rules=tuple(texts[i] for i in by_use.tolist()),
        quality=float(quality.mean()),
        calls=float(calls.mean()),
        delta=draws.paired(delta),
    )


def _lead_p_values(explorer: Explorer, numbers: Positions, best: int, draws: Draws) -> tuple[float, float]:
    """Return the one-sided p-value of the best rule's lead over the baseline, raw and corrected for the family.

    Args:
        explorer: The space on the questions.
        numbers: Sorted numbers of the distinct rules within the budget.
        best: The position of the best among them.
        draws: What is compared on.
    """
    alone = next(explorer.deltas(numbers[best : best + 1]))[1]["quality"]
    raw = float(max_statistic(alone, draws.weights, clusters=draws.clusters).p[0])
    if len(numbers) * len(explorer.questions) > _LARGEST_FAMILY:
        return raw, float("nan")
    family = np.empty((len(numbers), len(explorer.questions)))
    for part, deltas in explorer.deltas(numbers):
        family[part] = deltas["quality"]
    return raw, float(max_statistic(family, draws.weights, clusters=draws.clusters).p[best])
