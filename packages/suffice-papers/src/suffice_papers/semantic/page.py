"""The HTML page of the protocol: its figures and tables, then the usual report on the recording."""

from __future__ import annotations

from dataclasses import replace

from suffice.presentation.data import Report, ReportPart, Settings, make_report
from suffice.presentation.html import render_html
from suffice_papers.semantic.charts import distance_chart, frontier_chart, saved_chart
from suffice_papers.semantic.policies import MAIN
from suffice_papers.semantic.protocol import SemanticProtocol


def protocol_part(protocol: SemanticProtocol) -> ReportPart:
    """Return the protocol as a part of a page."""
    first, chance, second, tests, margins, rounds, conjecture, *rest = protocol.tables()
    compared = protocol.compared
    charts = {
        "protocol-frontier": (
            frontier_chart(compared),
            (
                "The line joins the fixed numbers of rounds. A policy is worth having where it lies above that line. Bars are "
                f"{100 * compared.resampling.level:g} % intervals of the paired difference to {compared.baseline}."
            ),
        ),
        "protocol-distance": (
            distance_chart(protocol.convergence, protocol.tuned.eps),
            (
                f"Mean distance of each draft to the one before. {protocol.convergence.verdict.capitalize()}; the distance never "
                f"increases in {100 * protocol.convergence.monotone:.0f} % of {protocol.convergence.n_usable} trajectories."
            ),
        ),
    }
    share = saved_chart(compared)
    if share is not None:
        charts["protocol-saved"] = (share, "Operational tokens, judges included where a policy must ask them.")
    return ReportPart(
        title="Semantic early stopping",
        sentences=(*protocol.headlines(), protocol.tuned.sentence()),
        charts=charts,
        tables=(first, chance),
        folded={
            "Ablations": (second,),
            "Tests and margins": (tests, margins),
            "Do drafts converge?": (rounds, conjecture),
            "Claims of the theory, dev questions, and how this was made": tuple(rest),
        },
    )


def protocol_report(protocol: SemanticProtocol, name: str) -> Report:
    """Build a report on the protocol's recording, with the protocol as its first part."""
    policies = [protocol.replayed.policies[label] for label in MAIN if label in protocol.replayed.policies]
    settings = Settings(
        metrics=(protocol.drafts.metric,),
        baseline=protocol.compared.baseline,
        resampling=protocol.compared.resampling,
        margins=tuple(next(iter(protocol.compared.margins.values()))),
        cost=protocol.result.cost,
        ledger=protocol.result.ledger,
        command=protocol.command,
    )
    report = make_report({name: protocol.drafts.prepared.recording}, policies, settings=settings)
    return replace(report, cells=tuple(replace(cell, parts=(protocol_part(protocol),)) for cell in report.cells))


def protocol_page(protocol: SemanticProtocol, name: str) -> str:
    """Render the page, one HTML file that needs no network."""
    return render_html(protocol_report(protocol, name))
