"""Figures 2 to 5 of TASR, drawn from the tables of their points and from the recorded margins."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from suffice.common.tables import Table, counted
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    KIND_MARKS,
    accent_shades,
    axis_of,
    chart_of,
    legend_entry,
    points_chart,
    scale_of,
)
from suffice.policy.rounds import Floats
from suffice_papers.paper import PaperFigure
from suffice_papers.published import FigureValue, Published
from suffice_papers.tasr.cells import BUDGET, SETTINGS, CellRuns, defined, with_evidence
from suffice_papers.tasr.rows import value_of
from suffice_papers.tasr.signal_tables import first_by_tune

_BINS = 20
_RIGHT, _WRONG = ("right", "var(--accent)"), ("wrong", "var(--bad)")
_THEIRS = ("published", "var(--warn)", "diamond")
_KINDS = {"fixed_k": "fixed", "tasr": "rule", "random": "random", "closed_book": "closed_book"}
_F1 = "F1, points"

_TableLine = Mapping[str, Any]


def tasr_charts(cells: Sequence[CellRuns], tables: Sequence[Table], published: Published) -> tuple[PaperFigure, ...]:
    """Draw the figures that have points.

    Args:
        cells: The cells of the tables.
        tables: The tables that could be computed.
        published: The published figures.
    """
    by_name = {table.title.partition(".")[0]: table for table in tables}
    figures = [_margin_histogram(item) for item in first_by_tune(cells)]
    for name, draw in (("Figure 2, right", _buckets), ("Figure 3", _frontiers), ("Figure 4", _model_charts)):
        if name in by_name:
            figures += draw(by_name[name])
    if "Figure 5" in by_name:
        figures.append(_confidences(by_name["Figure 5"], published))
    return tuple(figure for figure in figures if figure is not None)


def _figure_lines(table: Table, figures: str = "here") -> Iterator[_TableLine]:
    """Yield the rows of a table whose figures come from one source (`here` or `published`), each as a mapping by column."""
    names = [column.name for column in table.columns]
    for row in table.rows:
        line = dict(zip(names, row, strict=True))
        if line.get("figures", figures) == figures:
            yield line


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")


def _interval_ends(value: FigureValue | None, names: tuple[str, str], scale: float = 1.0) -> dict[str, float]:
    """Return the ends of an interval by name; empty without an interval."""
    if not isinstance(value, tuple) or not np.isfinite(value).all():
        return {}
    return {names[0]: scale * value[1], names[1]: scale * value[2]}


# Figure 2


def _margin_histogram(item: CellRuns) -> PaperFigure | None:
    """Draw the distribution of the margin in right and in wrong rounds of the tune questions; None without margins."""
    tune = with_evidence(item.tune)
    if not (defined(tune, "answer_margin") and defined(tune, "em")):
        return None
    margin, em = tune.column("answer_margin"), tune.column("em")
    known = np.isfinite(margin) & np.isfinite(em)
    groups: dict[tuple[str, str], Floats] = {
        group: margin[known & ((em >= 1) == (group is _RIGHT))] for group in (_RIGHT, _WRONG)
    }
    if not all(len(values) for values in groups.values()):
        return None
    edges = np.linspace(margin[known].min(), margin[known].max() + 1e-9, _BINS + 1)
    data, means = [], []
    for (name, colour), values in groups.items():
        shares = np.histogram(values, edges)[0] / len(values)
        data += [
            {"answer": name, "low": low, "high": high, "share": share, "zero": 0.0}
            for low, high, share in zip(edges[:-1].tolist(), edges[1:].tolist(), shares.tolist(), strict=True)
            if share
        ]
        means.append({"answer": name, "mean": float(values.mean()), "colour": colour})
    names, colours = zip(_RIGHT, _WRONG, strict=True)
    colour_channel = {"field": "answer", "type": "nominal", "legend": None, **scale_of(names, colours)}
    x = axis_of("low", "answer margin, nats")
    y = {
        "field": "share",
        "type": "quantitative",
        "axis": {"title": "share of rounds", "format": ".0%", "tickCount": 6},
    }
    tooltip = [
        {"field": "answer"},
        {"field": "low", "title": "from", "format": ".2f"},
        {"field": "high", "title": "to", "format": ".2f"},
        {"field": "share", "format": ".1%"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rect", "opacity": 0.45},
            "encoding": {
                "x": x,
                "x2": {"field": "high"},
                "y": y,
                "y2": {"field": "zero"},
                "color": colour_channel,
                "tooltip": tooltip,
            },
        },
        {
            "data": {"values": means},
            "mark": {"type": "rule", "strokeWidth": 2, "strokeDash": [5, 3]},
            "encoding": {"x": {"field": "mean", "type": "quantitative"}, "color": colour_channel},
        },
    ]
    legend = [
        legend_entry(
            f"{mean['answer']}, mean {mean['mean']:.2f} nats, {len(values)} rounds", str(mean["colour"]), "square"
        )
        for mean, values in zip(means, groups.values(), strict=True)
    ]
    title = f"{item.cell.name}: margin of right and of wrong rounds, tune questions"
    return PaperFigure(
        name=f"figure2-margins-{_slug(item.cell.name)}",
        spec=chart_of(data, layers, 280, title, legend),
        caption=f"Figure 2, left, {item.cell.name}. Dashed lines are the means; a round is right where its exact match is 1.",
    )


def _buckets(table: Table) -> list[PaperFigure]:
    """Draw for each cell the share of right rounds in buckets of the margin, with intervals."""
    figures = []
    listed = [*_figure_lines(table)]
    for cell in dict.fromkeys(line["cell"] for line in listed):
        data = []
        for line in (line for line in listed if line["cell"] == cell):
            share = line["P(EM = 1)"]
            low, high = line["lowest margin, nats"], line["highest margin, nats"]
            place = {"margin": (low + high) / 2, "from": low, "to": high, "rounds": line["rounds"]}
            data.append({**place, "share": value_of(share), **_interval_ends(share, ("low", "high"))})
        x = axis_of("margin", "answer margin, middle of the bucket, nats")
        y = {"type": "quantitative", "scale": {"domain": [0, 1]}, "axis": {"title": "P(EM = 1)", "tickCount": 6}}
        tooltip = [
            *({"field": name, "title": f"margin {name}", "format": ".2f"} for name in ("from", "to")),
            {"field": "share", "title": "P(EM = 1)", "format": ".3f"},
            {"field": "rounds"},
        ]
        colour = "var(--accent)"
        layers: list[dict[str, Any]] = [
            {
                "transform": [{"filter": "isValid(datum.low)"}],
                "mark": {"type": "rule", "color": colour, "opacity": 0.55},
                "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
            },
            {
                "mark": {"type": "line", "color": colour, "strokeWidth": 2, "point": {"color": colour, "size": 60}},
                "encoding": {"x": x, "y": {"field": "share", **y}, "tooltip": tooltip},
            },
        ]
        title = f"{cell}: share of right rounds by margin, {len(data)} buckets of equal size"
        figures.append(
            PaperFigure(
                name=f"figure2-reliability-{_slug(cell)}",
                spec=chart_of(data, layers, 280, title, []),
                caption=f"Figure 2, right, {cell}. Tune questions; bars are intervals over questions.",
            )
        )
    return figures


# Figures 3 and 4


def _frontiers(table: Table) -> list[PaperFigure]:
    """Draw, for each setting, F1 against calls of every policy (means over cells), with the published points."""
    figures = []
    for setting in SETTINGS.values():
        points = [_frontier_point(line) for line in _figure_lines(table) if line["setting"] == setting]
        if not points:
            continue
        theirs = [
            {"label": line["policy"], "cost": value_of(line["calls"]), "quality": 100 * value_of(line["F1"])}
            for line in _figure_lines(table, "published")
            if line["setting"] == setting and line["F1"] is not None and line["calls"] is not None
        ]
        tooltip = [
            {"field": "label", "title": "policy"},
            {"field": "quality", "title": "F1", "format": ".2f"},
            {"field": "cost", "title": "calls", "format": ".2f"},
        ]
        title = f"F1 against calls, {setting}, means over cells"
        spec = points_chart(points, (COST_TITLES["calls"], _F1), title, tooltip)
        figures.append(
            PaperFigure(
                name=f"figure3-{_slug(setting)}",
                spec=_with_published(spec, theirs, tooltip) if theirs else spec,
                caption=f"Figure 3, {setting}. The line joins the fixed budgets; a policy is worth having above it.",
            )
        )
    return figures


def _frontier_point(line: _TableLine) -> dict[str, Any]:
    label, f1, calls = line["policy"], line["F1"], line["calls"]
    kind = next(kind for start, kind in _KINDS.items() if label.startswith(start))
    short = (
        "" if kind == "random" else label.replace("fixed_k(", "k = ").removesuffix(")") if kind == "fixed" else label
    )
    point = {"label": label, "short": short, "kind": kind, "name": KIND_MARKS[kind][0]}
    values = {"cost": value_of(calls), "quality": 100 * value_of(f1)}
    return {
        **point,
        **values,
        **_interval_ends(f1, ("low", "high"), 100),
        **_interval_ends(calls, ("cost_low", "cost_high")),
    }


def _with_published(
    spec: dict[str, Any], points: Sequence[dict[str, Any]], tooltip: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Add the paper's points to a chart of this library's figures."""
    name, colour, shape = _THEIRS
    layer = {
        "data": {"values": list(points)},
        "mark": {"type": "point", "color": colour, "shape": shape, "size": 90, "opacity": 1, "strokeWidth": 2},
        "encoding": {"x": axis_of("cost", None), "y": axis_of("quality", None), "tooltip": list(tooltip)},
    }
    legend = [*spec["usermeta"]["legend"], legend_entry(name, colour, shape, hollow=True)]
    return {**spec, "layer": [*spec["layer"], layer], "usermeta": {"legend": legend}}


