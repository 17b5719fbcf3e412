"""The chart of a search: what each rule gives and costs, and which of them were selected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

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

if TYPE_CHECKING:
    from suffice.evaluation.search.result import SearchResult

__all__ = ["search_chart"]

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
"""Points besides the front: of more rules an even selection is drawn."""


def search_chart(result: SearchResult) -> dict[str, Any]:
    """Return quality (in points) against calls: the distinct rules, with the front as a line, and the budget."""
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
    """Return what is drawn, in the order of `_RULE_MARKS`."""
    others = np.flatnonzero(~result.front)
    shown = others[np.linspace(0, len(others) - 1, min(_MOST_POINTS, len(others))).astype(np.int64)]
    positions = np.union1d(shown, np.flatnonzero(result.front))  # ascending, as the explorer wants numbers
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
