"""The chart of a watch: the running loss, its bound, the alarm, and the start of each new model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.display import Chart
from suffice.common.tables import figure
from suffice.evaluation.replay.charts import axis_of, bound_layer, chart_of, legend_entry
from suffice.verdicts.watches.evidence import LossWindow
from suffice.verdicts.watches.losses import LossClaim


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchPoint:
    """A point of the chart: the loss after one request.

    Attributes:
        request: Number of the request, from 1.
        e_value: Evidence against the bound; NaN without a bound.
    """

    request: int
    mean: float
    low: float
    high: float
    e_value: float


def watch_chart(
    points: Sequence[WatchPoint], windows: Sequence[LossWindow], question: LossClaim, marks: Sequence[tuple[int, str]]
) -> Chart:
    """Chart the mean loss since deployment with its interval, and the mean loss of each window."""
    seen = [abs(item.mean) for item in windows if item.n_audited]
    # The first intervals cover all possible values, and would leave no room for the others.
    most = max(
        [*seen, *(abs(point.mean) for point in points), 2 * (question.bound or 0.0), points[-1].high if points else 0.0]
    )
    data: list[dict[str, Any]] = [
        {
            "request": point.request,
            "loss": 100 * point.mean,
            "low": 100 * max(point.low, -most),
            "high": 100 * min(point.high, most),
            "interval": figure((point.mean, point.low, point.high), ".1f", 100),
            "evidence": point.e_value,
        }
        for point in points
    ]
    means = [
        {"request": item.last + 1, "window": 100 * item.mean, "audited": item.n_audited}
        for item in windows
        if item.n_audited
    ]
    x, y = axis_of("request", "request"), axis_of("loss", f"{question.text}, points")
    tooltip = [
        {"field": "request", "format": ",.0f"},
        {"field": "interval", "title": "loss, with its interval"},
        {"field": "evidence", "format": ".3~f"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rule", "color": "var(--accent)", "opacity": 0.35},
            "encoding": {"x": x, "y": axis_of("low", None), "y2": {"field": "high"}},
        },
        {
            "mark": {"type": "line", "color": "var(--accent)", "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
        {
            "data": {"values": means},
            "mark": {"type": "point", "filled": True, "color": "var(--text)", "size": 40, "opacity": 0.8},
            "encoding": {
                "x": x,
                "y": axis_of("window", None),
                "tooltip": [{"field": "request"}, {"field": "window", "format": ".1f"}, {"field": "audited"}],
            },
        },
    ]
    if question.bound is not None:
        layers.append(bound_layer("y", "loss", 100 * question.bound, f"at most {100 * question.bound:g} points"))
    layers += [bound_layer("x", "request", place, text) for place, text in marks]
    legend = [
        legend_entry("since deployment, with its interval", "var(--accent)", "line"),
        legend_entry("each window", "var(--text)", "circle"),
    ]
    return Chart(chart_of(data, layers, 320, f"{question.text}, request by request", legend))