def _model_charts(table: Table) -> list[PaperFigure]:
    """Draw for each model the fixed budgets of each cell, with a line from k = 3 to TASR."""
    figures = []
    listed = [*_figure_lines(table)]
    for model in dict.fromkeys(line["model"] for line in listed):
        fixed, pairs = [], []
        for line in (line for line in listed if line["model"] == model):
            cell = {"cell": line["cell"]}
            budgets = {k: line[f"k={k} F1"] for k in range(1, BUDGET + 1) if line[f"k={k} F1"] is not None}
            fixed += [
                {**cell, "policy": f"k = {k}", "calls": float(k), "f1": 100 * value_of(f)} for k, f in budgets.items()
            ]
            ours = {"calls": value_of(line["calls"]), "f1": 100 * value_of(line["TASR F1"])}
            three = {"calls": 3.0, "f1": 100 * value_of(budgets[3])}
            pairs += [
                {**cell, "policy": "k = 3", "label": "", **three},
                {**cell, "policy": "TASR", "label": line["cell"], **ours},
            ]
        x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("f1", _F1) | {"axis": {"title": _F1, "tickCount": 6}}
        tooltip = [
            {"field": "cell"},
            {"field": "policy"},
            {"field": "f1", "title": "F1", "format": ".2f"},
            {"field": "calls", "format": ".2f"},
        ]
        names, colours = ("k = 3", "TASR"), ("var(--good)", "var(--accent)")
        colour = {"field": "policy", "type": "nominal", "legend": None, **scale_of(names, colours)}
        detail = {"detail": {"field": "cell"}}
        layers: list[dict[str, Any]] = [
            {
                "data": {"values": fixed},
                "mark": {
                    "type": "line",
                    "color": "var(--muted)",
                    "strokeWidth": 1,
                    "point": {"color": "var(--muted)", "size": 20},
                },
                "encoding": {"x": x, "y": y, **detail, "tooltip": tooltip},
            },
            {
                "mark": {"type": "line", "color": "var(--text)", "strokeWidth": 1.5, "strokeDash": [4, 3]},
                "encoding": {"x": x, "y": y, **detail},
            },
            {
                "mark": {"type": "point", "filled": True, "opacity": 1, "size": 90},
                "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip},
            },
            {
                "mark": {"type": "text", "dy": -12, "fontSize": 11, "color": "var(--text)", "limit": 220},
                "encoding": {"x": x, "y": y, "text": {"field": "label"}},
            },
        ]
        legend = [
            *(legend_entry(name, colour, "circle") for name, colour in zip(names, colours, strict=True)),
            legend_entry("fixed budgets of the cell", "var(--muted)", "line"),
        ]
        figures.append(
            PaperFigure(
                name=f"figure4-{_slug(model)}",
                spec=chart_of(pairs, layers, 320, f"{model}: F1 against calls in each cell", legend),
                caption=f"Figure 4, {model}. Dashed: from three rounds for every question to TASR.",
            )
        )
    return figures


