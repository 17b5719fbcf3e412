"""The layers of a Vega-Lite chart, with the scales and axes that they share: the part of the language that this library uses."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.display.scales import LinearScale, NamedScale, linear_scale

__all__ = [
    "DISCRETE",
    "ChartLayer",
    "ChartRow",
    "chart_layers",
    "holds",
    "is_known",
    "shared_axis",
    "shared_scale",
    "stack_ends",
]

_TERM = re.compile(
    r"datum\.(?P<field>\w+)(?: (?P<sign>===|!==|>=|<=|>|<) (?P<value>'[^']*'|-?[\d.]+))?|isValid\(datum\.(?P<valid>\w+)\)"
)
_SIGNS: Mapping[str, Callable[[Any, Any], bool]] = {
    "===": lambda a, b: a == b,
    "!==": lambda a, b: a != b,
    ">=": lambda a, b: a is not None and a >= b,
    "<=": lambda a, b: a is not None and a <= b,
    ">": lambda a, b: a is not None and a > b,
    "<": lambda a, b: a is not None and a < b,
}
DISCRETE = ("nominal", "ordinal")
"""Types of names, not numbers."""

_MARKS = frozenset({"line", "rule", "point", "text", "bar", "rect"})

ChartRow = Mapping[str, Any]
"""A row of a chart's data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartLayer:
    """One layer: its mark, its encoding and the rows that it draws."""

    mark: Mapping[str, Any]
    encoding: Mapping[str, Any]
    rows: Sequence[ChartRow]

    def channel(self, name: str) -> Mapping[str, Any]:
        """Return the encoding of a channel; empty if there is none."""
        encoding: Mapping[str, Any] = self.encoding.get(name, {})
        return encoding

    def values(self, name: str) -> list[Any]:
        """Return the values of a channel that are known."""
        key = self.channel(name).get("field")
        return [] if key is None else [row[key] for row in self.rows if is_known(row.get(key))]


def chart_layers(node: Mapping[str, Any], spec: Mapping[str, Any], rows: Sequence[ChartRow]) -> Iterator[ChartLayer]:
    """Yield the layers of a chart, those of nested ones included, with their rows."""
    data = node.get("data", {})
    if "values" in data:
        rows = data["values"]
    elif "name" in data:
        rows = spec["datasets"][data["name"]]
    for part in node.get("layer", ()):
        yield from chart_layers(part, spec, rows)
    if "mark" not in node:
        return
    for transform in node.get("transform", ()):
        if {*transform} != {"filter"}:
            raise ValueError(f"this transform is not drawn here: {sorted(transform)}")
        rows = [row for row in rows if holds(transform["filter"], row)]
    mark = node["mark"] if isinstance(node["mark"], Mapping) else {"type": node["mark"]}
    if mark["type"] not in _MARKS:
        raise ValueError(f"the mark {mark['type']!r} is not drawn here")
    yield ChartLayer(mark=mark, encoding=node.get("encoding", {}), rows=rows)


def holds(test: str, row: ChartRow) -> bool:
    """Return whether a row passes a test of Vega's language, of which comparisons with texts and numbers are known."""
    for term in test.split(" && "):
        match = _TERM.fullmatch(term.strip())
        if match is None:
            raise ValueError(f"the test {term!r} is not known here")
        if match["valid"] is not None:
            holds_here = is_known(row.get(match["valid"]))
        elif match["sign"] is None:
            holds_here = bool(row.get(match["field"]))
        else:
            text = match["value"]
            holds_here = _SIGNS[match["sign"]](row.get(match["field"]), text[1:-1] if text[0] == "'" else float(text))
        if not holds_here:
            return False
    return True


def is_known(value: Any) -> bool:
    """Return whether a value can be drawn."""
    return value is not None and not (isinstance(value, float) and math.isnan(value))


def shared_scale(layers: Sequence[ChartLayer], name: str, size: tuple[int, int]) -> LinearScale | NamedScale | None:
    """Return the scale that all layers share; None if none has this channel."""
    channels = [layer.channel(name) for layer in layers if "field" in layer.channel(name)]
    if not channels:
        return None
    span = (0.0, float(size[0])) if name == "x" else (float(size[1]), 0.0)
    if channels[0]["type"] in DISCRETE:
        sort = next((c["sort"] for c in channels if isinstance(c.get("sort"), Mapping)), None)
        rows = [row for layer in layers if "field" in layer.channel(name) for row in layer.rows]
        key = channels[0]["field"]
        ordered = sorted(rows, key=lambda row: row[sort["field"]]) if sort else rows
        names = list(dict.fromkeys(row[key] for row in ordered if key in row))
        if all(isinstance(item, int | float) for item in names) and channels[0]["type"] == "ordinal":
            names.sort()
        bands = any(layer.mark["type"] in ("bar", "rect") for layer in layers)
        return NamedScale(names, min(span), max(span), bands)
    values = [v for layer in layers for c in (name, f"{name}2") for v in layer.values(c)]
    values += [total for layer in layers if layer.mark["type"] == "bar" for total in stack_ends(layer, name)]
    options: dict[str, Any] = {}
    for channel in channels:
        options |= channel.get("scale", {})
    domain = options.get("domain")
    return linear_scale(
        [float(value) for value in values],
        span,
        domain=domain,
        zero=options.get("zero", domain is None),
        padding=options.get("padding", 0),
        nice=options.get("nice", domain is None),
    )


def shared_axis(layers: Sequence[ChartLayer], name: str) -> dict[str, Any]:
    """Return the axis of a channel: its title, and what any layer says of it."""
    axis: dict[str, Any] = {}
    for layer in layers:
        channel = layer.channel(name)
        if "field" not in channel:
            continue
        own = dict(channel.get("axis") or {})
        if "title" in channel:
            own["title"] = channel["title"]
        axis = own | axis | ({"title": own["title"]} if axis.get("title") is None and own.get("title") else {})
        axis.setdefault("discrete", channel["type"] in DISCRETE)
    return axis


def stack_ends(layer: ChartLayer, name: str) -> list[float]:
    """Return the ends of stacked bars, of which those up and those down are stacked apart."""
    other = "y" if name == "x" else "x"
    ends: dict[tuple[Any, bool], float] = {}
    key, group = layer.channel(name).get("field"), str(layer.channel(other).get("field"))
    for row in layer.rows:
        if key is not None and is_known(row.get(key)) and f"{name}2" not in layer.encoding:
            at = (row.get(group), row[key] >= 0)
            ends[at] = ends.get(at, 0.0) + float(row[key])
    return [0.0, *ends.values()] if ends else []
