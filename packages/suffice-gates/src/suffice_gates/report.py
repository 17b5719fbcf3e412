"""The part of a report that is about a gate (CBDR, Figure 8).

It contains quality and retrieval rate by threshold, and the questions that change between direct answers and retrieval.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from suffice.errors import SufficeError
from suffice.evaluation.replay import selected_on
from suffice.evaluation.replay.charts import chart_of, legend_entry, scale_of
from suffice.evaluation.statistics import Resampling
from suffice.policy.signals import KNOWN
from suffice.presentation.data import ReportPart
from suffice.recordings.recording import Recording
from suffice_gates.gates import GateEvaluation, GatePoint, Transitions, even_betas, gate_rule, transitions
from suffice_gates.gates.changes import examples_table, transitions_table
from suffice_gates.gates.point import points_table

_SWEEP_CAPTION = (
    "the share of questions that are retrieved for, as the threshold moves. Grey band: from never to always retrieving. A "
    "gate that knows nothing follows the random gate."
)
_STEPS_CAPTION = (
    "What each step to the next threshold changes: up, answers that retrieval makes right; down, those it makes wrong."
)
_RATE_COLOUR = "var(--muted)"
_QUALITY_COLOUR = "var(--accent)"


def gate_part(
    recording: Recording, metrics: Sequence[str], *, resampling: Resampling, margin: float
) -> tuple[ReportPart, ...]:
    """Return a report's part on the signal `p_known`; empty if round 0, later rounds or the signal were not recorded.

    Args:
        recording: Recorded rounds.
        metrics: Names of metrics; the first one measures quality.
        resampling: Settings of the intervals.
        margin: Margin of non-inferiority to always retrieving.
    """
    if int(recording.index[0]) != 0 or len(recording.index) == 1 or KNOWN not in recording.table.column_names:
        return ()
    betas = even_betas(recording.column(KNOWN)[:, 0])
    if not betas:
        return ()
    try:
        evaluation = GateEvaluation(recording, metrics=metrics, resampling=resampling, margin=margin)
    except SufficeError as error:
        return (ReportPart(title="The gate", sentences=(f"The gate cannot be judged here: {error}",)),)
    points = [evaluation.point(gate_rule(KNOWN, beta), beta, label=f"{KNOWN} > {beta:.4f}") for beta in betas]
    never, always, perfect = (evaluation.reference(kind) for kind in ("never", "always", "perfect"))
    steps = transitions(evaluation, KNOWN, betas)
    first = evaluation.metrics[0]
    return (
        ReportPart(
            title="The gate",
            sentences=(
                f"{always.headline(first)}.",
                f"{never.headline(first)}.",
                f"{perfect.headline(first)}: the most that a gate could reach here.",
                "A threshold that is picked from this sweep is selected here, so its figures flatter it.",
                *(
                    f"Note: {note}."
                    for note in selected_on(evaluation.gated(gate_rule(KNOWN, betas[0])), recording).notes
                ),
            ),
            charts={
                "gate": (
                    gate_sweep_chart(points, never, always, first),
                    f"{first.upper()} and {_SWEEP_CAPTION}",
                ),
                "gate-transitions": (
                    gate_steps_chart(steps),
                    _STEPS_CAPTION,
                ),
            },
            tables=(
                points_table("The gate, threshold by threshold", [never, *points, always, perfect], evaluation.metrics),
            ),
            folded={
                "Questions that change sides between neighbouring thresholds": (
                    transitions_table("Counts", steps),
                    examples_table("Some of the questions", steps, most=2),
                )
            },
        ),
    )


def gate_sweep_chart(points: Sequence[GatePoint], never: GatePoint, always: GatePoint, metric: str) -> dict[str, Any]:
    """Chart three lines against the threshold, in percent: the gate's quality, the quality of a random gate, the retrieval rate."""
    ends = sorted((100 * never.metrics[metric], 100 * always.metrics[metric]))
    data = [
        {
            "beta": point.beta,
            "quality": 100 * point.metrics[metric],
            "blind": 100 * (point.metrics[metric] - point.against_random[metric].delta),
            "rate": 100 * point.retrieval_rate,
        }
        for point in points
    ]
    x: dict[str, Any] = {
        "field": "beta",
        "type": "quantitative",
        "scale": {"zero": False},
        "axis": {"title": "threshold beta", "grid": False},
    }
    y: dict[str, Any] = {
        "type": "quantitative",
        "scale": {"domain": [0, 100]},
        "axis": {"title": "percent", "tickCount": 6},
    }
    tooltip = [
        {"field": "beta", "format": ".4f"},
        {"field": "quality", "title": metric.upper(), "format": ".1f"},
        {"field": "blind", "title": "random gate", "format": ".1f"},
        {"field": "rate", "title": "retrieves, %", "format": ".1f"},
    ]
    lines: tuple[tuple[str, str, list[int]], ...] = (
        ("rate", _RATE_COLOUR, [6, 3]),
        ("blind", "var(--accent-soft)", [2, 2]),
        ("quality", _QUALITY_COLOUR, [1, 0]),
    )
    layers: list[dict[str, Any]] = [
        {
            "data": {"values": [{"low": ends[0], "high": ends[1]}]},
            "mark": {"type": "rect", "color": _RATE_COLOUR, "opacity": 0.12},
            "encoding": {"y": {"field": "low", **y}, "y2": {"field": "high"}},
        },
        *(
            {
                "mark": {"type": "line", "color": colour, "strokeDash": dash, "point": {"color": colour, "size": 40}},
                "encoding": {"x": x, "y": y | {"field": field}, "tooltip": tooltip},
            }
            for field, colour, dash in lines
        ),
    ]
    legend = [
        legend_entry(metric.upper(), _QUALITY_COLOUR, "line"),
        legend_entry("random gate of the same retrieval rate", "var(--accent-soft)", "line"),
        legend_entry("questions retrieved for", _RATE_COLOUR, "line"),
    ]
    return chart_of(data, layers, 320, f"{metric.upper()} and retrieval rate over the threshold", legend)


def gate_steps_chart(steps: Sequence[Transitions]) -> dict[str, Any]:
    """Chart the gains of each step as bars upwards, and the losses as bars downwards."""
    data = [
        {"step": f"{step.low:.3f} to {step.high:.3f}", "place": place, "kind": kind, "questions": sign * len(listed)}
        for place, step in enumerate(steps)
        for kind, sign, listed in (("wrong to right", 1, step.gained), ("right to wrong", -1, step.lost))
    ]
    names, colours = ("wrong to right", "right to wrong"), ("var(--good)", "var(--text)")
    bar: dict[str, Any] = {
        "mark": {"type": "bar"},
        "encoding": {
            "x": {
                "field": "step",
                "type": "ordinal",
                "sort": {"field": "place"},
                "axis": {"title": None, "labelAngle": -40},
            },
            "y": {"field": "questions", "type": "quantitative", "axis": {"title": "questions", "tickMinStep": 1}},
            "color": {
                "field": "kind",
                "type": "nominal",
                "legend": None,
                **scale_of(names, colours),
            },
            "tooltip": [{"field": "step"}, {"field": "kind"}, {"field": "questions"}],
        },
    }
    legend = [legend_entry(name, colour, "square") for name, colour in zip(names, colours, strict=True)]
    return chart_of(data, [bar], 220, f"Changes over {len(steps)} steps of the threshold", legend)
