"""The result of a search, with one row for each distinct set of stops: columns, tables and parquet."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.common.display import Chart
from suffice.common.files import replacing
from suffice.common.results import jsonable
from suffice.common.tables import Column, Table
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    axis_of,
    bound_layer,
    chart_of,
    front_layer,
    legend_entry,
    point_layer,
    scale_of,
)
from suffice.evaluation.results import Evaluation
from suffice.evaluation.search.equivalent import ThresholdIntervals
from suffice.evaluation.search.explore import Distinct, Explorer, SearchProgress
from suffice.evaluation.search.optimism import Optimism, RuleEstimate
from suffice.evaluation.search.thresholds import Locked
from suffice.evaluation.statistics import PairedResult
from suffice.policy.rounds import Floats, Positions
from suffice.policy.session import Policy

_WRITTEN_AT_ONCE = 20_000
"""Number of rules whose texts are created and written at once."""

_RULE_MARKS = {
    "other rules": ("var(--accent-soft)", "circle"),
    "no rule dominates it": ("var(--accent)", "circle"),
    "named": ("var(--text)", "square"),
    "baseline": ("var(--muted)", "triangle-up"),
    "best here (selected here)": ("var(--good)", "diamond"),
    "selected on tune": ("var(--good)", "circle"),
}
"""Colour and shape of each kind of point; later ones are drawn over earlier ones."""

_MOST_POINTS = 1_000
"""Largest number of points besides the front; if there are more, an evenly spaced selection is drawn."""

_MOST_SHOWN = 12
"""Most rules of the front that a table shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """A published rule that is always shown, but not counted in the search.

    Attributes:
        name: Its name.
        prompt: The prompt whose rounds it read.
        quality: Mean of the metric.
        calls: Mean calls.
        delta: The difference to the baseline; None without draws.
        members: Number of rules of the space with the same stops.
    """

    name: str
    prompt: str
    quality: float
    calls: float
    delta: PairedResult | None
    members: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen:
    """The rule selected on tune questions within the budget.

    Attributes:
        policy: The selected rule with its fitted state and provenance.
        prompt: The prompt whose rounds the rule reads.
        quality: Mean of the metric on tune, "selected there".
        calls: Mean calls on tune.
        headline: One sentence about the searched questions.
        estimate: The rule's estimate on the searched questions, which were not used to select the rule.
    """

    policy: Policy
    prompt: str
    quality: float
    calls: float
    headline: str
    estimate: RuleEstimate

    @property
    def point(self) -> tuple[float, float]:
        """Mean quality and calls on the searched questions, as a point."""
        return self.estimate.quality, self.estimate.calls


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult(Evaluation):
    """A search's result; arrays have one entry for each distinct set of stops.

    Attributes:
        explorer: The space, with its thresholds, applied to the searched questions of the first part (to all searched
            questions if the recording was in memory).
        intervals: A function that reads the questions again and returns the intervals of rules' thresholds, see
            `equivalent_intervals`.
        baselines: Mean quality and calls of the baseline, by prompt.
        distinct: One rule for each set of stops.
        columns: Figures by name: `quality`, `calls` and `tokens`.  With draws, also the difference in quality to the
            baseline with its t interval (`delta`, `low`, `high`), and in calls (`calls_delta` and so on).
        front: Mask of the rules on the Pareto front: no other rule is at least as good in both calls and quality, and
            better in one of them.
        metric: The quality.
        budget: The largest mean number of calls of a selected rule.
        baseline: The baseline of differences.
        locked: The thresholds that were chosen on tune questions.
        named: Published rules, which are not counted in the search.
        best: The position of the best rule within the budget on these questions, "selected here"; None if no rule meets
            the budget.
        chosen: The rule selected on tune questions; None if no rule meets the budget on these.
        optimism: Estimates of how much of the best rule's lead is luck; None without draws, or if no rule meets the
            budget.
        n_tune: Number of tune questions.
    """

    explorer: Explorer
    intervals: Callable[[Positions], list[ThresholdIntervals]]
    baselines: Mapping[str, tuple[float, float]]
    distinct: Distinct
    columns: Mapping[str, Floats]
    front: npt.NDArray[np.bool_]
    metric: str
    budget: float
    baseline: str
    locked: tuple[Locked, ...]
    named: tuple[Named, ...]
    best: int | None
    chosen: Chosen | None
    optimism: Optimism | None
    n_tune: int

    @property
    def n_rules(self) -> int:
        """The number of rules that were tried."""
        return self.explorer.space.count

    def rows(self, positions: Sequence[int] | npt.NDArray[np.int64]) -> list[dict[str, Any]]:
        """Return rows as plain values, with the rule's text and the intervals of its thresholds.

        Args:
            positions: Positions of the rows, in any order.
        """
        wanted = np.asarray(positions, dtype=np.int64)
        order = np.argsort(wanted, kind="stable")
        picked = wanted[order]
        numbers = self.distinct.number[picked]
        rules = self.explorer.rules(numbers)
        prompts, highest = self.explorer.settings(numbers)
        intervals = self.intervals(numbers)
        rows: list[dict[str, Any]] = [{} for _ in picked]
        for row, (place, position) in enumerate(zip(order.tolist(), picked.tolist(), strict=True)):
            rows[place] = {
                "rule": str(rules[row]),
                "prompt": prompts[row],
                "max_rounds": highest[row],
                "members": int(self.distinct.members[position]),
                **{name: float(values[position]) for name, values in self.columns.items()},
                "front": bool(self.front[position]),
                "stops": f"{int(self.distinct.hash[position]):016x}",
                "thresholds": _finite_ends(intervals[row]),
            }
        return rows

    @property
    def shown(self) -> list[int]:
        """The positions of the front's points to show, in ascending order of calls; a long front is thinned.

        The ends of the front and the best rule are always shown.
        """
        front = np.flatnonzero(self.front)
        front = front[np.argsort(self.columns["calls"][front], kind="stable")]
        if len(front) > _MOST_SHOWN:
            even = set(front[np.linspace(0, len(front) - 1, _MOST_SHOWN).astype(int)].tolist())
            front = np.array([p for p in front.tolist() if p in even or p == self.best])
        return [int(position) for position in front]

    @property
    def lead(self) -> str:
        """The headline of the chosen rule."""
        return "" if self.chosen is None else self.chosen.headline

    def plot(self) -> Chart:
        """Return the chart of quality against calls: all rules, the Pareto front, and the selected rules."""
        return Chart(search_chart(self))

    def tables(self) -> list[Table]:
        """Return the tables of locked thresholds, the front, and the optimism."""
        locked = [_locked_table(self)] if self.locked else []
        optimism = [] if self.optimism is None else [_optimism_table(self, self.optimism)]
        return [*locked, _front_table(self), *optimism]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values, with only the rules on the front; NaN becomes None."""
        chosen = self.chosen
        values: dict[str, Any] = jsonable(
            {
                "space": self.explorer.space.name,
                "n_rules": self.n_rules,
                "n_distinct": len(self.distinct),
                "metric": self.metric,
                "budget": self.budget,
                "baseline": self.baseline,
                "n": self.n,
                "n_tune": self.n_tune,
                **self.resampling.to_dict(),
                "data_hash": self.data_hash,
                "locked": [asdict(item) for item in self.locked],
                "selected_on_tune": None
                if chosen is None
                else {
                    "rule": str(chosen.policy.rule),
                    "max_rounds": chosen.policy.max_rounds,
                    "prompt": chosen.prompt,
                    "tune": {"quality": chosen.quality, "calls": chosen.calls},
                    "eval": asdict(chosen.estimate),
                    "headline": chosen.headline,
                },
                "selected_here": None if self.best is None else self.rows([self.best])[0],
                "named": [asdict(item) for item in self.named],
                "front": self.rows(self.shown),
                "n_front": int(self.front.sum()),
                "optimism": None if self.optimism is None else asdict(self.optimism),
                "notes": list(self.notes),
            }
        )
        return values


def write_rules(result: SearchResult, path: str | Path, progress: SearchProgress | None = None) -> None:
    """Write one row for each distinct set of stops as parquet, whole or not at all."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    about = {name: value for name, value in result.to_dict().items() if name != "front"}
    n = len(result.distinct)
    with replacing(path) as temporary, ExitStack() as files:
        for start in range(0, n, _WRITTEN_AT_ONCE):
            rows = result.rows(np.arange(start, min(start + _WRITTEN_AT_ONCE, n)))
            table = pa.Table.from_pylist([{**row, "thresholds": json.dumps(row["thresholds"])} for row in rows])
            if not start:
                schema = table.schema.with_metadata({b"suffice.searches": json.dumps(about)})
                writer = files.enter_context(pq.ParquetWriter(temporary, schema, compression="zstd"))
            writer.write_table(table.cast(schema))
            if progress is not None:
                progress(start + len(rows), n)


