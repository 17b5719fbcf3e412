"""Charts as SVG files, drawn by Vega without a browser."""

from __future__ import annotations

import math
import re
import sys
from xml.etree import ElementTree as ET

import pytest

from suffice.common.display import Chart
from suffice.common.display.svg import theme_colours
from suffice.errors import MissingExtraError
from suffice.evaluation.replay.charts import axis_of, bound_layer, chart_of, legend_entry, point_layer, scale_of
from tests.support.cli_tools import cli

HOSTILE = "<script>alert('x')</script> & \"more\""
SVG = "{http://www.w3.org/2000/svg}"
LEGEND = [legend_entry(HOSTILE, "var(--good)", "circle", hollow=True), legend_entry("b", "var(--bad)", "line")]


def spec(layers=(), rows=None, legend=()):
    rows = rows or [{"calls": 1.0, "quality": 40.0, "name": HOSTILE}, {"calls": 3.0, "quality": 55.5, "name": "b"}]
    return chart_of(rows, list(layers), 300, f"Quality {HOSTILE}", list(legend))


def points():
    x, y = axis_of("calls", "calls per question"), axis_of("quality", "F1, points")
    tooltip = [{"field": "name", "title": "policy"}, {"field": "quality", "format": ".1f"}]
    scale = scale_of([HOSTILE, "b"], ["var(--good)", "var(--bad)"])
    colour = {"field": "name", "type": "nominal", "legend": None, **scale}
    return point_layer({"x": x, "y": y, "color": colour, "tooltip": tooltip}, "datum.quality > 50", (90, 40))


@pytest.fixture(scope="module")
def picture():
    chart = Chart(spec([points(), bound_layer("y", "epsilon", 42.0, "a bound")], legend=LEGEND))
    return chart, chart.svg()


def test_a_picture_says_what_it_shows_and_asks_for_nothing(picture):
    tree = ET.fromstring(picture[1])
    (name,) = tree.get("aria-labelledby").split()
    assert tree.find(f".//*[@id='{name}']").text == f"Quality {HOSTILE}"
    words = [node.text or "".join(node.itertext()) for node in tree.iter(f"{SVG}text")]
    assert {"calls per question", "F1, points", "a bound", HOSTILE, "b", "40", "50"} <= {*words}
    assert "<script" not in picture[1]
    assert "http" not in picture[1].replace("http://www.w3.org/2000/svg", "")


def test_a_mark_with_a_tooltip_has_its_values_as_title(picture):
    titles = [title.text for title in ET.fromstring(picture[1]).findall(f".//{SVG}path/{SVG}title")]
    assert titles == [f"policy: {HOSTILE}; quality: 40.0", "policy: b; quality: 55.5"]


def test_every_colour_of_a_picture_has_one_for_the_dark(picture):
    light, dark = theme_colours("light"), theme_colours("dark")
    used = {*re.findall(r'(?:fill|stroke)="(#\w+)"', picture[1])}
    assert {light[name] for name in ("--good", "--bad", "--surface", "--muted", "--line", "--text")} == used
    for name in ("--good", "--bad", "--surface", "--text"):
        assert f'[fill="{light[name]}"]{{fill:{dark[name]}}}' in picture[1]


def test_a_legend_shows_each_entry_with_its_colour_and_shape(picture):
    light = theme_colours("light")
    symbols = [
        (node.get("fill"), node.get("stroke"))
        for group in ET.fromstring(picture[1]).iter(f"{SVG}g")
        if "role-legend-symbol" in group.get("class", "")
        for node in group.iter(f"{SVG}path")
    ]
    assert symbols == [(light["--surface"], light["--good"]), (light["--bad"], light["--bad"])]


def test_a_chart_saved_as_svg_is_that_picture(picture, tmp_path):
    chart, text = picture
    chart.save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text("utf-8") == text


def test_a_line_is_broken_where_a_value_is_missing():
    rows = [{"calls": float(c), "quality": math.nan if c == 2 else 10.0 * c, "name": "b"} for c in range(5)]
    line = {"mark": {"type": "line", "point": True}, "encoding": points()["encoding"]}
    tree = ET.fromstring(Chart(spec([line], rows)).svg())
    (line,), symbols = (
        [path for group in tree.iter(f"{SVG}g") if kind in group.get("class", "") for path in group.iter(f"{SVG}path")]
        for kind in ("mark-line", "mark-symbol")
    )
    assert line.get("d").count("M") == 2
    assert len(symbols) == 4


def test_a_picture_has_the_width_that_is_asked_for():
    widths = [float(ET.fromstring(Chart(spec([points()])).svg(width=width)).get("width")) for width in (300, 500)]
    assert widths[1] - widths[0] == pytest.approx(200, abs=2)


def test_what_vega_does_not_draw_is_an_error():
    with pytest.raises(ValueError, match="failed"):
        Chart(spec([{"mark": "hexagon", "encoding": {}}])).svg()


@pytest.mark.parametrize(
    "command",
    [
        ("watch", "no-log", "--policy", "no-policy.json", "--plot", "loss.svg"),
        ("paper", "protocol", "no-recording", "--set=figures=figures"),
        ("paper", "tasr", "no-folder", "--set=figures=figures"),
        ("demo", "watch", "--out", "demo", "--set=markdown=page.md"),
    ],
)
def test_a_command_that_draws_asks_for_the_extra_before_it_reads(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    refused = cli(*command, code=1)
    assert "pip install '.[charts]'" in refused.error
    assert [*tmp_path.iterdir()] == []


def test_a_page_needs_no_extra(picture, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)
    picture[0].save(tmp_path / "chart.html")
    assert "vegaEmbed" in (tmp_path / "chart.html").read_text("utf-8")
    with pytest.raises(MissingExtraError, match="charts"):
        picture[0].save(tmp_path / "chart.svg")
