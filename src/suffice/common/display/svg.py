"""A Vega-Lite chart as an SVG file, drawn without a browser: the part of the language that this library's charts use.

Text stays text, every mark says its values, and colours follow light and dark.  What is not known here is an error.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

from suffice.common.display.layers import ChartLayer, chart_layers, shared_axis, shared_scale
from suffice.common.display.scales import LinearScale, NamedScale, formatted_number
from suffice.common.display.svg_marks import DRAW_MARK, Drawing, cut_text, outline, short_number, text_width

__all__ = ["chart_svg"]

_WIDTH, _FONT, _TICK = 560, 12, 5
_LEGEND_ROW, _LEGEND_GAP = 20, 22


def chart_svg(spec: Mapping[str, Any], *, width: int = _WIDTH) -> str:
    """Return a Vega-Lite specification of this library as an SVG document.

    Args:
        spec: One layered chart with its legend in `usermeta`.
        width: Pixels of the plot, without axes.

    Raises:
        ValueError: It uses what this writer does not know.
    """
    layers = [*chart_layers(spec, spec, ())]
    if not layers:
        raise ValueError("the chart has no layers")
    height = int(spec["height"])
    scales = {name: shared_scale(layers, name, (width, height)) for name in ("x", "y")}
    drawing = Drawing()
    axes = {name: shared_axis(layers, name) for name in ("x", "y")}
    left = 14 + _side_room(axes["y"], scales["y"], height)
    legend = [*_legend_places(spec.get("usermeta", {}).get("legend", ()), width + left)]
    top = (_LEGEND_ROW * (1 + max(row for *_, row in legend)) + 12) if legend else 10
    bottom = _bottom_room(axes["x"], scales["x"])
    _draw_axes(drawing, axes, scales, width, height)
    for layer in layers:
        DRAW_MARK[layer.mark["type"]](drawing, layer, scales, (width, height))
    plot = "\n".join(drawing.elements)
    drawing.elements.clear()
    for entry, x, row in legend:
        _draw_legend_entry(drawing, entry, 8 + x, 8 + _LEGEND_ROW * row)
    size = (left + width + _right_room(axes["x"], scales["x"], width), top + height + bottom)
    title = str(spec.get("description", "chart"))
    unique = "chart-" + hashlib.sha256(repr((title, plot)).encode()).hexdigest()[:10]
    surface = drawing.paint("fill", "var(--surface)")
    described = escape(_description_of(axes, layers, spec))
    style = drawing.style(unique)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" id="{unique}" width="{size[0]}" height="{size[1]}" '
        f'viewBox="0 0 {size[0]} {size[1]}" role="img" aria-labelledby="{unique}-title {unique}-desc" '
        'font-family="system-ui, -apple-system, Segoe UI, Roboto, Noto Sans, Liberation Sans, sans-serif" '
        f'font-size="{_FONT}">\n<title id="{unique}-title">{escape(title)}</title>\n<desc id="{unique}-desc">{described}</desc>\n'
        f'{style}\n<rect width="100%" height="100%"{surface}/>\n'
        + "".join(f"{element}\n" for element in drawing.elements)
        + f'<g transform="translate({left},{top})">\n{plot}\n</g>\n</svg>\n'
    )


def _tick_labels(
    axis: Mapping[str, Any], scale: LinearScale | NamedScale | None, pixels: float
) -> list[tuple[float, str]]:
    """Return the places and texts of an axis."""
    if scale is None:
        return []
    if isinstance(scale, NamedScale):
        limit = axis.get("labelLimit", 180)
        return [(scale(name), cut_text(formatted_number(name), limit)) for name in scale.names]
    ticks = scale.ticks(int(axis.get("tickCount", math.ceil(pixels / 40))))
    least = axis.get("tickMinStep", 0)
    ticks = [tick for tick in ticks if not least or (tick / least).is_integer()]
    spec = axis.get("format", "")
    if not spec:
        digits = max((len(repr(tick).partition(".")[2].rstrip("0")) for tick in ticks), default=0)
        spec = f",.{digits}f"
    return [(scale(tick), formatted_number(tick, spec)) for tick in ticks]


def _side_room(axis: Mapping[str, Any], scale: LinearScale | NamedScale | None, height: float) -> int:
    widths = [text_width(text) for _, text in _tick_labels(axis, scale, height)]
    return round(max(widths, default=0)) + 2 * _TICK + (20 if axis.get("title") else 0)


def _right_room(axis: Mapping[str, Any], scale: LinearScale | NamedScale | None, width: float) -> int:
    """Return the pixels beyond the plot that the labels below it take."""
    beyond = [at + text_width(text) / 2 - width for at, text in _tick_labels(axis, scale, width)]
    return max(16, math.ceil(max(beyond, default=0)) + 4)


def _bottom_room(axis: Mapping[str, Any], scale: LinearScale | NamedScale | None) -> int:
    labels = _tick_labels(axis, scale, _WIDTH)
    angle = math.radians(abs(axis.get("labelAngle", 0)))
    tallest = max((text_width(text) for _, text in labels), default=0) * math.sin(angle)
    return round((24 if labels else 8) + tallest + (22 if axis.get("title") else 0))


def _draw_axes(
    drawing: Drawing, axes: Mapping[str, Mapping[str, Any]], scales: Mapping[str, Any], width: int, height: int
) -> None:
    line, muted = drawing.paint("stroke", "var(--line)"), drawing.paint("fill", "var(--muted)")
    domain, text = drawing.paint("stroke", "var(--muted)"), drawing.paint("fill", "var(--text)")
    places = {name: _tick_labels(axes[name], scales[name], width if name == "x" else height) for name in ("x", "y")}
    for name in ("x", "y"):
        if not axes[name].get("grid", not axes[name].get("discrete", True)):
            continue
        for at, _ in places[name]:
            ends = (
                {"x1": at, "x2": at, "y1": 0, "y2": height}
                if name == "x"
                else {"x1": 0, "x2": width, "y1": at, "y2": at}
            )
            drawing.add("line", paints=line, box=ends)
    if scales["x"] is not None:
        drawing.add("line", paints=domain, x1=0, x2=width, y1=height, y2=height)
        angle = axes["x"].get("labelAngle", 0)
        for at, label in places["x"]:
            drawing.add("line", paints=domain, x1=at, x2=at, y1=height, y2=height + _TICK)
            rotation = {"transform": f"rotate({angle} {short_number(at)} {height + 16})"} if angle else {}
            anchor = "end" if angle < 0 else "start" if angle > 0 else "middle"
            drawing.add("text", text=label, paints=muted, x=at, y=height + 18, text_anchor=anchor, box=rotation)
        if axes["x"].get("title"):
            below = height + _bottom_room(axes["x"], scales["x"]) - 8
            drawing.add("text", text=axes["x"]["title"], paints=text, x=width / 2, y=below, text_anchor="middle")
    if scales["y"] is not None:
        drawing.add("line", paints=domain, x1=0, x2=0, y1=0, y2=height)
        for at, label in places["y"]:
            drawing.add("line", paints=domain, x1=-_TICK, x2=0, y1=at, y2=at)
            drawing.add("text", text=label, paints=muted, x=-2 * _TICK + 2, y=at + 4, text_anchor="end")
        if axes["y"].get("title"):
            x = -_side_room(axes["y"], scales["y"], height) + 6
            drawing.add(
                "text",
                text=axes["y"]["title"],
                paints=text,
                x=x,
                y=height / 2,
                text_anchor="middle",
                transform=f"rotate(-90 {short_number(x)} {short_number(height / 2)})",
            )


def _legend_places(entries: Iterable[Mapping[str, Any]], width: int) -> Iterable[tuple[Mapping[str, Any], float, int]]:
    """Yield each entry with its place in a row, and the row."""
    x, row = 0.0, 0
    for entry in entries:
        needed = 18 + text_width(entry["name"])
        if x and x + needed > width:
            x, row = 0.0, row + 1
        yield entry, x, row
        x += needed + _LEGEND_GAP


def _draw_legend_entry(drawing: Drawing, entry: Mapping[str, Any], x: float, y: float) -> None:
    if entry["shape"] == "line":
        paints = drawing.paint("stroke", entry["colour"])
        drawing.add("line", paints=paints, x1=x, x2=x + 14, y1=y + 6, y2=y + 6, stroke_width=2)
    else:
        fill = "var(--surface)" if entry.get("hollow") else entry["colour"]
        paints = drawing.paint("fill", fill) + drawing.paint("stroke", entry["colour"])
        drawing.add("path", paints=paints, d=outline(entry["shape"], 80, x + 7, y + 6), stroke_width=1.5)
    drawing.add("text", text=entry["name"], paints=drawing.paint("fill", "var(--text)"), x=x + 20, y=y + 10)


def _description_of(
    axes: Mapping[str, Mapping[str, Any]], layers: Sequence[ChartLayer], spec: Mapping[str, Any]
) -> str:
    """Return what the picture shows, for those who do not see it."""
    parts = [
        f"{word}: {axes[name]['title']}" for word, name in (("Across", "x"), ("Up", "y")) if axes[name].get("title")
    ]
    names = [str(entry["name"]) for entry in spec.get("usermeta", {}).get("legend", ())]
    parts += [f"Shown: {', '.join(names)}"] if names else []
    n = sum(len(layer.rows) for layer in layers if layer.mark["type"] in ("point", "bar"))
    return ". ".join([*parts, f"{n} marks, each with its values as a title"]) + "."