def _finite_ends(intervals: ThresholdIntervals) -> dict[str, list[float | None]]:
    return {name: [end if math.isfinite(end) else None for end in interval] for name, interval in intervals.items()}


def _with_intervals(row: Mapping[str, Any]) -> str:
    """Return a rule's text in which intervals of equivalent values replace the thresholds.

    Thresholds of boolean signals are not replaced.
    """
    text = str(row["rule"])
    for literal, (low, high) in row["thresholds"].items():
        ends = ["" if end is None else f"{end:.4g}" for end in (low, high)]
        text = re.sub(rf"(?<!\w){re.escape(literal)} (?!1\)|1$)[^\s)]+", f"{literal} {'..'.join(ends)}", text)
    return text


def _locked_table(result: SearchResult) -> Table:
    columns = (
        Column("literal"),
        Column("prompt"),
        Column(result.metric.upper(), ".1f", scale=100),
        Column("calls", ".2f"),
    )
    outside = [item.literal.signal for item in result.locked if not item.within_budget]
    notes = [f"no threshold of {name} meets the budget: the one of fewest calls is taken" for name in outside]
    rows = tuple((str(i.literal.threshold(0)), i.prompt or "-", i.quality, i.calls) for i in result.locked)
    title = f"Thresholds locked on {result.n_tune} tune questions, each by itself, within {result.budget:g} calls"
    return Table(title=title, columns=columns, rows=rows, notes=tuple(notes))


