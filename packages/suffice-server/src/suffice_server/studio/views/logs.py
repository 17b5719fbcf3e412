"""The page of a log: the result of watching it, and counts of its stops and audits."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from suffice.common.files import quoted
from suffice.errors import SufficeError
from suffice.verdicts.watches import WatchResult, watch
from suffice_server.studio.counting import audits_table, deciders_table, reasons_table, stops_over_time
from suffice_server.studio.folder import Item
from suffice_server.studio.view import Tab, View, ViewModule

_STATUS_TAGS = {
    "keep": "good",
    "not enough audits": "",
    **dict.fromkeys(("missing golds", "lost audits", "recalibrate", "re-certify", "fall back"), "bad"),
}


def log_page(view: View) -> Response:
    """Return the page of one log."""
    item = view.item("log")
    log = view.folder.recording(item).recording
    policies = sorted(view.of_kind("policy"), key=lambda one: not one.state)  # those with a certificate first
    names: dict[str, str] = {}
    for policy in policies:
        names[policy.digest] = f"{names[policy.digest]}, {policy.name}" if policy.digest in names else policy.name
    return view.page(
        "log.html",
        f"Log {item.name}",
        item=item,
        policies=policies,
        recordings=view.of_kind("recording"),
        watched=_watched(view, item, policies),
        deciders=deciders_table(log, names),
        tables=[reasons_table(log), audits_table(log)],
        stops=stops_over_time(log).spec,
        charts=True,
    )


def _watched(view: View, item: Item, policies: list[Item]) -> dict[str, Any]:
    """Watch the log with the chosen policy; if no policy is chosen, use the policy in this folder that decided the log."""
    chosen = view.value("policy") or next((one.id for one in policies if one.digest in item.deciders), "")
    tune = view.value("tune")
    watched: dict[str, Any] = {"policy": chosen, "tune": tune, "result": None, "problem": "", "next": "", "sign": ""}
    if not chosen:
        return watched
    try:
        policy = view.item("policy", key=chosen)
        things = [item, policy, *([view.item("recording", key=tune)] if tune else [])]
        result = view.folder.once(lambda: _watch(view, *things), *things, name="watch")
    except SufficeError as error:
        return watched | {"problem": str(error)}
    then = f"suffice watch {quoted(item.path)} --policy {quoted(policy.path)}"
    then += f" --tune {quoted(things[-1].path)}" if tune else ""
    then += " --fallback full-width.json --suspend" if result.rang else ""
    return watched | {"result": result, "next": then, "sign": _STATUS_TAGS[result.status]}


def _watch(view: View, log: Item, policy: Item, tune: Item | None = None) -> WatchResult:
    before = None if tune is None else view.folder.recording(tune).recording
    return watch(view.folder.recording(log).recording, view.folder.policy(policy), tune=before)


LOG_VIEW = ViewModule(
    pages=[("GET", "/log/{id}", log_page)],
    tabs=[Tab(title="Watch", path="/log/{id}", kinds=("log",), place=-10)],
)
