"""Sentences, tables and pictures under headings as one page that needs no network and no scripts."""

from __future__ import annotations

from collections.abc import Sequence

from suffice._version import __version__
from suffice.common.tables import Table
from suffice.presentation.html import environment, page_style
from suffice.presentation.part import ReportPart

__all__ = ["parts_page"]


def parts_page(title: str, parts: Sequence[ReportPart], provenance: Table) -> str:
    """Return a page of parts, each a section of its own; charts are pictures in it.

    Args:
        title: Title of the page.
        parts: Its sections.
        provenance: How it was made.
    """
    template = environment().get_template("parts.html")
    page: str = template.render(
        title=title, parts=parts, provenance=provenance, version=__version__, style=page_style()
    )
    return page.lstrip()
