"""Downloads of a recording's report and of a policy, and a page that shows a report of the folder."""

from __future__ import annotations

import json
import re
import shlex

from starlette.responses import Response

from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.checks import with_guarded
from suffice.evaluation.replay.outcomes import default_metrics
from suffice.presentation import Settings, make_report, render_html
from suffice_server.studio.view import View, ViewModule
from suffice_server.studio.views.recordings import RECORDINGS

_DEFAULT_RULE = "answer_stable"
"""The default rule of `suffice report`; a recording without its signals is reported at full width."""

_SANDBOX = (
    "sandbox allow-scripts allow-popups; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; "
    "img-src data:; base-uri 'none'; form-action 'none'"
)
"""Content security policy of reports in the folder, whose scripts may run but can neither read nor ask the studio."""

_UNSAFE_NAME = re.compile(r"[^\w.-]+", re.ASCII)


def _download(text: str, name: str, media_type: str) -> Response:
    safe = _UNSAFE_NAME.sub("-", name)
    return Response(text, media_type=media_type, headers={"content-disposition": f'attachment; filename="{safe}"'})


def policy_file(view: View) -> Response:
    """Download a policy."""
    item = view.item("policy")
    text = json.dumps(view.folder.policy(item).to_dict(), indent=2, allow_nan=False, ensure_ascii=False) + "\n"
    return _download(text, item.path.name, "application/json")


def report_file(view: View) -> Response:
    """Download the report of a recording, as `suffice report` writes it."""
    item = view.item(*RECORDINGS)
    browsed = view.folder.recording(item)
    recording, names = browsed.recording, default_metrics(browsed.recording)
    if browsed.metric not in names and browsed.metrics:  # no gold answers
        names = browsed.metrics
    words = ["suffice", "report", item.path.name]
    rule = view.value("rule") or ("" if _DEFAULT_RULE in recording.table.column_names else "full")
    if view.value("policy"):
        chosen = view.item("policy", key=view.value("policy"))
        policies = [view.folder.policy(chosen)]
        words += ["--policy", chosen.path.name]
    else:
        policies = [policy_for(recording, rule or _DEFAULT_RULE)]
        words += ["--rule", rule] if rule else []
    words += ["--metric", *names] if names != default_metrics(recording) else []
    settings = Settings(metrics=names, command=shlex.join(words))
    report = make_report({item.path.stem: recording}, with_guarded(policies, recording), settings=settings)
    return _download(render_html(report, passages=view.passages), f"{item.path.stem}.html", "text/html")


def report_page(view: View) -> Response:
    """Show a report in the folder."""
    item = view.item("report")
    return Response(item.path.read_bytes(), media_type="text/html", headers={"content-security-policy": _SANDBOX})


EXPORTS_VIEW = ViewModule(
    pages=[
        ("GET", "/policy/{id}/file", policy_file),
        ("GET", "/recording/{id}/report", report_file),
        ("GET", "/report/{id}", report_page),
    ],
)
