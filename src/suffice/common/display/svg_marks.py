"""The marks of a chart as elements of SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from html import escape
from itertools import groupby
from typing import Any

from suffice.common.display.layers import DISCRETE, ChartLayer, ChartRow, holds, is_known
from suffice.common.display.scales import NamedScale, formatted_number
from suffice.common.display.themes import colour_of

__all__ = ["DRAW_MARK", "Drawing", "cut_text", "outline", "short_number", "text_width"]

_FONT = 12
_LETTER_WIDTH = 0.56
"""Width of a letter, in its height."""


@dataclass(slots=True)
class Drawing:
    """The elements of a picture, and the colours that they have."""

    elements: list[str] = field(default_factory=list)
    colours: dict[str, str] = field(default_factory=dict)

    def paint(self, name: str, colour: str) -> str:
        """Return the attribute `fill` or `stroke` of a colour, as it is in light, and the class by which dark changes it."""
        if colour in ("none", "transparent"):
            return f' {name}="none"'
        key = self.colours.setdefault(colour, f"c{len(self.colours)}")
        return f' {name}="{colour_of(colour, "light")}" data-{name}="{key}"'

    def add(
        self,
        tag: str,
        *,
        text: str = "",
        title: str = "",
        paints: str = "",
        box: ChartRow | None = None,
        **attributes: Any,
    ) -> None:
        """Add an element.

        Args:
            tag: Its name.
            text: What it contains.
            title: What is shown under the pointer, and read aloud.
            paints: Its colours, from `paint`.
            box: Further attributes.
            attributes: By name, ``_`` for ``-``; those that are None are left out.
        """
        shown = "".join(
            f' {name.replace("_", "-")}="{escape(short_number(value))}"'
            for name, value in {**(box or {}), **attributes}.items()
            if value is not None
        )
        inner = (f"<title>{escape(title)}</title>" if title else "") + escape(text)
        self.elements.append(f"<{tag}{shown}{paints}>{inner}</{tag}>" if inner else f"<{tag}{shown}{paints}/>")

    def style(self, unique: str) -> str:
        """Return the style sheet by which the colours of the element with this id are others in the dark."""
        rules = [
            f'#{unique} [data-{name}="{key}"]{{{name}:{colour_of(colour, "dark")}}}'
            for colour, key in self.colours.items()
            for name in ("fill", "stroke")
        ]
        return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def _place(layer: ChartLayer, name: str, row: ChartRow, scales: Mapping[str, Any]) -> float | None:
    """Return where a row is on an axis; None if it is undefined there or the layer has no such channel."""
    key = layer.channel(name).get("field")
    scale = scales[name[0]]
    return None if key is None or not is_known(row.get(key)) else scale(row[key])


def _valued(layer: ChartLayer, channel: str, row: ChartRow, default: Any) -> Any:
    """Return the value of a channel: by condition, constant, by the scale of names, or the default."""
    encoding = layer.channel(channel)
    condition = encoding.get("condition")
    if condition is not None and holds(condition["test"], row):
        return condition["value"]
    if "value" in encoding:
        return encoding["value"]
    if "field" not in encoding:
        return default
    scale = encoding.get("scale", {})
    if encoding["type"] in DISCRETE:
        return dict(zip(scale["domain"], scale["range"], strict=True))[row[encoding["field"]]]
    most = max((float(value) for value in layer.values(channel)), default=1.0) or 1.0
    low, high = scale["range"]
    return low + (high - low) * float(row[encoding["field"]]) / most


def _colour(layer: ChartLayer, row: ChartRow, default: str = "var(--accent)") -> str:
    return str(_valued(layer, "color", row, layer.mark.get("color", default)))


def _tooltip(layer: ChartLayer, row: ChartRow) -> str:
    shown = [
        (entry.get("title", entry["field"]), formatted_number(row.get(entry["field"]), entry.get("format", "")))
        for entry in layer.encoding.get("tooltip", ())
    ]
    return "; ".join(f"{name}: {value}" for name, value in shown if value)


def _draw_line(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    keys = [layer.channel(name)["field"] for name in ("color", "detail") if "field" in layer.channel(name)]
    order = layer.channel("order").get("field") or layer.channel("x")["field"]
    places = {name: i for i, name in enumerate(scales["x"].names)} if isinstance(scales["x"], NamedScale) else {}
    by_group = sorted(layer.rows, key=lambda row: [str(row.get(key)) for key in keys])
    for _, group in groupby(by_group, key=lambda row: [str(row.get(key)) for key in keys]):
        listed = sorted(group, key=lambda row: places[row[order]] if row[order] in places else row[order])
        points = [(_place(layer, "x", row, scales), _place(layer, "y", row, scales)) for row in listed]
        parts = [[*part] for known, part in groupby(points, key=lambda p: None not in p) if known]
        for part in parts:
            drawing.add(
                "path",
                paints=' fill="none"' + drawing.paint("stroke", _colour(layer, listed[0])),
                d="M" + "L".join(f"{short_number(x)},{short_number(y)}" for x, y in part),
                stroke_width=layer.mark.get("strokeWidth", 2),
                stroke_dasharray=_dash(layer.mark),
                opacity=layer.mark.get("opacity"),
            )
    point = layer.mark.get("point")
    if point:
        own = {"type": "point", "filled": True, "size": 30, **(point if isinstance(point, Mapping) else {})}
        own.setdefault("color", layer.mark.get("color", "var(--accent)"))
        _draw_points(drawing, ChartLayer(mark=own, encoding=layer.encoding, rows=layer.rows), scales, size)


def _draw_points(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    del size
    for row in layer.rows:
        x, y = _place(layer, "x", row, scales), _place(layer, "y", row, scales)
        if x is None or y is None:
            continue
        colour = _colour(layer, row)
        stroke = str(_valued(layer, "stroke", row, colour))
        fill = str(_valued(layer, "fill", row, colour if layer.mark.get("filled") else "none"))
        shape = str(_valued(layer, "shape", row, layer.mark.get("shape", "circle")))
        area = float(_valued(layer, "size", row, layer.mark.get("size", 30)))
        paints = drawing.paint("fill", fill) + ("" if layer.mark.get("filled") else drawing.paint("stroke", stroke))
        drawing.add(
            "path",
            paints=paints,
            title=_tooltip(layer, row),
            d=outline(shape, area, x, y),
            stroke_width=None if layer.mark.get("filled") else layer.mark.get("strokeWidth", 2),
            opacity=layer.mark.get("opacity", 0.7),
        )


def _draw_rules(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    for row in layer.rows:
        x, y = _place(layer, "x", row, scales), _place(layer, "y", row, scales)
        x2, y2 = _place(layer, "x2", row, scales), _place(layer, "y2", row, scales)
        if x is None and y is None:
            continue
        ends = {
            "x1": 0 if x is None else x,
            "x2": x2 if x2 is not None else size[0] if x is None else x,
            "y1": 0 if y is None else y,
            "y2": y2 if y2 is not None else size[1] if y is None else y,
        }
        drawing.add(
            "line",
            paints=drawing.paint("stroke", _colour(layer, row)),
            title=_tooltip(layer, row),
            box=ends,
            stroke_width=layer.mark.get("strokeWidth", 1),
            stroke_dasharray=_dash(layer.mark),
            opacity=layer.mark.get("opacity"),
        )


def _draw_texts(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    mark = layer.mark
    font = mark.get("fontSize", 11)
    for row in layer.rows:
        x = mark["x"] if "x" in mark else _place(layer, "x", row, scales)
        y = mark["y"] if "y" in mark else _place(layer, "y", row, scales)
        if x is None or y is None:
            continue
        label = formatted_number(row.get(layer.channel("text")["field"]), layer.channel("text").get("format", ""))
        drawing.add(
            "text",
            text=cut_text(label, mark.get("limit", math.inf), font),
            paints=drawing.paint("fill", _colour(layer, row, "var(--text)"))
            + drawing.paint("stroke", "var(--surface)"),
            paint_order="stroke",  # lines below it do not cross its letters
            stroke_width=3,
            stroke_linejoin="round",
            x=x + mark.get("dx", 0),
            y=min(y + mark.get("dy", 0) + font / 3, size[1] - 3),  # not on the axis
            font_size=font,
            text_anchor={"left": "start", "right": "end"}.get(mark.get("align", ""), "middle"),
        )


def _draw_bars(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    del size
    across = isinstance(scales["y"], NamedScale)
    name, other = ("x", "y") if across else ("y", "x")
    key, group = layer.channel(name)["field"], layer.channel(other)["field"]
    scale, bands = scales[name], scales[other]
    share = layer.mark.get("height" if across else "width", {}).get("band", 1.0)
    thick = bands.width * share
    sort = layer.channel("order").get("field")
    spent: dict[tuple[Any, bool], float] = {}
    for row in sorted(layer.rows, key=lambda row: row[sort]) if sort else layer.rows:
        if not is_known(row.get(key)):
            continue
        at = (row[group], row[key] >= 0)
        before = spent.get(at, 0.0)
        spent[at] = before + float(row[key])
        first, last = sorted((scale(before), scale(spent[at])))
        side = bands(row[group]) - thick / 2
        box = (
            {"x": first, "y": side, "width": last - first, "height": thick}
            if across
            else {"x": side, "y": first, "width": thick, "height": last - first}
        )
        stroke = layer.mark.get("stroke")
        paints = drawing.paint("fill", _colour(layer, row)) + (drawing.paint("stroke", stroke) if stroke else "")
        drawing.add("rect", paints=paints, title=_tooltip(layer, row), box=box, opacity=layer.mark.get("opacity"))


def _draw_boxes(drawing: Drawing, layer: ChartLayer, scales: Mapping[str, Any], size: tuple[int, int]) -> None:
    for row in layer.rows:
        box: dict[str, float] = {}
        for name, length, whole in (("x", "width", size[0]), ("y", "height", size[1])):
            ends = [
                at
                for at in (_place(layer, name, row, scales), _place(layer, f"{name}2", row, scales))
                if at is not None
            ]
            low, high = (min(ends), max(ends)) if len(ends) > 1 else (0, whole)
            box |= {name: low, length: high - low}
        paints = drawing.paint("fill", _colour(layer, row))
        drawing.add("rect", paints=paints, title=_tooltip(layer, row), box=box, opacity=layer.mark.get("opacity"))


DRAW_MARK: Mapping[str, Callable[[Drawing, ChartLayer, Mapping[str, Any], tuple[int, int]], None]] = {
    "line": _draw_line,
    "point": _draw_points,
    "rule": _draw_rules,
    "text": _draw_texts,
    "bar": _draw_bars,
    "rect": _draw_boxes,
}


def outline(shape: str, area: float, x: float, y: float) -> str:
    """Return the outline of a point whose size is its area."""
    half = math.sqrt(area) / 2
    if shape == "circle":
        r = math.sqrt(area / math.pi)
        return f"M{short_number(x - r)},{short_number(y)}a{short_number(r)},{short_number(r)} 0 1 0 {short_number(2 * r)},0a{short_number(r)},{short_number(r)} 0 1 0 {short_number(-2 * r)},0Z"
    corners = {
        "square": ((-1, -1), (1, -1), (1, 1), (-1, 1)),
        "diamond": ((-1, 0), (0, -1), (1, 0), (0, 1)),
        "triangle-up": ((0, -1), (1, 0.9), (-1, 0.9)),
    }
    if shape not in corners:
        raise ValueError(f"the shape {shape!r} is not drawn here")
    return (
        "M"
        + "L".join(f"{short_number(x + half * dx)},{short_number(y + half * dy)}" for dx, dy in corners[shape])
        + "Z"
    )


def _dash(mark: Mapping[str, Any]) -> str | None:
    dash = mark.get("strokeDash")
    return None if dash is None or 0 in dash else " ".join(map(str, dash))


def text_width(text: str, font: float = _FONT) -> float:
    """Return about how many pixels a text takes."""
    return _LETTER_WIDTH * font * len(text)


def cut_text(text: str, limit: float, font: float = _FONT) -> str:
    """Return a text that fits into so many pixels."""
    if text_width(text, font) <= limit:
        return text
    return f"{text[: max(1, int(limit / (_LETTER_WIDTH * font)) - 1)]}…"


def short_number(value: Any) -> str:
    """Return a number as an attribute has it."""
    return value if isinstance(value, str) else f"{round(float(value), 2):g}"
