"""The rows of a replay: one for each policy, baseline and oracle, and the protocol of the result that holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol

from suffice.common.results import jsonable
from suffice.common.tables import Column
from suffice.evaluation.replay.front import Mixture
from suffice.evaluation.statistics import MarginTest, PairedResult, Resampling

_SPENT = {
    "calls": (Column("calls", ".2f"), "calls"),
    "tokens": (Column("tokens", ",.0f"), "tokens"),
    "seconds": (Column("seconds", ".3f"), "s"),
    "retrievals": (Column("retrievals", ".2f"), "retrievals"),
    "money": (Column("money", ".3g"), ""),
}
"""The words for each of `COSTS` in a sentence; the unit of money is its currency."""

Bounded = float | tuple[float, float]
"""A figure in a table: one value, or its lower and upper bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """Mean and quantiles of a number over questions.

    Attributes:
        mean: Mean; NaN where a value is unknown.
        p50: The smallest value that at least half of the questions do not exceed.
        p95: The smallest value that at least 95 % of the questions do not exceed.
    """

    mean: float
    p50: float
    p95: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One policy, baseline or oracle in a replay's table.

    Attributes:
        label: The name of the row.
        kind: `rule`, `fixed`, `random`, `recorded`, `closed_book` or `oracle`.
        rule: The text of the rule; empty for oracles.
        selector: The selector that chose the answers of the row and of its fixed_k baselines; empty for the closed book
            and for oracles.
        baseline: The label of the row that this row is compared with.
        metrics: Means over questions, by metric, in [0, 1]; NaN where an answer was not measured or never given.
        bounds: Empty if all needed rounds ran.  Otherwise (`censored`), by metric: the mean if every missing answer
            were wrong, and the mean if every missing answer were right.
        deltas: Paired differences to the baseline, by metric and for `calls` and `tokens`; unknown ones are left out.
            Differences of metrics are tested.  For the given policies, the p-value is also adjusted for their number.
        delta_bounds: If `censored`: by metric, the worst and the best mean difference.  For `calls` and `tokens`, the
            lower bound only; the upper bound is infinite.
        margins: Non-inferiority and equivalence of the first metric, at each margin.
        calls: Requests to language models per question (loop, judges, gate).  Where `censored`, these and all other
            costs are lower bounds.
        costs: Mean operational cost per question, by kind; NaN where unknown.  The kinds include `tokens`, `retrievals`
            and `money` (in `Replayed.currency`).
        components: Mean operational cost per question by component and kind, without money.
        evaluation: Mean recorded cost per question beyond the operational cost, by kind.
        stop_rounds: Share of questions that stop at each round; questions that would have continued past the recording
            are not counted at any round.
        reasons: Number of questions by reason of their stop; `unrun` if the stop lies past the recording.
        n: Number of questions.
        n_failed: Number of questions that failed while recording; every row leaves them out.
        n_censored: Number of questions with an unknown answer: the policy needed rounds that never ran, because a rule
            had ended the recording.
        oracle_seen: Means by metric if the best round up to the stop were returned, as by a perfect selector.
        cheapest_match: The cheapest fixed_k or random policy whose quality (first metric) is at least that of the row.
        dominated_by: The label of `cheapest_match` if it is also strictly better in quality or cost.  Otherwise, for a
            rule, the label of `mixture` if the mixture scores more.  None if nothing dominates the row.
        mixture: For a rule, the best mixture of two fixed budgets that costs no more than the rule; None if every
            budget costs more.
        undecided: The names of the fields among `cheapest_match` and `dominated_by` whose value depends on rounds that
            never ran.
        selected_here: Whether the policy was fitted or selected on some of these questions.
        n_selected: Number of these questions that the policy was fitted or selected on.
        notes: Notes for the reader.
    """

    label: str
    kind: str
    rule: str
    selector: str
    baseline: str
    metrics: Mapping[str, float]
    bounds: Mapping[str, tuple[float, float]]
    deltas: Mapping[str, PairedResult]
    delta_bounds: Mapping[str, tuple[float, float]]
    margins: tuple[MarginTest, ...]
    calls: Spread
    costs: Mapping[str, float]
    components: Mapping[str, Mapping[str, float]]
    evaluation: Mapping[str, float]
    stop_rounds: Mapping[int, float]
    reasons: Mapping[str, int]
    n: int
    n_failed: int
    n_censored: int
    oracle_seen: Mapping[str, float]
    cheapest_match: str | None
    dominated_by: str | None
    mixture: Mixture | None
    undecided: tuple[str, ...]
    selected_here: bool
    n_selected: int
    notes: tuple[str, ...]

    @property
    def censored(self) -> bool:
        """True if the policy needed rounds that were not recorded for some questions."""
        return self.n_censored > 0

    @property
    def dominating_mixture(self) -> Mixture | None:
        """The mixture of two fixed budgets that dominates the row; None if no mixture does."""
        mixture = self.mixture
        return mixture if mixture is not None and mixture.share and mixture.label == self.dominated_by else None

    @property
    def marked(self) -> str:
        """The label as tables show it: with † if censored, with * if fitted or selected on these questions."""
        return self.label + ("†" if self.censored else "") + ("*" if self.selected_here else "")

    @property
    def verdict(self) -> str:
        """The text of the column `verdict`: the baseline that dominates the row, if there is one.

        Otherwise the text says "not dominated" (or "unknown") for a rule and "not reachable" for an oracle; for other
        rows it is empty.
        """
        if self.dominated_by is not None:
            return f"dominated by {self.dominated_by}"
        if self.kind == "rule":
            return "unknown†" if "dominated_by" in self.undecided else "not dominated"
        return "not reachable" if self.kind == "oracle" else ""

    def quality(self, metric: str) -> Bounded:
        """Return the mean of a metric, or its bounds if `censored`."""
        return self.bounds.get(metric, self.metrics[metric])

    def difference(self, name: str) -> tuple[float, ...] | None:
        """Return a difference to the baseline with the ends of its interval.

        If the difference is unknown, return its bounds; if it has no bounds either, return None.
        """
        delta = self.deltas.get(name)
        return self.delta_bounds.get(name) if delta is None else (delta.delta, delta.low, delta.high)

    def at_least(self, value: float) -> Bounded:
        """Return a cost for a table; if `censored`, the recorded cost is only a lower bound."""
        return (value, math.inf) if self.censored and not math.isnan(value) else value

    def spent(self, cost: str, currency: str) -> str:
        """Return one of the costs in `COSTS` per question, as a text with its unit; money is in `currency`."""
        column, unit = _SPENT[cost]
        return f"{column.text(self.at_least(self.costs[cost]))} {unit or currency}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None, and only rules have a `mixture`."""
        values = {**jsonable(asdict(self)), "censored": self.censored}
        if self.kind != "rule":
            del values["mixture"]
        return values


class Replayed(Protocol):
    """Protocol of the facts of a replay that tables and charts read; `ReplayResult` has them."""

    @property
    def rows(self) -> Sequence[Row]:
        """One row for each policy, baseline and oracle."""

    @property
    def metrics(self) -> Sequence[str]:
        """The metrics; the first one is the quality."""

    @property
    def against(self) -> str:
        """The baseline, in words."""

    @property
    def cost(self) -> str:
        """The cost that "cheapest" and "dominated" compare."""

    @property
    def currency(self) -> str:
        """The currency of money, see `currency_of`."""

    @property
    def resampling(self) -> Resampling:
        """The settings of the intervals."""

    @property
    def n(self) -> int:
        """The number of questions."""

    @property
    def n_clusters(self) -> int:
        """Number of questions, where rows that repeat a question count once."""

    @property
    def ledger(self) -> str:
        """The convention of charging behind the costs, `live` or `published`."""

    @property
    def notes(self) -> Sequence[str]:
        """Notes for the reader."""

    def row(self, label: str) -> Row:
        """Return the row with this label."""
