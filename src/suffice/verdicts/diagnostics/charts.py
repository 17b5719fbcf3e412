"""The charts of a diagnosis: how well signals separate, and where a moving threshold leads."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from suffice.common.display import Chart
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    axis_of,
    chart_of,
    front_layer,
    legend_entry,
    point_layer,
    scale_of,
)

if TYPE_CHECKING:
    from suffice.verdicts.diagnostics.signals import SignalTable
    from suffice.verdicts.diagnostics.sweep import ThresholdSweep

__all__ = ["signals_chart", "sweep_chart"]

_ROW = 22
"""Pixels of a signal."""

_POINT_COLOURS = {"its own value": "var(--good)", "Pareto front": "var(--accent)", "other thresholds": "var(--muted)"}
"""What a point of a sweep can be, with its colour."""


def signals_chart(table: SignalTable) -> Chart:
    """Return the AUROC of each signal that has one with its interval, the largest first, beside chance."""
    known = sorted((item for item in table.signals if not math.isnan(item.auroc)), key=lambda item: -item.auroc)
    data = [
        {
            "signal": item.name,
            "auroc": item.auroc,
            "rounds": item.n_defined,
            **({} if math.isnan(item.auroc_low) else {"low": item.auroc_low, "high": item.auroc_high}),
        }
        for item in known
    ]
    y = {"field": "signal", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
    scale = {"type": "quantitative", "scale": {"domain": [0, 1]}}
    title = f"AUROC of right answers by {table.metric}, {100 * table.resampling.level:g} % intervals; 0.5 is chance"
    x = {"field": "auroc", **scale, "axis": {"title": title, "tickCount": 6}}
    tooltip = [
        {"field": "signal"},
        *({"field": name, "format": ".3f"} for name in ("auroc", "low", "high")),
        {"field": "rounds", "format": ",.0f"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"chance": 0.5}]},
            "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 4]},
            "encoding": {"x": {"field": "chance", **scale}},
        },
        {
            "transform": [{"filter": "isValid(datum.low)"}],
            "mark": {"type": "rule", "color": "var(--accent)", "opacity": 0.55},
            "encoding": {"x": {"field": "low", **scale}, "x2": {"field": "high"}, "y": y},
        },
        {
            "mark": {"type": "point", "filled": True, "color": "var(--accent)", "size": 70, "opacity": 1},
            "encoding": {"x": x, "y": y, "tooltip": tooltip},
        },
    ]
    return Chart(chart_of(data, layers, _ROW * len(data) + 8, f"AUROC of {len(data)} signals", []))


def sweep_chart(sweep: ThresholdSweep) -> Chart:
    """Return quality (in points) against calls as a threshold moves; outcomes that are unknown are left out."""
    data = [
        {
            "threshold": point.value,
            "quality": 100 * point.quality,
            "calls": point.calls,
            "front": point.on_front,
            "kind": "its own value" if point.own else "Pareto front" if point.on_front else "other thresholds",
        }
        for point in sweep.points
        if not math.isnan(point.quality)
    ]
    x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("quality", f"{sweep.metric.upper()}, points")
    colour = {
        "field": "kind",
        "type": "nominal",
        "legend": None,
        **scale_of([*_POINT_COLOURS], [*_POINT_COLOURS.values()]),
    }
    tooltip = [
        {"field": "threshold", "format": ".4~f"},
        {"field": "quality", "title": sweep.metric.upper(), "format": ".1f"},
        {"field": "calls", "format": ".2f"},
    ]
    encoding = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers = [front_layer(x, y, "calls"), point_layer(encoding, "datum.kind === 'its own value'", (200, 50))]
    kinds = {point["kind"] for point in data}
    legend = [legend_entry(name, colour, "circle") for name, colour in _POINT_COLOURS.items() if name in kinds]
    return Chart(chart_of(data, layers, 300, f"{sweep.metric.upper()} against calls as {sweep.literal} moves", legend))
