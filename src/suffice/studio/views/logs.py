"""A log of a deployed policy, live: what it counts by itself."""

from __future__ import annotations

from starlette.responses import Response

from suffice.studio.counting import audits_table, deciders_table, reasons_table, stops_over_time
from suffice.studio.view import Tab, View, ViewModule

__all__ = ["LOG_VIEW", "log_page"]


def log_page(view: View) -> Response:
    """Return the page of one log."""
    item = view.item("log")
    log = view.folder.recording(item).recording
    names = {policy.digest: policy.name for policy in view.of_kind("policy")}
    return view.page(
        "log.html",
        f"Log {item.name}",
        item=item,
        deciders=deciders_table(log, names),
        tables=[reasons_table(log), audits_table(log)],
        chart=stops_over_time(log).spec,
    )


LOG_VIEW = ViewModule(
    pages=[("GET", "/log/{id}", log_page)],
    tabs=[Tab(title="Log", path="/log/{id}", kinds=("log",), place=-10)],
)
