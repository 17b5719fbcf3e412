"""Read LangSmith's runs: lines or a list, as from the API, or the SDK's ingest batches (`post` and `patch`)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.errors import SchemaError
from suffice.importers.calls.objects import documents, fields_of, nanoseconds, short_ids, unwrapped
from suffice.importers.calls.payloads import asked_in, first, logged_reply, messages_of, usage_in
from suffice.importers.calls.spans import CHAT, Log, TraceSpan
from suffice.importers.files.recognise import Head
from suffice.importers.traces.runs import trace_importer

_BATCH_FIELDS = ("post", "patch", "runs")


def langsmith_log(path: str | Path) -> Log:
    """Return the runs of LangSmith as spans; later updates of a run take precedence.

    The metadata named by `key` identifies the question.  Without `key`, the thread identifies it (`session_id`, `thread_id` or
    `conversation_id`) or, if there is none, the trace.
    """
    runs: dict[str, tuple[str, dict[str, Any]]] = {}
    for where, document in documents(path):
        parts = [document[name] for name in _BATCH_FIELDS if isinstance(document.get(name), list)]
        for run in [run for part in parts for run in part] if parts else [document]:
            if not isinstance(run, dict) or run.get("id") is None or not (parts or "run_type" in run):
                raise SchemaError(
                    f"{where}: not a run of LangSmith: expected 'id' and 'run_type'; export the runs as JSON lines, or name the "
                    "format with --kind"
                )
            _, known = runs.get(str(run["id"]), (where, {}))
            runs[str(run["id"])] = (
                where,
                {**known, **{name: value for name, value in run.items() if value not in (None, {})}},
            )
    return Log(spans=[_run_span(run, where) for where, run in runs.values()])


def _is_langsmith(head: Head) -> bool:
    return {"run_type", "id"} <= head.item.keys()


read_langsmith = trace_importer("langsmith", langsmith_log, _is_langsmith)


def _run_span(run: Mapping[str, Any], where: str) -> TraceSpan:
    kind = str(run.get("run_type") or "run")
    extra = unwrapped(run.get("extra"))
    metadata = fields_of(fields_of(extra).get("metadata"))
    span = TraceSpan(
        trace=str(first(run, ("trace_id", "id"))),
        span=str(run["id"]),
        parent=str(run.get("parent_run_id") or ""),
        name=str(run.get("name") or ""),
        kind=CHAT if kind == "llm" else kind,
        where=where,
        start=nanoseconds(run.get("start_time"), where),
        end=nanoseconds(run.get("end_time"), where),
        failed=bool(run.get("error")),
        ids=short_ids(metadata),
        scores=_scores(run.get("feedback_stats")),
    )
    if span.kind != CHAT:
        span.asked = asked_in(run.get("inputs"))
        return span
    reply = logged_reply(run.get("outputs"))
    model = reply.model or metadata.get("ls_model_name")
    span.messages = messages_of(run.get("inputs"))
    usage = usage_in(run) if math.isnan(reply.usage.output) else reply.usage
    span.reply = replace(reply, model=str(model) if model else None, usage=usage)
    return span


def _scores(stats: Any) -> dict[str, Any]:
    stats = unwrapped(stats)
    averages = {name: item.get("avg") for name, item in fields_of(stats).items() if isinstance(item, dict)}
    return {name: value for name, value in averages.items() if value is not None}
