"""The protocol as a page: its figures and tables first, then everything that a report shows of a recording."""

from __future__ import annotations

from dataclasses import replace

from suffice.papers.semantic.charts import distance_chart, frontier_chart, saved_chart
from suffice.papers.semantic.policies import MAIN
from suffice.papers.semantic.protocol import SemanticProtocol
from suffice.reports.data import Report, Settings, make_report
from suffice.reports.html import render_html
from suffice.reports.part import ReportPart

__all__ = ["protocol_page", "protocol_part", "protocol_report"]


def protocol_part(found: SemanticProtocol) -> ReportPart:
    """Return the protocol as a part of a page."""
    tables = {table.title: table for table in found.tables()}
    first, chance, second, tests, margins, rounds, conjecture, *rest = tables.values()
    metric, compared = found.drafts.metric, found.compared
    charts = {
        "protocol-frontier": (
            frontier_chart(found.replayed, compared, metric),
            (
                "The line joins the fixed numbers of rounds. A policy is worth having where it lies above that line. Bars are "
                f"{100 * compared.resampling.level:g} % intervals of the paired difference to {compared.baseline}."
            ),
        ),
        "protocol-distance": (
            distance_chart(found.convergence, found.tuned.eps),
            (
                f"Mean distance of each draft to the one before. {found.convergence.verdict.capitalize()}; the distance never "
                f"increases in {100 * found.convergence.monotone:.0f} % of {found.convergence.n_usable} trajectories."
            ),
        ),
    }
    share = saved_chart(found.replayed, compared)
    if share is not None:
        charts["protocol-saved"] = (share, "Operational tokens, judges included where a policy must ask them.")
    return ReportPart(
        title="Semantic early stopping",
        sentences=(*found.headlines(), found.tuned.sentence()),
        charts=charts,
        tables=(first, chance),
        folded={
            "Ablations": (second,),
            "Tests and margins": (tests, margins),
            "Do drafts converge?": (rounds, conjecture),
            "Claims of the theory, dev questions, and how this was made": tuple(rest),
        },
    )


def protocol_report(found: SemanticProtocol, name: str) -> Report:
    """Return a report on the protocol's recording whose first part is the protocol."""
    policies = [found.replayed.policies[label] for label in MAIN if label in found.replayed.policies]
    settings = Settings(
        metrics=(found.drafts.metric,),
        baseline=found.compared.baseline,
        resampling=found.compared.resampling,
        margins=tuple(next(iter(found.compared.margins.values()))),
        cost=found.result.cost,
        ledger=found.result.ledger,
        command=found.command,
    )
    report = make_report({name: found.drafts.prepared.recording}, policies, settings=settings)
    return replace(report, cells=tuple(replace(cell, parts=(protocol_part(found),)) for cell in report.cells))


def protocol_page(found: SemanticProtocol, name: str) -> str:
    """Return the page: one file that needs no network."""
    return render_html(protocol_report(found, name))
