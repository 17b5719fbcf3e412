"""Labels of points in a chart, placed without overlaps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

_BELOW, _ABOVE = 16, (-14, -30, -46, -62, -78)
"""Vertical distances of labels from their points, in pixels."""


def spread_labels(points: list[dict[str, Any]], value: str) -> list[dict[str, Any]]:
    """Set the distance of each label from its point, in pixels, so that labels do not overlap.

    Labels of budgets lie below their points, all other labels above.

    Args:
        points: Each with `short` ("" = no label), `kind` ("fixed" for a budget), `cost`, and the figure on the vertical axis.
        value: The field with the figure on the vertical axis; points where the field is None are not drawn.
    """
    drawn = [point for point in points if point[value] is not None]
    width, height = (
        max(1e-9, max((p[field] for p in drawn), default=0.0) - min((p[field] for p in drawn), default=0.0))
        for field in ("cost", value)
    )
    above: list[dict[str, Any]] = []
    for point in sorted(drawn, key=lambda p: p["cost"]):
        point["offset"] = _BELOW if point["kind"] == "fixed" else _ABOVE[0]
        if not point["short"] or point["kind"] == "fixed":
            continue
        near = {
            other["offset"]
            for other in above
            if abs(other["cost"] - point["cost"]) < width / 4 and abs(other[value] - point[value]) < height / 8
        }
        point["offset"] = next((offset for offset in _ABOVE if offset not in near), _ABOVE[-1])
        above.append(point)
    return drawn


def label_layers(
    points: Iterable[Mapping[str, Any]], x: Mapping[str, Any], y: Mapping[str, Any], limit: int
) -> list[dict[str, Any]]:
    """Return a layer of labels for each distance that `spread_labels` set; labels are at most `limit` pixels wide."""
    return [
        {
            "transform": [{"filter": f"datum.short !== '' && datum.offset === {offset}"}],
            "mark": {"type": "text", "dy": offset, "fontSize": 12, "color": "var(--text)", "limit": limit},
            "encoding": {"x": x, "y": y, "text": {"field": "short"}},
        }
        for offset in sorted({point["offset"] for point in points})
    ]
