"""A chart of the report on its own: in a notebook, or as a page that needs no network."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from suffice.common.display.svg import chart_svg
from suffice.common.display.themes import colour_of
from suffice.common.files import write_file

__all__ = ["VENDOR", "Chart", "components", "vendored"]

VENDOR = ("vega.min.js", "vega-lite.min.js", "vega-embed.min.js")
"""The scripts that draw a chart, in the order in which a page loads them."""

_WIDTH = 560
_VEGA_VERSION = re.compile(r"/v\d+\.json$")


@dataclass(frozen=True, slots=True)
class Chart:
    """A Vega-Lite chart.

    Attributes:
        spec: The specification as the report has it, for a page that defines its colours and draws its legend.
    """

    spec: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the specification on its own: with colours, a legend and a width."""
        legend = [entry["name"] for entry in self.spec.get("usermeta", {}).get("legend", ())]
        axis = {"titleFontWeight": "normal", "domainColor": "#a2a9b2", "tickColor": "#a2a9b2"}
        config = {"view": {"stroke": None}, "axis": axis, "background": "white"}
        shown: dict[str, Any] = _standalone({k: v for k, v in self.spec.items() if k != "usermeta"}, legend)
        return {**shown, "width": _WIDTH, "config": config}

    def svg(self) -> str:
        """Return the chart as an SVG document, for papers and pages: its text is text, and it follows light and dark."""
        return chart_svg(self.spec)

    def save(self, path: str | Path) -> None:
        """Write a picture (``.svg``), or a page that needs no network and shows values under the pointer.

        Raises:
            DataError: It cannot be written there.
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
        """Return the chart in the formats of notebooks: those of Vega-Lite 6, and of 5, which draws it alike."""
        del include, exclude
        spec = self.to_dict()
        older = {**spec, "$schema": _VEGA_VERSION.sub("/v5.json", spec["$schema"])}
        return {
            "application/vnd.vegalite.v6+json": spec,
            "application/vnd.vegalite.v5+json": older,
            "text/plain": f"Chart: {spec['description']}. Where it is not drawn, .save('chart.html') makes a page of it.",
        }


def _standalone(value: Any, legend: list[str]) -> Any:
    """Return a specification without the page's variables, and with legends in the place of the page's."""
    if isinstance(value, str):
        return colour_of(value, "light")
    if isinstance(value, list):
        return [_standalone(item, legend) for item in value]
    if not isinstance(value, Mapping):
        return value
    inner = {key: _standalone(item, legend) for key, item in value.items()}
    if inner.get("legend", value) is None and inner.get("type") in ("nominal", "ordinal"):
        inner["legend"] = {"title": None, "orient": "top", "columns": 3, "values": legend}
    return inner


@cache
def vendored(name: str) -> str:
    """Return a vendored script without its pointer to a source map, which is not there."""
    script = files("suffice.common.display").joinpath("vendor", name).read_text("utf-8")
    assert "</script" not in script
    return "\n".join(line for line in script.splitlines() if not line.startswith("//# sourceMappingURL="))


@cache
def components() -> str:
    """Return the script that all pages share, an ES module."""
    return files("suffice.common.display").joinpath("components.js").read_text("utf-8")
