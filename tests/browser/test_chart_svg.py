"""Charts in a real browser: pictures follow the theme and are not cut off, and pages draw theirs by scripts of their own."""

from __future__ import annotations

import re

import numpy as np
import pytest

from suffice import Resampling, certify, diagnose, replay
from suffice.common.display import Chart
from suffice.common.display.svg import theme_colours
from suffice.common.tables import Column, Table
from suffice.evaluation.replay.charts import pareto_chart, stops_chart
from suffice.presentation.data import ReportPart
from suffice.presentation.html import parts_page
from suffice.recordings import bundled_recording
from suffice.verdicts.certificates import Claim
from suffice_papers.semantic import given, semantic_protocol
from suffice_papers.semantic.page import protocol_part
from tests.browser.watching import Watched

QUALITY = "target_sentiment"
QUICK = Resampling(n_resamples=10)


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_picture_follows_the_theme_and_nothing_is_cut_off(scheme, charts, browser, tmp_path):
    def computed(name):
        return (
            "rgb(" + ", ".join(str(int(part, 16)) for part in re.findall("..", theme_colours(scheme)[name][1:])) + ")"
        )

    page = browser.new_page(color_scheme=scheme, viewport={"width": 900, "height": 700})
    for name, spec in charts.items():
        Chart(spec).save(tmp_path / f"{name}.svg")
        page.goto((tmp_path / f"{name}.svg").as_uri())
        fill = "nodes => nodes.map(node => getComputedStyle(node).fill)"
        assert page.locator("svg > rect").evaluate_all(fill) == [computed("--surface")], name
        titles = page.locator(".role-axis-title text").evaluate_all(fill)
        assert {*titles} == {computed("--text")}, name
        assert {*page.locator(".role-axis-label text").evaluate_all(fill)} == {computed("--muted")}, name
        outside = """nodes => nodes.filter(node => { const b = node.getBoundingClientRect(),
          s = document.documentElement.getBoundingClientRect();
          return b.left < s.left - 1 || b.right > s.right + 1 || b.top < s.top - 1 || b.bottom > s.bottom + 1;
        }).map(node => node.textContent)"""
        assert page.locator("text").evaluate_all(outside) == [], name
    page.close()


def test_a_page_of_parts_draws_its_charts_and_asks_for_nothing(charts, browser, tmp_path):
    part = ReportPart(
        title="Figures", charts={name: (dict(spec), f"Caption of {name}.") for name, spec in charts.items()}
    )
    provenance = Table(title="Provenance", columns=(Column("what"),), rows=(("a test",),))
    (tmp_path / "page.html").write_text(parts_page("Figures", [part], provenance), encoding="utf-8")
    watched = Watched(browser, tmp_path / "page.html")
    for name in charts:
        watched.page.locator(f"[data-chart='{name}'] svg").first.wait_for(timeout=120_000)
    assert watched.page.locator("figcaption").all_text_contents() == [f"Caption of {name}." for name in charts]
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    watched.context.close()


def test_a_page_of_parts_without_scripts_has_its_tables(charts, browser, tmp_path):
    table = Table(title="Figures as text", columns=(Column("what"),), rows=(("one",),))
    part = ReportPart(title="Figures", charts={"pareto": (dict(charts["pareto"]), "Caption.")}, tables=(table,))
    (tmp_path / "page.html").write_text(parts_page("Figures", [part], table), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((tmp_path / "page.html").as_uri())
    assert page.locator("#part0 table").is_visible()
    assert page.locator("noscript").first.is_visible()
    context.close()
