"""The page of the protocol in a real browser: its charts are drawn, and nothing is fetched."""

from __future__ import annotations

from suffice.recordings import write_recording
from tests.browser.watching import Watched
from tests.support.cli_tools import cli
from tests.support.protocol_tools import drafts


def test_the_protocol_draws_its_three_charts_and_asks_for_nothing(browser, tmp_path):
    recording = drafts(40, approve=0.05)
    write_recording(tmp_path / "r.parquet", recording.table, recording.metadata)
    page = tmp_path / "page.html"
    assert cli("paper", "protocol", tmp_path / "r.parquet", "-o", page, "--set=resamples=50").code == 0
    watched = Watched(browser, page)
    for name in ("frontier", "distance", "saved"):
        drawn = watched.page.locator(f"[data-chart=protocol-{name}] svg")
        drawn.first.wait_for(timeout=120_000)
        assert drawn.count() == 1
    assert watched.problems == []
    assert [url for url in watched.requests if not url.startswith(("file:", "data:"))] == []
    assert watched.page.locator("text=Table 1. Policies").first.is_visible()
    watched.context.close()
