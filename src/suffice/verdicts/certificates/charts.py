"""The chart of a certificate: the loss of each policy of the family against its cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffice.common.display import Chart
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    axis_of,
    bound_layer,
    chart_of,
    legend_entry,
    point_layer,
    scale_of,
)

_STATES = {"chosen": "var(--accent)", "certified": "var(--good)", "not certified": "var(--muted)"}
"""The states of a policy with their colours."""


def family_chart(sequence: Sequence[Mapping[str, Any]], epsilon: float, kind: str, chosen: int | None) -> Chart:
    """Return the mean loss of each policy on the certification questions against its mean calls, beside epsilon.

    Args:
        sequence: The family in test order, see `Certificate.sequence`.
        epsilon: The largest expected loss.
        kind: The loss in words.
        chosen: The position of the chosen policy; None if there is none.
    """
    data = [
        {
            "policy": member["rule"],
            "calls": member["calls"],
            "loss": member["loss"],
            "p": member["p_value"],
            "state": "chosen" if place == chosen else "certified" if member["certified"] else "not certified",
        }
        for place, member in enumerate(sequence)
    ]
    x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("loss", f"{kind}, mean")
    colour = {"field": "state", "type": "nominal", "legend": None, **scale_of([*_STATES], [*_STATES.values()])}
    tooltip = [
        {"field": "policy"},
        {"field": "loss", "format": "+.4f"},
        {"field": "calls", "format": ".2f"},
        {"field": "p", "title": "p-value", "format": ".4f"},
        {"field": "state"},
    ]
    encoding = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers = [
        bound_layer("y", "epsilon", epsilon, f"epsilon = {epsilon:g}"),
        # Larger, so that it stays visible under other points at the same place.
        point_layer(encoding, "datum.state === 'chosen'", (220, 80)),
    ]
    states = {member["state"] for member in data}
    legend = [legend_entry(name, colour, "circle") for name, colour in _STATES.items() if name in states]
    return Chart(chart_of(data, layers, 300, f"Loss against calls of {len(data)} policies", legend))
