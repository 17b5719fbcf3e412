"""Charts outside the report: in a notebook, as a picture, or as a page that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.common.display.svg import in_colours, picture
from suffice.common.files import write_file

VENDOR = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
"""The scripts that draw a chart, in the order in which a page loads them."""

_WIDTH = 560
_FONT = "Liberation Sans, Arial, Helvetica, sans-serif"
"""The first font comes with vl-convert, so that a picture has the same size on every machine."""

_CONFIG: Mapping[str, Any] = {
    "font": _FONT,
    "background": "var(--surface)",
    "view": {"stroke": None},
    "axis": {
        **dict.fromkeys(("labelColor", "domainColor", "tickColor"), "var(--muted)"),
        **dict.fromkeys(("labelFontSize", "titleFontSize"), 12),
        "titleColor": "var(--text)",
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "gridColor": "var(--line)",
    },
    "legend": {"labelColor": "var(--text)", "labelFontSize": 12},
}
_LEGEND: Mapping[str, Any] = {
    "title": None,
    "orient": "top",
    "columns": 3,
    "columnPadding": 20,
    "labelLimit": 400,
    "symbolOpacity": 1,
    "symbolSize": 90,
    "symbolStrokeWidth": 1.5,
}
_VEGA_VERSION = re.compile(r"/v\d+\.json$")


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite chart.

    Attributes:
        spec: The specification as used in the report, whose page defines the colours and draws the legend.
    """

    spec: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return a self-contained specification, with colours, a legend and a width."""
        shown: dict[str, Any] = in_colours(_standalone(self.spec, _WIDTH), "light")
        return shown

    def svg(self, *, width: int = _WIDTH) -> str:
        """Return the chart as an SVG document with selectable text, which follows a reader's light or dark mode.

        Args:
            width: Pixels of the plot, without axes.

        Raises:
            MissingExtraError: The extra `charts` is not installed.
        """
        return picture(_standalone(self.spec, width))

    def save(self, path: str | Path) -> None:
        """Write a picture (``.svg``), or a page that needs no network and shows values under the pointer.

        Raises:
            DataError: The file cannot be written.
            MissingExtraError: A picture is requested, and the extra `charts` is not installed.
        """
        if Path(path).suffix == ".svg":
            write_file(path, self.svg())
            return
        title = escape(str(self.spec.get("description", "chart")))
        spec = json.dumps(self.to_dict(), ensure_ascii=False).replace("<", "\\u003c")
        scripts = "".join(f"<script>{vendored(name)}</script>\n" for name in VENDOR)
        write_file(
            path,
            f'<!doctype html>\n<html lang="en">\n<head><meta charset="utf-8"><title>{title}</title>\n{scripts}</head>\n'
            f'<body><div id="chart"></div>\n<script>vegaEmbed("#chart", {spec}, {{ ast: true }})</script></body>\n</html>\n',
        )

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, Any]:
        """Return the chart in notebook formats: Vega-Lite 6, and Vega-Lite 5, which looks the same."""
        del include, exclude
        spec = self.to_dict()
        older = {**spec, "$schema": _VEGA_VERSION.sub("/v5.json", spec["$schema"])}
        return {
            "application/vnd.vegalite.v6+json": spec,
            "application/vnd.vegalite.v5+json": older,
            "text/plain": f"Chart: {spec['description']}. Where it is not drawn, .save('chart.html') makes a page of it.",
        }


def _standalone(spec: Mapping[str, Any], width: int) -> dict[str, Any]:
    """Return a specification with the legend and the look that a report's page would add."""
    alone = {key: value for key, value in spec.items() if key != "usermeta"}
    entries = spec.get("usermeta", {}).get("legend", ())
    if entries:
        alone["layer"] = [*alone.get("layer", ()), _legend_layer(entries)]
        # The legend has scales of its own, since other layers may use the same channels for other things.
        alone["resolve"] = {"scale": dict.fromkeys(("color", "fill", "stroke", "shape"), "independent")}
    return {**alone, "width": width, "config": _CONFIG}


def _legend_layer(entries: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a layer of invisible points from which Vega makes the legend: names, colours and shapes, hollow or filled."""
    names = [entry["name"] for entry in entries]
    colours = [entry["colour"] for entry in entries]
    ranges = {
        "stroke": colours,
        "fill": [
            "var(--surface)" if entry.get("hollow") else colour for entry, colour in zip(entries, colours, strict=True)
        ],
        "shape": ["stroke" if entry["shape"] == "line" else entry["shape"] for entry in entries],
    }
    shared = {"field": "entry", "type": "nominal", "legend": _LEGEND}
    return {
        "data": {"values": [{"entry": name} for name in names]},
        "mark": {"type": "point", "opacity": 0},
        "encoding": {name: {**shared, "scale": {"domain": names, "range": range_}} for name, range_ in ranges.items()},
    }


@cache
def vendored(name: str) -> str:
    """Return a vendored script without its link to a source map, which is not included."""
    script = files("suffice.common.display").joinpath("vendor", name).read_text("utf-8")
    assert "</script" not in script
    return "\n".join(line for line in script.splitlines() if not line.startswith("//# sourceMappingURL="))


@cache
def components() -> str:
    """Return the script that all pages share, as an ES module."""
    return files("suffice.common.display").joinpath("components.js").read_text("utf-8")
