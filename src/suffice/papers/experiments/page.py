"""The tables of an experiment as one page."""

from __future__ import annotations

from suffice.papers.paper import Paper
from suffice.reports.part import ReportPart
from suffice.reports.parts_page import parts_page

__all__ = ["experiment_page"]

_FIRST = 2  # tables: how it was made, and the cells


def experiment_page(paper: Paper) -> str:
    """Return the page: one file that needs no network."""
    origin, cells, *tables = paper.parts
    parts = [ReportPart(title="The result", sentences=(paper.headline,), tables=(paper.summary, cells))]
    parts += [ReportPart(title=_heading(table.title), tables=(table,)) for table in tables]
    return parts_page(paper.title, parts, origin)


def _heading(title: str) -> str:
    head, colon, _ = title.partition(": ")
    return head if colon else title.partition(". ")[0]