def _front_table(result: SearchResult) -> Table:
    metric = result.metric.upper()
    columns = [
        Column(""),
        Column("rule (a..b: any threshold between stops alike)"),
        Column("alike", ",.0f"),
        Column("rounds", ".0f"),
        Column(metric, ".1f", scale=100),
        Column("calls", ".2f"),
    ]
    if result.resampling.n_resamples:
        columns.append(Column(f"{metric} vs {result.baseline}", "+.1f", scale=100, interval=True))
    shown = result.shown
    positions = shown if result.best is None or result.best in shown else [*shown, result.best]
    rows: list[tuple[Any, ...]] = []
    for position, row in zip(positions, result.rows(positions), strict=True):
        mark = "selected here" if position == result.best else "front"
        prompt = f"  [{row['prompt']}]" if len(result.explorer.questions.sides) > 1 else ""
        text = f"{_with_intervals(row)}{prompt}"
        cells = (mark, text, row["members"], row["max_rounds"], row["quality"], row["calls"])
        delta = ((row["delta"], row["low"], row["high"]),) if result.resampling.n_resamples else ()
        rows.append((*cells, *delta))
    for named in result.named:
        delta = () if named.delta is None else ((named.delta.delta, named.delta.low, named.delta.high),)
        cells = ("named", named.name, named.members, None, named.quality, named.calls)
        rows.append((*cells, *delta))
    title = (
        f"{result.n_rules:,} rules of {result.explorer.space.name}, {len(result.distinct):,} different on {result.n} "
        f"questions; {len(shown)} of the {int(result.front.sum())} that no other dominates"
    )
    return Table(title=title, columns=tuple(columns), rows=tuple(rows), notes=result.notes)


