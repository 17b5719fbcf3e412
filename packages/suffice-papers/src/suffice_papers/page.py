"""The tables and figures of a paper as one page."""

from __future__ import annotations

from suffice.presentation.data import ReportPart
from suffice.presentation.html import parts_page
from suffice_papers.paper import Paper


def paper_page(paper: Paper) -> str:
    """Return a paper's page as one HTML file that needs no network: the result, the figures, and every table."""
    origin, *tables = paper.parts
    parts = [ReportPart(title="The result", sentences=(paper.headline,), tables=(paper.summary,))]
    if paper.figures:
        charts = {figure.name: (dict(figure.spec), figure.caption) for figure in paper.figures}
        parts.append(ReportPart(title="Figures", charts=charts))
    parts += [ReportPart(title=_heading(table.title), tables=(table,)) for table in tables]
    return parts_page(paper.title, parts, origin)


def _heading(title: str) -> str:
    head, colon, _ = title.partition(": ")
    return head if colon else title.partition(". ")[0]
