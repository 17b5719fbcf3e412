"""The page of a policy: its rule, provenance and certificate, and lines to paste into a loop."""

from __future__ import annotations

from starlette.responses import Response

from suffice.common.tables import Column, Table, facts_table
from suffice.hosts import frameworks, snippet
from suffice.hosts.lines import own_lines
from suffice.verdicts.certificates import Certificate
from suffice_server.studio.counting import flat_facts
from suffice_server.studio.view import Tab, View, ViewModule


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
        provenance=facts_table("Where it comes from", flat_facts(policy.provenance)),
        lines=lines,
    )


POLICY_VIEW = ViewModule(
    pages=[("GET", "/policy/{id}", policy_page)],
    tabs=[Tab(title="Policy", path="/policy/{id}", kinds=("policy",), place=0)],
)