def _optimism_table(result: SearchResult, optimism: Optimism) -> Table:
    metric = result.metric.upper()
    words = {
        "naive": "naive, selected here",
        "nested": f"nested, selected on {result.n_tune} tune",
        "cross-fitted": "cross-fitted",
    }
    columns = (
        Column("estimate"),
        Column("rule"),
        Column(metric, ".1f", scale=100),
        Column("calls", ".2f"),
        Column(f"{metric} vs {result.baseline}", "+.1f", scale=100, interval=True),
    )
    rows = []
    for item in optimism.estimates:
        delta = (item.delta.delta, item.delta.low, item.delta.high)
        text = item.rules[0] if len(item.rules) == 1 else f"{len(item.rules)} rules, most often {item.rules[0]}"
        rows.append((words[item.how], text, item.quality, item.calls, delta))
    corrected = "too many rules to correct" if math.isnan(optimism.p_corrected) else f"{optimism.p_corrected:.3f}"
    tried = (
        f"{optimism.n_rules:,} rules were tried, {optimism.n_distinct:,} of them different, {optimism.n_within:,} of "
        f"these within the budget; the naive best's lead has p = {optimism.p_raw:.3f} by itself (one-sided), and "
        f"{corrected} as the largest of {optimism.n_within:,}"
    )
    notes = (
        tried,
        "all three are of the searched questions; cross-fitted: each fold counts with the rule that the others select",
        "intervals take the selection as given",
    )
    return Table(
        title="Optimism: what the best rule within the budget is worth", columns=columns, rows=tuple(rows), notes=notes
    )


def search_chart(result: SearchResult) -> dict[str, Any]:
    """Chart quality (in points) against calls: the distinct rules, the front as a line, and the budget."""
    points = _rule_points(result)
    x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("quality", f"{result.metric.upper()}, points")
    names, colours, shapes = [*_RULE_MARKS], *map(list, zip(*_RULE_MARKS.values(), strict=True))
    kind = {"field": "kind", "type": "nominal", "legend": None}
    tooltip = [
        {"field": "rule"},
        {"field": "kind", "title": "what"},
        {"field": "quality", "title": result.metric.upper(), "format": ".1f"},
        {"field": "calls", "format": ".2f"},
        {"field": "alike", "title": "rules that stop alike"},
    ]
    colour, shape = {**kind, **scale_of(names, colours)}, {**kind, **scale_of(names, shapes)}
    encoding = {"x": x, "y": y, "color": colour, "shape": shape, "tooltip": tooltip}
    layers = [
        bound_layer("x", "budget", result.budget, f"budget: {result.budget:g} calls"),
        front_layer(x, y, "calls"),
        point_layer(encoding, "datum.kind !== 'other rules'", (90, 20)),
    ]
    kinds = {point["kind"] for point in points}
    legend = [legend_entry(name, colour, shape) for name, (colour, shape) in _RULE_MARKS.items() if name in kinds]
    title = (
        f"{result.metric.upper()} against calls of {result.n_rules:,} rules, {len(result.distinct):,} of them different"
    )
    return chart_of(points, layers, 380, title, legend)


def _rule_points(result: SearchResult) -> list[dict[str, Any]]:
    """Return the points of the chart, in the order of `_RULE_MARKS`."""
    others = np.flatnonzero(~result.front)
    shown = others[np.linspace(0, len(others) - 1, min(_MOST_POINTS, len(others))).astype(np.int64)]
    positions = np.union1d(shown, np.flatnonzero(result.front))  # ascending, as the explorer requires
    points = []
    rules = result.explorer.rules(result.distinct.number[positions])
    for at, stopping in zip(positions.tolist(), rules, strict=True):
        front = bool(result.front[at])
        kind = "no rule dominates it" if front else "other rules"
        quality, calls = (float(result.columns[name][at]) for name in ("quality", "calls"))
        alike = int(result.distinct.members[at])
        kind = "best here (selected here)" if at == result.best else kind
        points.append(_rule_point(kind, str(stopping), quality, calls, alike=alike, front=front))
    points += [_rule_point("named", item.name, item.quality, item.calls, alike=item.members) for item in result.named]
    for prompt, (quality, calls) in result.baselines.items():
        points.append(_rule_point("baseline", f"{result.baseline} {prompt}".strip(), quality, calls))
    if result.chosen is not None:
        points.append(_rule_point("selected on tune", str(result.chosen.policy.rule), *result.chosen.point))
    return sorted(points, key=lambda point: [*_RULE_MARKS].index(point["kind"]))


def _rule_point(
    kind: str, rule: str, quality: float, calls: float, *, alike: int | None = None, front: bool = False
) -> dict[str, Any]:
    return {"kind": kind, "rule": rule, "quality": 100 * quality, "calls": calls, "alike": alike, "front": front}
