"""The page of a recording: its facts, columns, and the quality and cost of fixed budgets."""

from __future__ import annotations

from starlette.responses import Response

from suffice.common.tables import Column, Table, facts_table
from suffice.errors import DataError
from suffice_server.studio.counting import flat_facts
from suffice_server.studio.view import Tab, View, ViewModule

RECORDINGS = ("recording", "log")
"""Kinds of items that contain rounds."""


def recording_page(view: View) -> Response:
    """Return the page of one recording."""
    item = view.item(*RECORDINGS)
    browsed = view.folder.recording(item)
    recording = browsed.recording
    facts = recording.tables()[0]
    notes = []
    try:
        budgets = [browsed.budgets]
    except DataError as error:
        budgets, notes = [], [str(error)]
    if recording.exchangeable:
        notes.append("These are independent samples: their order means nothing, and is shown as it is stored.")
    known = {name: value for name, value in recording.metadata.items() if name not in ("format", "version")}
    origin = facts_table("Where it comes from", flat_facts(known))
    columns = Table(
        title="Columns",
        columns=(Column("column"), Column("kind"), Column("type"), Column("values", ",d")),
        rows=tuple(
            (
                field.name,
                kind,
                str(field.type),
                recording.table.num_rows - recording.table.column(field.name).null_count,
            )
            for kind in ("identity", "happened", "signal", "metric", "cost", "label", "provenance")
            for field in recording.table.schema
            if field.name in recording.names(kind)
        ),
    )
    return view.page(
        "recording.html",
        item.name,
        item=item,
        facts=facts,
        budgets=budgets,
        columns=columns,
        origin=origin,
        notes=notes,
    )


RECORDING_VIEW = ViewModule(
    pages=[("GET", "/recording/{id}", recording_page)],
    tabs=[Tab(title="Overview", path="/recording/{id}", kinds=RECORDINGS, place=0)],
)
