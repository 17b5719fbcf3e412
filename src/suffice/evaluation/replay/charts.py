"""The charts of a replay, as Vega-Lite specifications; colours are CSS variables, so that themes need no redraw."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from suffice.common.tables import figure
from suffice.evaluation.replay.chart_labels import label_layers, spread_labels
from suffice.evaluation.replay.replayed_rows import Replayed, Row
from suffice.policy.calibration import CalibrationReport
from suffice.recordings.schema import DOLLAR

COST_TITLES: Mapping[str, str] = {
    "calls": "model calls per question",
    "tokens": "tokens per question",
    "seconds": "seconds per question",
    "money": "US dollars per question",
}
"""Costs that the horizontal axis of the Pareto chart can show, with their titles; see `cost_title`."""

_VEGA_LITE = "https://vega.github.io/schema/vega-lite/v6.json"
KIND_MARKS: Mapping[str, tuple[str, str, str]] = {
    "rule": ("policy", "var(--accent)", "circle"),
    "random": ("same stops at random", "var(--accent-soft)", "circle"),
    "fixed": ("fixed budget", "var(--muted)", "circle"),
    "recorded": ("as recorded", "var(--text)", "triangle-up"),
    "closed_book": ("model alone", "var(--text)", "square"),
    "oracle": ("oracle (not reachable)", "var(--good)", "diamond"),
}
"""The name, colour and shape of each kind of row."""

_BUDGET = re.compile(r"fixed_k\((?P<k>\d+)\)(?P<selector>.*)")

_LABEL_LENGTH = 28
"""Most characters of a label in a chart."""

_FEWEST_ANSWERS = 10
"""Fewest answers in a bin through which the line of a reliability diagram is drawn."""

_PALEST = 18
"""Percentage of the accent colour for the first stop round; the last round has 100 %."""


def cost_title(cost: str, currency: str = DOLLAR) -> str:
    """Return the title of the axis for a cost; for money, it names the currency.

    >>> cost_title("money"), cost_title("money", "EUR")
    ('US dollars per question', 'EUR per question')
    """
    if cost == "money" and currency != DOLLAR:
        return f"{currency} per question"
    return COST_TITLES.get(cost, f"{cost} per question")


def pareto_costs(result: Replayed) -> list[str]:
    """Return the costs that are known in every row."""
    return [kind for kind in COST_TITLES if all(math.isfinite(row.costs[kind]) for row in result.rows)]


def pareto_chart(result: Replayed, cost: str) -> dict[str, Any]:
    """Chart quality (the first metric, in points) against one cost, for every policy, baseline and oracle.

    Intervals are those of the paired difference to the baseline, added to the baseline's value.
    """
    metric = result.metrics[0].upper()
    points = [*filter(None, (_row_point(result, row, cost) for row in result.rows))]
    tooltip = [
        {"field": "label", "title": "policy"},
        {"field": "quality", "title": metric, "format": ".1f"},
        {"field": "cost", "title": cost, "format": ",.3~f" if cost != "money" else ".6f"},
        {"field": "interval", "title": f"difference to {result.against}"},
    ]
    title = cost_title(cost, result.currency)
    return points_chart(points, (title, f"{metric}, points"), f"{metric} against {title}", tooltip)


def points_chart(
    points: Sequence[dict[str, Any]], axes: tuple[str, str], title: str, tooltip: list[dict[str, Any]]
) -> dict[str, Any]:
    """Chart points of quality against cost; a line joins the fixed budgets.

    Args:
        points: Each with `label`, `short` ("" = no label), `kind` (a key of `KIND_MARKS`), `name`, `cost` and `quality`, and
            `low`, `high`, `cost_low` and `cost_high` where it has intervals.
        axes: Titles of cost and of quality.
        title: Title of the chart.
        tooltip: The fields of the tooltip.
    """
    rows = spread_labels(_merge_points(points), "quality")
    x, y = axis_of("cost", axes[0]), axis_of("quality", axes[1])
    names, colours, shapes = zip(*KIND_MARKS.values(), strict=True)
    colour = {"field": "name", "type": "nominal", "legend": None, **scale_of(names, colours)}
    shape = {"field": "name", "type": "nominal", "legend": None, **scale_of(names, shapes)}
    hollow = {"condition": {"test": "datum.kind === 'random'", "value": "var(--surface)"}, **colour}
    layers: list[dict[str, Any]] = [
        {
            "transform": [{"filter": "datum.kind === 'fixed'"}],
            "mark": {"type": "line", "color": "var(--muted)", "strokeWidth": 1.5},
            "encoding": {
                "x": x,
                "y": y,
                "order": {"field": "cost", "type": "quantitative"},
                "detail": {"field": "selector"},
            },
        },
        *_intervals(rows, x, y, colour),
        {
            "mark": {"type": "point", "filled": False, "opacity": 1, "strokeWidth": 2},
            "encoding": {
                "x": x,
                "y": y,
                "stroke": colour,
                "fill": hollow,
                "shape": shape,
                "size": {"condition": {"test": "datum.kind === 'rule'", "value": 130}, "value": 70},
                "tooltip": tooltip,
            },
        },
        *label_layers(rows, x, y, 260),
    ]
    shown = {point["kind"] for point in rows}
    legend = [legend_entry(*mark, hollow=kind == "random") for kind, mark in KIND_MARKS.items() if kind in shown]
    return chart_of(rows, layers, 380, f"{title}, {len(rows)} points", legend)


def stops_chart(result: Replayed, rules: Sequence[Row]) -> dict[str, Any]:
    """Chart the share of questions that stop at each round, with one bar for each policy."""
    rounds = sorted({r for row in rules for r in row.stop_rounds})
    names, colours = [f"round {r}" if r >= 0 else "no round" for r in rounds], accent_shades(len(rounds))
    shares = [[row.stop_rounds.get(r, 0.0) for r in rounds] for row in rules]
    if any(row.censored for row in rules):
        names, colours = [*names, "beyond the recording"], [*colours, "var(--muted)"]
        shares = [[*known, row.n_censored / row.n] for known, row in zip(shares, rules, strict=True)]
    groups = {row.label: parts for row, parts in zip(rules, shares, strict=True)}
    title = "Share of questions by stop round"
    return shares_chart(groups, dict(zip(names, colours, strict=True)), f"share of {result.n:,} questions", title)


def shares_chart(
    groups: Mapping[str, Sequence[float]], parts: Mapping[str, str], axis: str, title: str, group: str = "policy"
) -> dict[str, Any]:
    """Chart shares as stacked bars, one bar for each group."""
    names, colours = [*parts], [*parts.values()]
    data = [
        {group: label, "round": name, "position": place, "share": share}
        for label, shares in groups.items()
        for place, (name, share) in enumerate(zip(names, shares, strict=True))
    ]
    bar = {
        "x": {
            "field": "share",
            "type": "quantitative",
            "stack": "zero",
            "axis": {"format": ".0%", "title": axis, "grid": False},
        },
        "y": {"field": group, "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}},
        "order": {"field": "position", "type": "quantitative"},
    }
    layers = [
        {
            "mark": {"type": "bar", "stroke": "var(--surface)", "strokeWidth": 1, "height": {"band": 0.72}},
            "encoding": {
                **bar,
                "color": {"field": "round", "type": "ordinal", "legend": None, **scale_of(names, colours)},
                "tooltip": [
                    {"field": group},
                    {"field": "round", "title": "stops at"},
                    {"field": "share", "format": ".1%"},
                ],
            },
        }
    ]
    legend = [legend_entry(name, c, "square") for name, c in zip(names, colours, strict=True)]
    return chart_of(data, layers, 34 * len(groups) + 8, title, legend)


def reliability_chart(reports: Mapping[str, CalibrationReport], output: str) -> dict[str, Any]:
    """Chart observed against predicted shares of correct answers by bin, with one line for each report."""
    data = [
        {"group": group, "predicted": b.predicted, "observed": b.observed, "n": b.n}
        for group, report in reports.items()
        for b in report.bins
        if b.n
    ]
    shades = ["var(--text)", *accent_shades(len(reports) - 1, _PALEST + 20)]
    colour, legend = by_state("group", dict(zip(reports, shades, strict=True)), data)
    unit = {"scale": {"domain": [0, 1]}, "type": "quantitative"}
    x = {"field": "predicted", **unit, "axis": {"title": f"mean {output}", "grid": False}}
    y = {"field": "observed", **unit, "axis": {"title": "share correct (EM)"}}
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"predicted": 0, "observed": 0}, {"predicted": 1, "observed": 1}]},
            "mark": {"type": "line", "color": "var(--muted)", "strokeDash": [4, 4], "strokeWidth": 1},
            "encoding": {"x": x, "y": y},
        },
        {
            "transform": [{"filter": f"datum.group === 'all rounds' && datum.n >= {_FEWEST_ANSWERS}"}],
            "mark": {"type": "line", "strokeWidth": 2},
            "encoding": {"x": x, "y": y, "color": colour},
        },
        {
            "mark": {"type": "point", "filled": True, "opacity": 0.9},
            "encoding": {
                "x": x,
                "y": y,
                "color": colour,
                "size": {"field": "n", "type": "quantitative", "scale": {"range": [15, 220]}, "legend": None},
                "tooltip": [
                    {"field": "group", "title": "rounds"},
                    {"field": "predicted", "format": ".3f"},
                    {"field": "observed", "format": ".3f"},
                    {"field": "n", "title": "answers"},
                ],
            },
        },
    ]
    return chart_of(data, layers, 320, f"Reliability of {output}", legend)


def path_chart(
    path: Sequence[Mapping[str, float]], result: Replayed, row: Row, start: Mapping[str, float]
) -> dict[str, Any]:
    """Chart quality against calls as a threshold of a row's policy varies, with the fixed budgets for comparison.

    The budgets use the policy's selector; `here` marks the policy's own threshold.
    """
    metric = result.metrics[0]
    data = [{"threshold": point["threshold"], "quality": 100 * point[metric], "cost": point["calls"]} for point in path]
    fixed = [
        _row_point(result, other, "calls")
        for other in result.rows
        if other.kind == "fixed" and other.selector == row.selector
    ]
    here = {"quality": 100 * start[metric], "cost": start["calls"]}
    x, y = axis_of("cost", COST_TITLES["calls"]), axis_of("quality", f"{metric.upper()}, points")
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": fixed},
            "mark": {"type": "line", "color": "var(--muted)", "point": {"color": "var(--muted)", "size": 50}},
            "encoding": {"x": x, "y": y, "tooltip": [{"field": "label", "title": "policy"}, *_pair(metric)]},
        },
        {
            "data": {"values": fixed},
            "mark": {"type": "text", "dy": 14, "fontSize": 11, "color": "var(--muted)"},
            "encoding": {"x": x, "y": y, "text": {"field": "short"}},
        },
        {
            "mark": {"type": "line", "color": "var(--accent)", "strokeWidth": 1.5, "opacity": 0.6},
            "encoding": {"x": x, "y": y, "order": {"field": "threshold", "type": "quantitative"}},
        },
        {
            "mark": {"type": "point", "filled": True, "color": "var(--accent)", "size": 22, "opacity": 0.8},
            "encoding": {"x": x, "y": y, "tooltip": [{"field": "threshold", "format": ".4~f"}, *_pair(metric)]},
        },
        {
            "data": {"name": "here"},
            "mark": {"type": "point", "filled": True, "color": "var(--accent)", "size": 220, "opacity": 1},
            "encoding": {"x": x, "y": y},
        },
    ]
    legend = [
        legend_entry("this policy as the threshold moves", "var(--accent)", "line"),
        legend_entry("the threshold above", "var(--accent)", "circle"),
        legend_entry("fixed budgets", "var(--muted)", "circle"),
    ]
    title = f"{metric.upper()} against calls as the threshold moves"
    return {**chart_of(data, layers, 300, title, legend), "datasets": {"here": [here]}}


def _intervals(
    rows: Sequence[Mapping[str, Any]], x: dict[str, Any], y: dict[str, Any], colour: dict[str, Any]
) -> list[dict[str, Any]]:
    """Return the layers of vertical and horizontal intervals.

    Oracles get no intervals, because their intervals would hide points.
    """
    upright = {"x": x, "y": axis_of("low", None), "y2": {"field": "high"}, "color": colour}
    across = {"x": axis_of("cost_low", None), "x2": {"field": "cost_high"}, "y": y, "color": colour}
    return [
        {
            "transform": [{"filter": f"isValid(datum.{field}) && datum.kind !== 'oracle'"}],
            "mark": {"type": "rule", "opacity": 0.55},
            "encoding": encoding,
        }
        for field, encoding in (("low", upright), ("cost_low", across))
        if any(field in point and point["kind"] != "oracle" for point in rows)
    ]


def _pair(metric: str) -> list[dict[str, Any]]:
    return [
        {"field": "quality", "title": metric.upper(), "format": ".1f"},
        {"field": "cost", "title": "calls", "format": ".2f"},
    ]


def chart_of(
    data: Sequence[Mapping[str, Any] | None],
    layers: list[dict[str, Any]],
    height: int,
    title: str,
    legend: list[dict[str, Any]],
) -> dict[str, Any]:
    """Return a chart's specification; the page draws the legend itself, so that it wraps and follows the theme."""
    return {
        "$schema": _VEGA_LITE,
        "description": title,
        "usermeta": {"legend": legend},
        "width": "container",
        "height": height,
        "data": {"values": list(data)},
        "layer": layers,
    }


