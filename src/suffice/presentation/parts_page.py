"""Render sentences, tables and charts under headings as one page that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

from suffice._version import __version__
from suffice.common.display.chart import VENDOR, vendored
from suffice.common.results import jsonable
from suffice.common.tables import Table
from suffice.presentation.html import digest, environment, page_script, page_style
from suffice.presentation.packing import json_in_html
from suffice.presentation.part import ReportPart


def parts_page(title: str, parts: Sequence[ReportPart], provenance: Table) -> str:
    """Return a page with a section for each part; scripts in it draw the charts.

    Args:
        title: Title of the page.
        parts: Its sections.
        provenance: A table with the page's origin.
    """
    charts = {name: spec for part in parts for name, (spec, _) in part.charts.items()}
    scripts = [*map(vendored, VENDOR), page_script("parts.js")] if charts else []
    page: str = (
        environment()
        .get_template("parts.html")
        .render(
            title=title,
            parts=parts,
            provenance=provenance,
            version=__version__,
            style=page_style(),
            scripts=scripts,
            hashes=[digest(script) for script in scripts],
            charts=json_in_html(jsonable(charts)),
        )
    )
    return page.lstrip()
