"""A part of a report: sentences, charts and tables under one heading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from suffice.common.tables import Table
from suffice.verdicts.decisions import Advice


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportPart:
    """A part that another evaluation adds to a page, before the parts that every report has.

    Attributes:
        title: Its heading.
        sentences: Its results, the most important first.
        charts: Vega-Lite specifications by name, each with its caption.
        tables: Its tables.
        folded: Further tables by heading, initially collapsed.
    """

    title: str
    sentences: tuple[str, ...] = ()
    charts: Mapping[str, tuple[dict[str, Any], str]] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    folded: Mapping[str, tuple[Table, ...]] = field(default_factory=dict)

    def listed(self) -> list[Table]:
        """Return all its tables."""
        return [*self.tables, *(table for tables in self.folded.values() for table in tables)]


def advice_part(advice: Advice) -> ReportPart:
    """Return the part with the advice on changing the loop."""
    short, every, *twins = advice.tables()
    # The last column shows intervals as text, for pages without charts.
    short, every = (
        replace(table, columns=table.columns[:-1], rows=tuple(row[:-1] for row in table.rows))
        for table in (short, every)
    )
    caption = "Each candidate with its 95 % interval, on questions that neither chose nor fitted it."
    return ReportPart(
        title="Should this loop change?",
        sentences=(advice.sentence,),
        charts={"advice": (dict(advice.plot().spec), caption)},
        tables=(short,),
        folded={"Every candidate": (every, *twins)},
    )
