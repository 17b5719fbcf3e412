"""A part of a report: sentences, charts and tables under one heading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suffice.tables import Table

__all__ = ["ReportPart"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part of a page that another evaluation adds, before the parts that every report has.

    Attributes:
        title: Its heading.
        sentences: Its results, the most important first.
        charts: Vega-Lite specifications by name, each with its caption.
        tables: Its tables.
        folded: Further tables by heading, folded away at first.
    """

    title: str
    sentences: tuple[str, ...] = ()
    charts: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    folded: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)

    def listed(self) -> list[Table]:
        """Return all its tables."""
        return [*self.tables, *(table for tables in self.folded.values() for table in tables)]
