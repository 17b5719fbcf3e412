"""The result of a replay: one row for each policy, baseline and oracle."""

from __future__ import annotations

from dataclasses import dataclass, field

from suffice.common.display import Chart
from suffice.common.results import UNLESS_DEFAULT
from suffice.common.tables import Table, figure
from suffice.errors import DataError
from suffice.evaluation.replay.costs import COSTS
from suffice.evaluation.replay.replayed_rows import Row, Spread
from suffice.evaluation.results import Evaluation
from suffice.recordings.schema import DOLLAR

__all__ = ["COSTS", "ReplayResult", "Row", "Spread"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult(Evaluation):
    """All rows of a replay.

    Attributes:
        rows: Policies in the order given, then baselines.
        metrics: The metrics; the first one is the quality.
        baseline: The label of the first row's baseline.  Policies with other selectors may have another baseline, see
            `Row.baseline`.
        n_clusters: Number of units that were resampled.
        n_failed: Number of questions left out because their recording failed.
        cost: The cost that "cheapest" and "dominated" compare: one of `COSTS`.
        ledger: The convention of charging: `live` or `published`.
        currency: The currency of money.  JSON omits US dollars, the default.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    baseline: str
    n_clusters: int
    n_failed: int
    cost: str
    ledger: str
    currency: str = field(default=DOLLAR, metadata=UNLESS_DEFAULT)

    @property
    def against(self) -> str:
        """The baseline of differences, as it appears in headings."""
        single = len({row.baseline for row in self.rows}) == 1
        return self.baseline if single else "the baseline of its selector"

    def row(self, label: str) -> Row:
        """Return the row with this label.

        Raises:
            DataError: There is no such row.
        """
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(f"no row {label!r}; there are: {', '.join(row.label for row in self.rows)}")

    def headline(self, label: str) -> str:
        """Return one sentence about a row: quality, difference, calls, and a baseline that does as well for less.

        If rounds that the row needed never ran, the sentence gives bounds and says so.
        """
        row = self.row(label)
        parts = []
        if self.metrics:
            parts.append(f"{self.metrics[0]} {_with_difference(row, self.metrics[0])}")
        parts += [row.spent(cost, self.currency) for cost in dict.fromkeys(("calls", self.cost))]
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
        cheapest = "none" if match is None else f"{match} at {self.row(match).spent(self.cost, self.currency)}"
        return f"cheapest fixed or random policy of at least this {self.metrics[0]}: {cheapest}"

    def tables(self) -> list[Table]:
        """Return the tables of outcomes, tests, mixtures, costs, stops and margins."""
        from suffice.evaluation.replay.replay_tables import replay_tables

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
