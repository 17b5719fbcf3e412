"""Charts as SVG in a real browser: their marks and ticks are where Vega puts them, and their colours follow the theme."""

from __future__ import annotations

import re

import numpy as np
import pytest

from suffice import Resampling, certify, diagnose, replay
from suffice.common.display import Chart
from suffice.common.display.themes import theme_colours
from suffice.common.tables import Column, Table
from suffice.evaluation.replay.charts import pareto_chart, stops_chart
from suffice.presentation.part import ReportPart
from suffice.presentation.parts_page import parts_page
from suffice.recordings import bundled_recording
from suffice.verdicts.certificates import Claim
from suffice_papers.semantic import given, semantic_protocol
from suffice_papers.semantic.page import protocol_part

QUALITY = "target_sentiment"
QUICK = Resampling(n_resamples=10)
VEGA_POINTS = (
    """nodes => nodes.map(node => node.getAttribute("transform").match(/-?[\\d.]+/g).slice(0, 2).map(Number))"""
)
OWN_POINTS = """nodes => nodes.map(node => { const box = node.getBBox();
  return [box.x + box.width / 2, box.y + box.height / 2]; })"""
BOXES = "nodes => nodes.map(node => { const b = node.getBBox(); return [b.x, b.y, b.width, b.height]; })"


@pytest.fixture(scope="module")
def charts():
    whole = bundled_recording("self_refine_dv3")
    recording = whole.select(np.arange(whole.shape[0]) < 40)
    result = replay(recording, ["semantic(0.03)", "fixed_k(2)"], metrics=[QUALITY], resampling=QUICK)
    protocol = semantic_protocol(recording, given(0.03, 2), metric=QUALITY, resampling=QUICK)
    family = certify(recording, ["fixed_k(2)", "fixed_k(3)"], Claim(epsilon=0.3, metric=QUALITY)).plot().spec
    return {
        "pareto": pareto_chart(result, "calls"),
        "stops": stops_chart(result, [row for row in result.rows if row.kind == "fixed"]),
        "family": family,
        "signals": diagnose(recording, metric=QUALITY, resampling=QUICK).plot().spec,
        **{name: spec for name, (spec, _) in protocol_part(protocol).charts.items()},
    }


VEGA_BARS = ".role-mark.mark-rect > path"


def texts(page, selector):
    return {text.replace("\u2212", "-") for text in page.locator(selector).all_text_contents() if text}


def ordered(places):
    return sorted(places, key=lambda place: [round(number) for number in place])


def test_marks_and_ticks_are_where_vega_draws_them(charts, browser, tmp_path):
    Chart(charts["pareto"]).save(tmp_path / "vega.html")
    vega, own = browser.new_page(), browser.new_page()
    vega.goto((tmp_path / "vega.html").as_uri())
    for name, spec in charts.items():
        vega.evaluate(
            "async spec => { await vegaEmbed('#chart', spec, { ast: true, renderer: 'svg' }); }", Chart(spec).to_dict()
        )
        own.set_content(Chart(spec).svg())
        theirs = vega.locator(".role-mark.mark-symbol > path").evaluate_all(VEGA_POINTS)
        points = own.locator("g > path[d$=Z]").evaluate_all(OWN_POINTS)
        assert len(points) == len(theirs), name
        np.testing.assert_allclose(ordered(points), ordered(theirs), atol=0.2, err_msg=name)
        bars = [page.locator(selector).evaluate_all(BOXES) for page, selector in ((own, "g > rect"), (vega, VEGA_BARS))]
        np.testing.assert_allclose(*map(ordered, bars), atol=0.2, err_msg=name)
        assert texts(vega, ".role-axis-label text") <= texts(own, "g > text"), name
    vega.close()
    own.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_has_the_colours_of_the_theme_its_text_is_text_and_nothing_is_cut_off(
    scheme, charts, browser, tmp_path
):
    def computed(colour):
        return "rgb(" + ", ".join(str(int(part, 16)) for part in re.findall("..", colour[1:])) + ")"

    colours = theme_colours(scheme)
    page = browser.new_page(color_scheme=scheme, viewport={"width": 900, "height": 700})
    for name, spec in charts.items():
        Chart(spec).save(tmp_path / f"{name}.svg")
        page.goto((tmp_path / f"{name}.svg").as_uri())
        fill = "node => getComputedStyle(node).fill"
        assert page.locator("svg > rect").evaluate(fill) == computed(colours["--surface"]), name
        assert (
            page.locator("svg > text").first.evaluate(fill) == computed(colours["--text"])
            if name != "signals"
            else True
        )
        outside = """nodes => nodes.filter(node => { const b = node.getBoundingClientRect(),
          s = document.documentElement.getBoundingClientRect();
          return b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1;
        }).map(node => node.textContent)"""
        assert page.locator("text").evaluate_all(outside) == [], name
    page.close()


def test_a_page_without_scripts_shows_its_charts_as_pictures_and_asks_for_nothing(charts, browser, tmp_path):
    part = ReportPart(
        title="Figures", charts={name: (dict(spec), f"Caption of {name}.") for name, spec in charts.items()}
    )
    provenance = Table(title="Provenance", columns=(Column("what"),), rows=(("a test",),))
    (tmp_path / "page.html").write_text(parts_page("Figures", [part], provenance), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False, color_scheme="dark")
    page, requests = context.new_page(), []
    page.on("request", lambda request: requests.append(request.url))
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("figure svg[role=img]").count() == len(charts)
    assert page.locator("figcaption").all_text_contents() == [f"Caption of {name}." for name in charts]
    boxes = [page.locator("figure svg").nth(place).bounding_box() for place in range(len(charts))]
    assert all(box["width"] > 500 and box["height"] > 100 for box in boxes)
    assert [url for url in requests if not url.startswith("data:")] == [(tmp_path / "page.html").as_uri()]
    context.close()