# Figure 5


def _confidences(table: Table, published: Published) -> PaperFigure:
    """Draw the shares of stated confidences by prompt, beside the shares of a uniform choice."""
    marks = [name for column in table.columns if (name := column.name).startswith("% ")]
    listed = [*_figure_lines(table)]
    names = [f"{line['prompt']}, {counted(line['cells'], 'cell')}, {line['rounds']:,.0f} rounds" for line in listed]
    bars = {
        f"{name} ({place})" if names.count(name) > 1 else name: line
        for place, (name, line) in enumerate(zip(names, listed, strict=True), start=1)
    }
    data = [
        {"prompt": name, "said": mark[2:], "place": place, "share": value_of(line[mark])}
        for name, line in bars.items()
        for place, mark in enumerate(marks)
    ]
    data += [
        {"prompt": "uniform choice", "said": mark[2:], "place": place, "share": 1 / len(marks)}
        for place, mark in enumerate(marks)
    ]
    said, shades = [mark[2:] for mark in marks], accent_shades(len(marks))
    colour = {"field": "said", "type": "ordinal", "legend": None, **scale_of(said, shades)}
    axis = {"format": ".0%", "title": "share of rounds", "grid": False}
    layer = {
        "mark": {"type": "bar", "stroke": "var(--surface)", "strokeWidth": 1, "height": {"band": 0.72}},
        "encoding": {
            "x": {"field": "share", "type": "quantitative", "stack": "zero", "axis": axis},
            "y": {"field": "prompt", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 300}},
            "order": {"field": "place", "type": "quantitative"},
            "color": colour,
            "tooltip": [
                {"field": "prompt"},
                {"field": "said", "title": "confidence"},
                {"field": "share", "format": ".1%"},
            ],
        },
    }
    legend = [legend_entry(f"confidence {name}", shade, "square") for name, shade in zip(said, shades, strict=True)]
    theirs = ", ".join(
        f"{prompt} {100 * value_of(row['share_5']):.1f} %"
        for prompt in published.tables["figure5"]["rows"]
        if "share_5" in (row := published.row("figure5", prompt))
    )
    return PaperFigure(
        name="figure5-confidence",
        spec=chart_of(data, [layer], 34 * (len(bars) + 1) + 8, "Stated confidence by prompt, eval questions", legend),
        caption=f"Figure 5. Published shares of confidence 5: {theirs}.",
    )
