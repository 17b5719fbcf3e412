"""What a notebook shows of a result, in a real browser: its style sheet stays in force beside that of JupyterLab."""

from __future__ import annotations

import pytest

from suffice import replay
from suffice.evaluation.statistics import Resampling
from suffice.recordings import bundled_recording

JUPYTERLAB = """
.jp-RenderedHTMLCommon table { border-collapse: collapse; table-layout: fixed; margin-left: auto; margin-right: auto; }
.jp-RenderedHTMLCommon td, .jp-RenderedHTMLCommon th, .jp-RenderedHTMLCommon tr {
  vertical-align: middle; padding: 0.5em; line-height: normal; white-space: normal; max-width: none; border: none; }
.jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) td, .jp-RenderedHTMLCommon:not(.jp-RenderedMarkdown) th {
  text-align: right; }
"""
"""What JupyterLab says of every table."""
OVERFLOWING = """cells => cells.filter(cell => {
  const text = document.createRange(); text.selectNodeContents(cell);
  return text.getBoundingClientRect().right > cell.getBoundingClientRect().right + 1;
}).map(cell => cell.textContent)"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tables_in_jupyterlab_are_aligned_and_columns_do_not_overlap(browser, scheme):
    recording = bundled_recording("self_refine_dv3")
    settings = {"metrics": ["target_sentiment"], "resampling": Resampling(n_resamples=20)}
    shown = replay(recording, ["semantic(0.03)"], **settings)._repr_html_()
    page = browser.new_page(color_scheme=scheme)
    colours = {"light": "background: white; color: black", "dark": "background: #111; color: #eee"}[scheme]
    page.set_content(
        f"<head><style>{JUPYTERLAB}</style></head>"
        f"<body style='width: 700px; {colours}'><div class='jp-RenderedHTMLCommon'>{shown}</div></body>"
    )
    assert page.locator("tbody th").first.evaluate("cell => getComputedStyle(cell).textAlign") == "left"
    assert page.locator("tbody td.num").first.evaluate("cell => getComputedStyle(cell).textAlign") == "right"
    assert page.locator(".suffice > .scroll td, .suffice > .scroll th").evaluate_all(OVERFLOWING) == []
    assert page.locator("tbody th").first.evaluate("cell => getComputedStyle(cell).color") == (
        "rgb(0, 0, 0)" if scheme == "light" else "rgb(238, 238, 238)"
    )
    page.close()
