"""Optimism of the best rule's lead: the naive estimate, and estimates that select and report on different questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.evaluation.search.explore import Distinct, Explorer
from suffice.evaluation.statistics import ROUNDING, PairedResult
from suffice.policy.rounds import Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleEstimate:
    """One estimate of the gain from selecting the best rule within the budget.

    Attributes:
        how: `naive` (selected and reported on the same questions), `nested` (selected on tune), or `cross-fitted` (each
            question is reported under the rule that the other folds select).
        rules: The selected rules, most frequent first.
        quality: Mean of the metric, in [0, 1].
        calls: Mean calls.
        delta: The difference to the baseline, with its interval.  The interval does not account for the selection.
    """

    how: str
    rules: tuple[str, ...]
    quality: float
    calls: float
    delta: PairedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimism:
    """Estimates of the share of luck in the best rule's lead.

    Attributes:
        estimates: Naive, nested and cross-fitted, as far as they are available.
        n_rules: Number of rules that were tried.
        n_distinct: Number of distinct sets of stops among them.
        n_within: Number of these sets within the budget, among which the best was selected.
        p_raw: One-sided bootstrap p-value of the naive best's lead, as if it had been the only rule.
        p_corrected: The p-value corrected for the selection of the best rule: the lead is compared with the largest
            lead statistic of all rules within the budget.  NaN if there are too many rules to test together.
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
    """All rules of a space on some questions, with their mean metric and costs.

    Attributes:
        distinct: One rule for each set of stops.
        means: Mean outcomes of these rules, by name in `OUTCOMES`.
        budget: The largest mean number of calls of a selected rule.
    """

    explorer: Explorer
    distinct: Distinct
    means: Mapping[str, Floats]
    budget: float

    @property
    def best(self) -> int | None:
        """The position of the best rule within the budget; None if no rule meets the budget."""
        return best_within(self.means["quality"], self.means["calls"], self.budget)


def best_within(quality: Floats, calls: Floats, budget: float) -> int | None:
    """Return the position of the best quality within the budget; among ties the fewest calls, then the first.

    >>> best_within(np.array([0.5, 0.7, 0.9]), np.array([1.0, 3.0, 3.1]), 3.0)
    1
    """
    allowed = np.flatnonzero(calls <= budget + ROUNDING)
    if not len(allowed):
        return None
    top = allowed[quality[allowed] >= quality[allowed].max() - ROUNDING]
    return int(top[np.argmin(calls[top])])
