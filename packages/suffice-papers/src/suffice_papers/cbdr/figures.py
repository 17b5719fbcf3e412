"""The figures of CBDR: quality and retrieval rate by threshold, and counts of answers changed between thresholds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.evaluation.replay.charts import legend_entry
from suffice_gates.gates import GatePoint
from suffice_gates.report import gate_steps_chart, gate_sweep_chart
from suffice_papers.cbdr.run import CbdrRun
from suffice_papers.paper import PaperFigure

_BETA = re.compile(r"CBDR beta=(?P<beta>[\d.]+)")
_PUBLISHED_COLOUR = "var(--warn)"


def cbdr_charts(run: CbdrRun, published: Mapping[str, tuple[float, ...]]) -> tuple[PaperFigure, ...]:
    """Return, for each depth, figure 8 with the best probe's gates, and section 5.4's chart of changed answers.

    Args:
        run: The run.
        published: The rows of Table 3: retrieval rate, top-1 and top-3.
    """
    layer, epochs = run.best
    figures = []
    for depth, points in run.gates.items():
        gates = [
            point
            for point in points
            if point.kind == "gate" and point.label.endswith(f"layer {layer}, {epochs} epochs")
        ]
        never, always = (next(point for point in points if point.kind == kind) for kind in ("never", "always"))
        metric = next(iter(always.metrics))
        spec = _with_paper(gate_sweep_chart(gates, never, always, metric), published, depth, gates)
        figures.append(
            PaperFigure(
                name=f"figure8-top{depth}",
                spec=spec,
                caption=(
                    f"Figure 8, top-{depth}, layer {layer}, {epochs} epochs: accuracy and retrieval rate by threshold, beside random "
                    "gates of the same rate. The band lies between never and always retrieving. Published points: Llama3-8B on NQ."
                ),
            )
        )
        if run.changes.get(depth):
            figures.append(
                PaperFigure(
                    name=f"section5.4-top{depth}",
                    spec=gate_steps_chart(run.changes[depth]),
                    caption=f"Section 5.4, top-{depth}: questions that change sides from each threshold to the next.",
                )
            )
    return tuple(figures)


def _with_paper(
    spec: dict[str, Any], published: Mapping[str, tuple[float, ...]], depth: int, gates: Sequence[GatePoint]
) -> dict[str, Any]:
    """Add the published accuracies and rates to a chart, at the thresholds that the paper reports."""
    low, high = (end(point.beta for point in gates) for end in (min, max))
    column = {1: 1, 3: 2}.get(depth)
    rows = []
    for name, values in published.items():
        match = _BETA.fullmatch(name)
        if match is not None and column is not None and low <= float(match["beta"]) <= high:
            for what, value in (("accuracy", values[column]), ("retrieves", values[0])):
                rows.append({"beta": float(match["beta"]), "percent": 100 * value, "what": f"published, {what}"})
    if not rows:
        return spec
    layer = {
        "data": {"values": rows},
        "mark": {
            "type": "point",
            "color": _PUBLISHED_COLOUR,
            "shape": "diamond",
            "size": 90,
            "opacity": 1,
            "strokeWidth": 2,
        },
        "encoding": {
            "x": {"field": "beta", "type": "quantitative"},
            "y": {"field": "percent", "type": "quantitative"},
            "tooltip": [{"field": "what"}, {"field": "beta", "format": ".2f"}, {"field": "percent", "format": ".1f"}],
        },
    }
    legend = [*spec["usermeta"]["legend"], legend_entry("published", _PUBLISHED_COLOUR, "diamond", hollow=True)]
    return {**spec, "layer": [*spec["layer"], layer], "usermeta": {"legend": legend}}