def point_layer(encoding: Mapping[str, Any], large: str, sizes: tuple[int, int]) -> dict[str, Any]:
    """Return a layer of filled points, with `sizes[0]` where the expression `large` holds, else with `sizes[1]`."""
    size = {"condition": {"test": large, "value": sizes[0]}, "value": sizes[1]}
    return {"mark": {"type": "point", "filled": True, "opacity": 1}, "encoding": {**encoding, "size": size}}


def front_layer(x: Mapping[str, Any], y: Mapping[str, Any], cost: str) -> dict[str, Any]:
    """Return a line through the points of the Pareto front, from cheap to expensive."""
    return {
        "transform": [{"filter": "datum.front"}],
        "mark": {"type": "line", "color": "var(--accent)", "strokeWidth": 1.5, "opacity": 0.6},
        "encoding": {"x": x, "y": y, "order": {"field": cost, "type": "quantitative"}},
    }


def bound_layer(axis: str, field: str, value: float, text: str) -> dict[str, Any]:
    """Return a dashed line, labelled with a text, at a value of the axis `x` or `y`."""
    at = {axis: {"field": field, "type": "quantitative"}}
    place = {"y": 8, "dx": 5} if axis == "x" else {"x": 4, "dy": -7}
    return {
        "data": {"values": [{field: value, "text": text}]},
        "layer": [
            {"mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 4]}, "encoding": at},
            {
                "mark": {"type": "text", "align": "left", "color": "var(--muted)", **place},
                "encoding": {**at, "text": {"field": "text"}},
            },
        ],
    }


def legend_entry(name: str, colour: str, shape: str, *, hollow: bool = False) -> dict[str, Any]:
    """Return an entry of a chart's legend."""
    return {"name": name, "colour": colour, "shape": shape, "hollow": hollow}


def by_state(
    field: str, colours: Mapping[str, str], data: Iterable[Mapping[str, Any]]
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the encoding of points coloured by a state, and the legend of the states that occur in the data."""
    encoding = {"field": field, "type": "nominal", "legend": None, **scale_of([*colours], [*colours.values()])}
    states = {point[field] for point in data}
    return encoding, [legend_entry(name, colour, "circle") for name, colour in colours.items() if name in states]


def axis_of(field: str, title: str | None) -> dict[str, Any]:
    """Return the encoding of a quantitative field.

    If `title` is None, the field gets no axis.  An example is the end of an interval.
    """
    axis = {"axis": {"title": title, "tickCount": 6, "grid": field == "quality"}} if title is not None else {}
    return {"field": field, "type": "quantitative", "scale": {"zero": False, "padding": 16, "nice": False}, **axis}


def scale_of(domain: Sequence[str], values: Sequence[str]) -> dict[str, Any]:
    """Return a scale that maps each name in the domain to its value, such as a colour."""
    return {"scale": {"domain": list(domain), "range": list(values)}}


def _row_point(result: Replayed, row: Row, cost: str) -> dict[str, Any] | None:
    """Return a row as a point; None if its quality is unknown."""
    metric = result.metrics[0]
    quality = row.metrics.get(metric, math.nan)
    if not math.isfinite(quality):
        return None
    short = "" if row.kind == "random" else row.label
    budget = _BUDGET.fullmatch(row.label)
    if row.kind == "fixed" and budget:
        several = len({other.selector for other in result.rows if other.kind == "fixed"}) > 1
        short = f"k = {budget['k']}{budget['selector'] * several}"
    if len(short) > _LABEL_LENGTH:
        short = f"{short[: _LABEL_LENGTH - 1]}…"
    point: dict[str, Any] = {
        "label": row.label,
        "short": short,
        "kind": row.kind,
        "selector": row.selector,
        "name": KIND_MARKS[row.kind][0],
        "quality": 100 * quality,
        "cost": row.costs[cost],
        "interval": "",
    }
    delta, base = row.deltas.get(metric), result.row(row.baseline)
    if delta is not None and not math.isnan(delta.low) and row.label != row.baseline:
        middle = base.metrics[metric]
        point |= {"low": 100 * (middle + delta.low), "high": 100 * (middle + delta.high)}
        point["interval"] = figure((delta.delta, delta.low, delta.high), "+.1f", 100)
    spread = row.deltas.get(cost)
    if spread is not None and row.label != row.baseline and spread.low < spread.high:
        point |= {"cost_low": base.costs[cost] + spread.low, "cost_high": base.costs[cost] + spread.high}
    return point


def _merge_points(points: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge points of one kind at the same place into one point that names all of them."""
    merged: dict[tuple[Any, ...], dict[str, Any]] = {}
    for point in points:
        place = (point["kind"], round(point["quality"], 9), round(point["cost"], 9))
        if place in merged:
            merged[place]["label"] += f", {point['label']}"
        else:
            merged[place] = point
    return list(merged.values())


def accent_shades(n: int, palest: float = _PALEST) -> list[str]:
    """Return `n` shades of the accent colour, from `palest` percent to its full strength."""
    mixes = (palest + (100 - palest) * place / max(1, n - 1) for place in range(n))
    return [f"color-mix(in srgb, var(--accent) {mix:.0f}%, var(--surface))" for mix in mixes]
