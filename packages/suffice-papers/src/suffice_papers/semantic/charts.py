"""The charts of the protocol: mean distance by round, quality against rounds, and saved tokens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffice.evaluation.replay.charts import KIND_MARKS, chart_of, legend_entry, points_chart, scale_of
from suffice_papers.semantic.comparisons import PolicyComparison
from suffice_papers.semantic.convergence import Convergence
from suffice_papers.semantic.figures import BASELINE, FigureSplit, PublishedRun

_KIND_STARTS = {"fixed_k": "fixed", "random": "random", "oracle": "oracle"}


def distance_chart(convergence: Convergence, eps: float) -> dict[str, Any]:
    """Chart the mean distance between consecutive drafts, by round, with intervals, median and threshold."""
    data = [
        {"round": r.round_index, "mean": r.mean, "low": r.low, "high": r.high, "median": r.median, "n": r.n}
        for r in convergence.rounds
    ]
    x = {"field": "round", "type": "ordinal", "axis": {"title": "draft", "labelAngle": 0}}
    y = {"type": "quantitative", "axis": {"title": "distance to the draft before", "tickCount": 6}}
    tooltip = [
        {"field": "round", "title": "draft"},
        *({"field": name, "format": ".4f"} for name in ("mean", "low", "high", "median")),
        {"field": "n", "title": "questions"},
    ]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "rule", "color": "var(--muted)", "strokeDash": [4, 4]},
            "data": {"values": [{"eps": eps}]},
            "encoding": {"y": {"field": "eps", **y}},
        },
        {
            "mark": {"type": "rule", "color": "var(--accent)", "opacity": 0.55},
            "encoding": {"x": x, "y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        {
            "mark": {
                "type": "line",
                "color": "var(--accent)",
                "strokeWidth": 2,
                "point": {"color": "var(--accent)", "size": 60},
            },
            "encoding": {"x": x, "y": {"field": "mean", **y}, "tooltip": tooltip},
        },
        {
            "mark": {"type": "point", "color": "var(--text)", "shape": "square", "size": 40},
            "encoding": {"x": x, "y": {"field": "median", **y}, "tooltip": tooltip},
        },
    ]
    legend = [
        legend_entry("mean, with interval", "var(--accent)", "line"),
        legend_entry("median", "var(--text)", "square"),
        legend_entry(f"threshold {eps:g}", "var(--muted)", "line"),
    ]
    return chart_of(data, layers, 280, "Mean distance between consecutive drafts by round", legend)


def frontier_chart(compared: PolicyComparison) -> dict[str, Any]:
    """Chart the quality of every policy against its mean rounds; a line joins the fixed numbers of rounds."""
    replayed, metric = compared.replayed, compared.replayed.drafts.metric
    base = float(replayed.runs[compared.baseline].values[metric].mean())
    points = []
    for label in replayed.shown():
        run, difference = replayed.runs[label], compared.quality(label)
        point: dict[str, Any] = {
            "label": label,
            "short": "" if run.kind == "random" else label.replace("fixed_k(", "k = ").removesuffix(")"),
            "kind": run.kind,
            "name": KIND_MARKS[run.kind][0],
            "cost": float(replayed.rounds[label].mean()),
            "quality": 100 * float(run.values[metric].mean()),
        }
        if difference is not None:
            point |= {"low": 100 * (base + difference.low), "high": 100 * (base + difference.high)}
        points.append(point)
    tooltip = [
        {"field": "label", "title": "policy"},
        {"field": "quality", "title": metric, "format": ".2f"},
        {"field": "cost", "title": "rounds", "format": ".2f"},
    ]
    return points_chart(points, ("rounds per question", f"{metric}, points"), f"{metric} against rounds", tooltip)


def published_chart(split: FigureSplit, runs: Sequence[PublishedRun]) -> dict[str, Any]:
    """Chart the published scores of policies on a split against their mean rounds, with intervals of the score differences."""
    base = split.runs[BASELINE].score
    points = []
    for run in runs:
        kind = next((kind for start, kind in _KIND_STARTS.items() if run.name.startswith(start)), "rule")
        score = run.differences.get("score")
        point: dict[str, Any] = {
            "label": run.name,
            "short": run.name,
            "kind": kind,
            "name": KIND_MARKS[kind][0],
            "selector": "",
        }
        ends = {} if score is None else {"low": base + score.low, "high": base + score.high}
        points.append({**point, "cost": run.rounds, "quality": run.score, **ends})
    tooltip = [
        {"field": "label", "title": "policy"},
        {"field": "quality", "title": "score", "format": ".4f"},
        {"field": "cost", "title": "rounds", "format": ".2f"},
    ]
    title = f"Published information score against rounds, {split.name}, {split.questions} questions"
    return points_chart(points, ("rounds per question", "information score"), title, tooltip)


def saved_chart(compared: PolicyComparison) -> dict[str, Any] | None:
    """Chart the share of the full width's tokens that each policy saves, with intervals; None if tokens are unknown."""
    replayed, data = compared.replayed, []
    for label in replayed.shown():
        run, share = replayed.runs[label], compared.saved(label)
        if share is not None and run.kind in ("fixed", "rule"):
            value, low, high = share
            data.append({"policy": label, "name": KIND_MARKS[run.kind][0], "saved": value, "low": low, "high": high})
    if not data:
        return None
    axis = {"format": ".0%", "title": f"{replayed.tokens_name} saved, of those of {compared.baseline}"}
    x = {"field": "saved", "type": "quantitative", "axis": axis}
    y = {"field": "policy", "type": "nominal", "sort": None, "title": None, "axis": {"labelLimit": 220}}
    names, colours, _ = zip(*(KIND_MARKS[kind] for kind in ("fixed", "rule")), strict=True)
    colour = {"field": "name", "type": "nominal", "legend": None, **scale_of(names, colours)}
    tooltip = [{"field": "policy"}, *({"field": name, "format": ".1%"} for name in ("saved", "low", "high"))]
    layers: list[dict[str, Any]] = [
        {
            "mark": {"type": "bar", "height": {"band": 0.7}},
            "encoding": {"x": x, "y": y, "color": colour, "tooltip": tooltip},
        },
        {
            "mark": {"type": "rule", "color": "var(--text)"},
            "encoding": {"x": {"field": "low", "type": "quantitative"}, "x2": {"field": "high"}, "y": y},
        },
    ]
    legend = [legend_entry(name, c, "square") for name, c in zip(names, colours, strict=True)]
    return chart_of(
        data,
        layers,
        30 * len(data) + 8,
        f"{replayed.tokens_name.capitalize()} saved against {compared.baseline}",
        legend,
    )
