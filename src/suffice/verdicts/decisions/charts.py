"""The chart of a decision."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from suffice.common.display import Chart
from suffice.evaluation.replay.chart_labels import label_layers, spread_labels
from suffice.evaluation.replay.charts import (
    axis_of,
    bound_layer,
    by_state,
    chart_of,
    cost_title,
    legend_entry,
    point_layer,
)
from suffice.verdicts.decisions.figures import CandidateFigures, budgets_hull
from suffice.verdicts.decisions.trial import Trial

_COLOURS = {
    "advised": "var(--accent)",
    "proved": "var(--good)",
    "taken back": "var(--text)",
    "open": "var(--muted)",
    "not tested": "var(--muted)",
    "loses more": "var(--text)",
}
"""The states of a candidate, with their colours."""


def advice_chart(figures: Iterable[CandidateFigures], trial: Trial, now: str) -> Chart:
    """Chart the mean change of each candidate against its mean cost, with intervals.

    Lines mark the largest accepted loss, and the mixtures of two budgets.
    """
    baseline = float(trial.totals.costs[trial.cost][-1] / max(trial.totals.n_recorded, 1))
    points: list[dict[str, Any]] = [
        {"policy": now, "state": "now", "cost": baseline, "change": 0.0, "low": 0.0, "high": 0.0}
    ]
    for item in figures:
        # Unknown values are null, and the chart leaves them out: a single question, for instance, has a mean but no
        # interval.
        change, low, high = (100 * value if item.judged and math.isfinite(value) else None for value in item.change)
        values = {"cost": item.spent[trial.cost], "change": change, "low": low, "high": high}
        points.append({"policy": item.policy, "state": item.state, **values})
    for point in points:
        kind = "fixed" if point["policy"].startswith("fixed_k(") else "rule"
        point |= {"short": point["policy"], "kind": kind}
    points = spread_labels(points, "change")
    x, y = (
        axis_of("cost", cost_title(trial.cost, trial.currency)),
        axis_of("change", f"change of {trial.metric}, points"),
    )
    colours = {"now": "var(--text)", **_COLOURS}
    colour, legend = by_state("state", colours, points)
    hull = _mixtures(trial)
    legend += [legend_entry("coins between two budgets", "var(--muted)", "line")] if hull else []
    tooltip = [
        {"field": "policy"},
        {"field": "state"},
        {"field": "cost", "format": ",.2f"},
        {"field": "change", "format": "+.1f"},
    ]
    layers = [
        bound_layer("y", "change", -100 * trial.max_loss, f"a loss of {100 * trial.max_loss:g} points"),
        *([_mixtures_layer(hull, x, y)] if hull else []),
        {
            "mark": {"type": "rule", "strokeWidth": 1.5, "opacity": 0.6},
            "encoding": {"x": x, "y": axis_of("low", None), "y2": {"field": "high"}, "color": colour},
        },
        point_layer({"x": x, "y": y, "color": colour, "tooltip": tooltip}, "datum.state === 'advised'", (220, 80)),
        *label_layers(points, x, y, 160),
    ]
    return Chart(chart_of(points, layers, 320, f"Change of {trial.metric} against {trial.cost}", legend))


def _mixtures(trial: Trial) -> list[dict[str, float]]:
    hull = [{"cost": cost, "change": 100 * change / trial.by_labels} for cost, change in budgets_hull(trial)]
    return hull if len(hull) > 1 else []


def _mixtures_layer(hull: list[dict[str, float]], x: Mapping[str, Any], y: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "data": {"values": hull},
        "mark": {"type": "line", "color": "var(--muted)", "strokeWidth": 1},
        "encoding": {"x": x, "y": y, "order": {"field": "cost", "type": "quantitative"}},
    }
