"""A policy: what decides, what it rests on, its certificate, and the lines to paste."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from suffice.certificates import Certificate
from suffice.display import facts_table
from suffice.frameworks import frameworks, snippet
from suffice.frameworks.lines import own_lines
from suffice.studio.view import Tab, View, ViewModule
from suffice.tables import Column, Table, counted

__all__ = ["POLICY_VIEW", "policy_page"]


def policy_page(view: View) -> Response:
    """Return the page of one policy."""
    item = view.item("policy")
    policy = view.folder.policy(item)
    certificate = Certificate.of(policy)
    calibrators = Table.of(
        "Calibrators",
        policy.calibrators,
        {
            Column("gives"): "output",
            Column("from"): "signal",
            Column("fitted to"): "target",
            Column("method"): "method",
            Column("rounds"): lambda one: ", ".join(map(str, sorted(one.rounds_fitted or ()))),
            Column("rows", ",d"): lambda one: sum((one.rounds_fitted or {}).values()),
        },
    )
    lines = {"a loop of your own": own_lines(policy, item.path)}
    lines |= {name: snippet(name, item.path) for name in frameworks()}
    return view.page(
        "policy.html",
        policy.label,
        item=item,
        policy=policy,
        facts=policy.tables()[0],
        certificate=certificate,
        calibrators=calibrators,
        provenance=facts_table("Where it comes from", _without_lists(policy.provenance)),
        lines=lines,
    )


def _without_lists(provenance: Mapping[str, Any]) -> dict[str, Any]:
    """Return provenance with a count in the place of long lists, as those of question ids."""
    few = 8
    return {
        name: counted(len(value), "entry", "entries") if isinstance(value, list | dict) and len(value) > few else value
        for name, value in provenance.items()
    }


POLICY_VIEW = ViewModule(
    pages=[("GET", "/policy/{id}", policy_page)],
    tabs=[Tab(title="Policy", path="/policy/{id}", kinds=("policy",), place=0)],
)
