"""What a replay returns: one row for each policy, baseline and oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suffice.common.display import Chart
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table, figure
from suffice.errors import DataError
from suffice.evaluation.replay.costs import COSTS
from suffice.evaluation.results import Evaluation
from suffice.evaluation.statistics import MarginTest, PairedResult

__all__ = ["COSTS", "ReplayResult", "Row", "Spread"]

_SPENT = {
    "calls": (Column("calls", ".2f"), "calls"),
    "tokens": (Column("tokens", ",.0f"), "tokens"),
    "seconds": (Column("seconds", ".3f"), "s"),
    "retrievals": (Column("retrievals", ".2f"), "retrievals"),
    "money": (Column("money", ".3g"), "USD"),
}
"""How a sentence names each of `COSTS`."""

Bounded = float | tuple[float, float]
"""A figure as a table shows it: alone, or as its bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spread:
    """A distribution over questions.

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
    """One policy, baseline or oracle.

    Attributes:
        label: Its name.
        kind: `rule`, `fixed`, `random`, `recorded`, `closed_book` or `oracle`.
        rule: The text of its rule; empty for oracles.
        selector: The selector of its answers, by which the fixed_k rows beside it are chosen; empty for the closed book and
            oracles.
        baseline: The label of the row that its differences are taken against.
        metrics: Means over questions, by metric, in [0, 1]; NaN where an answer was not measured or never given.
        bounds: Where rounds that it wanted never ran (`censored`): the means by metric if every answer that was never
            given were wrong, and if every one were right.
        deltas: Paired differences to the baseline by metric, and of `calls` and `tokens`; missing where unknown.
            Metrics have a test, and the policies given its p-value adjusted over all of them.
        delta_bounds: Where `censored`: the worst and the best mean difference by metric; of `calls` and `tokens` the
            least, for there is no most.
        margins: Non-inferiority and equivalence of the first metric, at each margin.
        calls: Requests to language models per question (loop, judges, gate).  Where `censored`, these and all other
            costs are lower bounds.
        costs: Mean operational cost per question by kind, `tokens`, `retrievals` and `money` (USD) included; NaN where unknown.
        components: The same by component, without money.
        evaluation: Mean cost per question of what was recorded beyond the operational cost, by kind.
        stop_rounds: Share of questions that stop at each round; questions that went on past the recording are in none.
        reasons: Questions by reason of their stop, `unrun` for those.
        n: Questions.
        n_failed: Questions that failed while recording, left out of every row alike.
        n_censored: Questions for which the policy wanted rounds that the recording lacks, because a rule had ended
            it: what it would have answered there is unknown.
        oracle_seen: Means if the best of the seen rounds were returned: what a perfect selector would add.
        cheapest_match: The cheapest fixed_k or random policy with at least the same quality (first metric).
        dominated_by: That policy if it costs at most as much and is strictly better in one; None otherwise.
        undecided: Which of `cheapest_match` and `dominated_by` could be otherwise, depending on rounds that never ran.
        selected_here: Whether the policy was fitted or selected on some of these questions.
        n_selected: How many of these questions it was fitted or selected on.
        notes: What a reader must know.
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
    undecided: tuple[str, ...]
    selected_here: bool
    n_selected: int
    notes: tuple[str, ...]

    @property
    def censored(self) -> bool:
        """Whether some questions wanted rounds that were never recorded."""
        return self.n_censored > 0

    @property
    def marked(self) -> str:
        """The label as tables show it: with † where censored, with * where fitted or selected on these questions."""
        return self.label + ("†" if self.censored else "") + ("*" if self.selected_here else "")

    @property
    def verdict(self) -> str:
        """Whether a baseline does as well for less, in words."""
        if self.dominated_by is not None:
            return f"dominated by {self.dominated_by}"
        if self.kind == "rule":
            return "unknown†" if "dominated_by" in self.undecided else "not dominated"
        return "not reachable" if self.kind == "oracle" else ""

    def quality(self, metric: str) -> Bounded:
        """Return the mean of a metric, where `censored` its bounds."""
        return self.bounds.get(metric, self.metrics[metric])

    def difference(self, name: str) -> tuple[float, ...] | None:
        """Return a difference to the baseline with its interval, its bounds where it is unknown, None without either."""
        delta = self.deltas.get(name)
        return self.delta_bounds.get(name) if delta is None else (delta.delta, delta.low, delta.high)

    def at_least(self, value: float) -> Bounded:
        """Return a cost as a table shows it: where `censored`, what was recorded of it is a lower bound."""
        return (value, math.inf) if self.censored and not math.isnan(value) else value

    def spent(self, cost: str) -> str:
        """Return what the row costs per question in words: one of `COSTS`."""
        column, unit = _SPENT[cost]
        return f"{column.text(self.at_least(self.costs[cost]))} {unit}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {**jsonable(asdict(self)), "censored": self.censored}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Evaluation):
    """All rows of a replay.

    Attributes:
        rows: Policies in the order given, then baselines.
        metrics: The metrics, the one that quality means first.
        baseline: The label of the row that differences are taken against; that of the first row, if policies with
            several selectors have one each (`Row.baseline`).
        n_clusters: Units that were resampled.
        n_failed: Questions left out because their recording failed.
        cost: What "cheapest" and "dominated" compare: one of `COSTS`.
        ledger: Which calls a policy is charged for: `live` or `published`.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    baseline: str
    n_clusters: int
    n_failed: int
    cost: str
    ledger: str

    @property
    def against(self) -> str:
        """What differences are taken against, as headings name it."""
        single = len({row.baseline for row in self.rows}) == 1
        return self.baseline if single else "the baseline of its selector"

    def row(self, label: str) -> Row:
        """Return the row of a label.

        Raises:
            DataError: There is none.
        """
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(f"no row {label!r}; there are: {', '.join(row.label for row in self.rows)}")

    def headline(self, label: str) -> str:
        """Return one sentence about a row: quality, difference, calls, and the baseline that does as well for less.

        Where rounds that the row wanted never ran, it gives bounds and says so.
        """
        row = self.row(label)
        parts = []
        if self.metrics:
            parts.append(f"{self.metrics[0]} {_with_difference(row, self.metrics[0])}")
        parts += [row.spent(cost) for cost in dict.fromkeys(("calls", self.cost))]
        if row.censored:
            parts.append(
                f"censored: unknown in {row.n_censored} of {row.n} questions, which a rule ended while recording"
            )
        if self.metrics:
            parts.append(self._rival(row))
        if row.selected_here:
            parts.append("selected here: fitted on these questions")
        return f"{label}{'†' if row.censored else ''}: {'; '.join(parts)}"

    def _rival(self, row: Row) -> str:
        if row.dominated_by is not None:
            return f"dominated by {row.dominated_by}"
        if row.undecided:
            what = "dominates it" if "dominated_by" in row.undecided else f"has this {self.metrics[0]} for less"
            return f"whether a fixed or random policy {what} is unknown"
        match = row.cheapest_match
        cheapest = "none" if match is None else f"{match} at {self.row(match).spent(self.cost)}"
        return f"cheapest fixed or random policy of at least this {self.metrics[0]}: {cheapest}"

    def tables(self) -> list[Table]:
        """Return outcomes, tests, costs, stops and margins."""
        from suffice.evaluation.replay.tables import replay_tables

        return replay_tables(self)

    @property
    def lead(self) -> str:
        """The headline of the first row."""
        return self.headline(self.rows[0].label) if self.rows else ""

    def plot(self, cost: str = "calls") -> Chart:
        """Return the chart of quality against a cost, for every policy, baseline and oracle.

        Args:
            cost: `calls`, `tokens`, `seconds` or `money`.

        Raises:
            DataError: The cost is not known for every row.
        """
        from suffice.evaluation.replay.charts import pareto_chart, pareto_costs

        known = pareto_costs(self) if self.metrics else []
        if cost not in known:
            raise DataError(f"nothing to plot against {cost!r}; known for every row: {', '.join(known) or 'nothing'}")
        return Chart(pareto_chart(self, cost))


def _with_difference(row: Row, metric: str) -> str:
    text = figure(row.quality(metric), ".1f", 100)
    difference = row.difference(metric)
    if row.label == row.baseline or difference is None:
        return text
    return f"{text} ({figure(difference, '+.1f', 100)} vs {row.baseline})"
