"""What a replay returns: one row for each policy, baseline and oracle."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from suffice.errors import DataError
from suffice.statistics import MarginTest, PairedResult

__all__ = ["COSTS", "ReplayResult", "Row", "Spread", "jsonable"]

COSTS = ("calls", "tokens", "seconds", "money", "retrievals")
"""What policies can be compared by."""


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
        kind: `rule`, `fixed`, `random`, `closed_book` or `oracle`.
        rule: The text of its rule; empty for oracles.
        metrics: Means over questions, by metric, in [0, 1]; NaN where an answer was not measured.
        deltas: Paired differences to the baseline by metric, and of `calls` and `tokens`; missing where unknown.
            Metrics have a test, and the policies given its p-value adjusted over all of them.
        margins: Non-inferiority and equivalence of the first metric, at each margin.
        calls: Requests to language models per question (loop, judges, gate).
        costs: Mean operational cost per question by kind, `tokens`, `retrievals` and `money` (USD) included; NaN where unknown.
        components: The same by component, without money.
        evaluation: Mean cost per question of what was recorded beyond the operational cost, by kind.
        stop_rounds: Share of questions that stop at each round.
        reasons: Questions by reason of their stop.
        n: Questions.
        n_failed: Questions that failed while recording, left out of every row alike.
        n_censored: Questions for which the policy wanted rounds that the recording lacks, because a rule had ended
            it; their last recorded round counts.
        oracle_seen: Means if the best of the seen rounds were returned: what a perfect selector would add.
        cheapest_match: The cheapest fixed_k or random policy with at least the same quality (first metric).
        dominated_by: That policy if it costs at most as much and is strictly better in one; None otherwise.
        selected_here: Whether the policy was fitted or selected on some of these questions.
        n_selected: How many of these questions it was fitted or selected on.
        notes: What a reader must know.
    """

    label: str
    kind: str
    rule: str
    metrics: Mapping[str, float]
    deltas: Mapping[str, PairedResult]
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
    selected_here: bool
    n_selected: int
    notes: tuple[str, ...]

    @property
    def censored(self) -> bool:
        """Whether some questions wanted rounds that were never recorded."""
        return self.n_censored > 0

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        data = jsonable(asdict(self))
        assert isinstance(data, dict)
        return {**data, "censored": self.censored}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayResult:
    """All rows of a replay.

    Attributes:
        rows: Policies in the order given, then baselines.
        metrics: The metrics, the one that quality means first.
        baseline: The label of the row that differences are taken against.
        n: Questions.
        n_clusters: Units that were resampled.
        n_failed: Questions left out because their recording failed.
        level: Nominal coverage of intervals.
        n_resamples: Draws.
        seed: Seed of the draws.
        interval: Method of the intervals, see `suffice.statistics.paired_bootstrap`.
        cost: What "cheapest" and "dominated" compare: one of `COSTS`.
        ledger: Which calls a policy is charged for: `live` or `published`.
        data_hash: Of the recording.
        notes: What a reader must know.
    """

    rows: tuple[Row, ...]
    metrics: tuple[str, ...]
    baseline: str
    n: int
    n_clusters: int
    n_failed: int
    level: float
    n_resamples: int
    seed: int
    interval: str
    cost: str
    ledger: str
    data_hash: str
    notes: tuple[str, ...]

    def row(self, label: str) -> Row:
        """Return the row of a label.

        Raises:
            DataError: There is none.
        """
        for row in self.rows:
            if row.label == label:
                return row
        raise DataError(f"no row {label!r}; there are: {', '.join(row.label for row in self.rows)}")

    def _spent(self, row: Row, cost: str) -> str:
        form, unit = {"calls": (".2f", "calls"), "tokens": (",.0f", "tokens"), "seconds": (".3f", "s")}.get(
            cost, (".2f", "retrievals") if cost == "retrievals" else (".3g", "USD")
        )
        return f"{row.calls.mean if cost == 'calls' else row.costs[cost]:{form}} {unit}"

    def headline(self, label: str) -> str:
        """Return one sentence about a row: quality, difference, calls, and the baseline that does as well for less."""
        row = self.row(label)
        parts = []
        if self.metrics:
            name = self.metrics[0]
            parts.append(f"{name} {100 * row.metrics[name]:.1f}")
            delta = row.deltas.get(name)
            if delta is not None and label != self.baseline:
                parts[-1] += (
                    f" ({100 * delta.delta:+.1f} [{100 * delta.low:+.1f}, {100 * delta.high:+.1f}] vs {self.baseline})"
                )
        parts.append(self._spent(row, "calls"))
        if self.cost != "calls":
            parts.append(self._spent(row, self.cost))
        if row.dominated_by is not None:
            parts.append(f"dominated by {row.dominated_by}")
        elif self.metrics:
            match = row.cheapest_match
            cheapest = "none" if match is None else f"{match} at {self._spent(self.row(match), self.cost)}"
            parts.append(f"cheapest fixed or random policy of at least this {self.metrics[0]}: {cheapest}")
        if row.selected_here:
            parts.append("selected here: fitted on these questions")
        if row.censored:
            parts.append(f"censored in {row.n_censored} of {row.n} questions")
        return f"{label}: {'; '.join(parts)}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        data = {name: getattr(self, name) for name in self.__slots__ if name != "rows"}
        clean = jsonable(data)
        assert isinstance(clean, dict)
        return {**clean, "rows": [row.to_dict() for row in self.rows]}


def jsonable(value: Any) -> Any:
    """Return nested values as JSON has them: text keys, lists, None for NaN and infinities."""
    if isinstance(value, Mapping):
        return {str(key): jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
