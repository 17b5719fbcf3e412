"""Charts as SVG without a browser; `tests/browser/test_chart_svg.py` compares them with what Vega draws."""

from __future__ import annotations

import math
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from suffice.common.display import Chart
from suffice.common.display.scales import NamedScale, linear_scale, nice_ticks
from suffice.evaluation.replay.charts import axis_of, bound_layer, chart_of, legend_entry, point_layer, scale_of

HOSTILE = "<script>alert('x')</script> & \"more\""
SVG = "{http://www.w3.org/2000/svg}"


def spec(layers=(), rows=None, legend=()):
    rows = rows or [{"calls": 1.0, "quality": 40.0, "name": HOSTILE}, {"calls": 3.0, "quality": 55.5, "name": "b"}]
    return chart_of(rows, list(layers), 300, f"Quality {HOSTILE}", list(legend))


def points(**more):
    x, y = axis_of("calls", "calls per question"), axis_of("quality", "F1, points")
    tooltip = [{"field": "name", "title": "policy"}, {"field": "quality", "format": ".1f"}]
    colour = {
        "field": "name",
        "type": "nominal",
        "legend": None,
        **scale_of([HOSTILE, "b"], ["var(--good)", "var(--bad)"]),
    }
    return point_layer({"x": x, "y": y, "color": colour, "tooltip": tooltip, **more}, "datum.quality > 50", (90, 40))


def test_a_picture_is_well_formed_says_what_it_shows_and_asks_for_nothing():
    legend = [legend_entry(HOSTILE, "var(--good)", "circle"), legend_entry("b", "var(--bad)", "line")]
    text = Chart(spec([points(), bound_layer("y", "epsilon", 42.0, "a bound")], legend=legend)).svg()
    tree = ET.fromstring(text)
    assert tree.get("role") == "img"
    named = [tree.find(f".//*[@id='{name}']").text for name in tree.get("aria-labelledby").split()]
    assert named[0] == f"Quality {HOSTILE}"
    assert named[1].startswith(f"Across: calls per question. Up: F1, points. Shown: {HOSTILE}, b.")
    words = [node.text for node in tree.iter(f"{SVG}text")]
    assert {"calls per question", "F1, points", "a bound", HOSTILE, "b", "40", "50"} <= {*words}
    tooltips = [node.text for node in tree.iter(f"{SVG}title")]
    assert f"policy: {HOSTILE}; quality: 40.0" in tooltips
    assert "<script" not in text
    assert "http" not in text.replace("http://www.w3.org/2000/svg", "")
    assert text == Chart(spec([points(), bound_layer("y", "epsilon", 42.0, "a bound")], legend=legend)).svg()


def test_a_chart_saved_as_svg_is_that_picture(tmp_path):
    chart = Chart(spec([points()]))
    chart.save(tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").read_text("utf-8") == chart.svg()


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        ({"mark": "arc", "encoding": {}}, "mark 'arc' is not drawn"),
        ({**points(), "transform": [{"bin": True}]}, "transform is not drawn here: .'bin'"),
        ({**points(), "transform": [{"filter": "datum.quality in [1]"}]}, "test 'datum.quality in .1.' is not known"),
        ({**points(), "mark": {"type": "point", "shape": "star"}}, "shape 'star' is not drawn"),
    ],
)
def test_what_cannot_be_drawn_is_an_error_and_not_left_out(layer, message):
    with pytest.raises(ValueError, match=message):
        Chart(spec([layer])).svg()
    with pytest.raises(ValueError, match="no layers"):
        Chart(spec()).svg()


def test_a_line_is_broken_where_a_value_is_missing_and_a_missing_point_is_not_drawn():
    rows = [{"calls": float(c), "quality": math.nan if c == 2 else 10.0 * c, "name": "b"} for c in range(5)]
    line = {"mark": {"type": "line", "point": True}, "encoding": {**points()["encoding"]}}
    tree = ET.fromstring(Chart(spec([line], rows)).svg())
    paths = [node.get("d") for node in tree.iter(f"{SVG}path")]
    assert [path.count("L") for path in paths if not path.endswith("Z")] == [1, 1]
    assert sum(path.endswith("Z") for path in paths) == 4


def test_ticks_are_round_lie_inside_and_are_about_as_many_as_asked_for():
    for low, high in ((0, 1), (-3.7, 12.2), (0.001, 0.0042), (99, 101), (-5e6, 5e6)):
        for count in (3, 6, 10):
            ticks = nice_ticks(low, high, count)
            assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
            assert count / 2 - 1 <= len(ticks) <= 2 * count + 1
            gaps = {round((b - a) / (high - low), 9) for a, b in pairwise(ticks)}
            assert len(gaps) == 1
    assert nice_ticks(2, 2, 5) == [2]


def test_one_value_alone_and_no_value_have_a_scale():
    scale = linear_scale([4.0], (0, 100), domain=None, zero=False, padding=16, nice=False)
    assert scale(4.0) == 50
    assert linear_scale([], (0, 100), domain=None, zero=True, padding=0, nice=True)(1) == 100
    assert NamedScale(["a"], 0, 100, bands=False)("a") == NamedScale(["a"], 0, 100, bands=True)("a") == 50
