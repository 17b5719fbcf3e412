"""Read MLflow's traces: `trace.to_json()`, lists or lines of them, and the `traces.json` beside MLflow's runs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.errors import SchemaError
from suffice.importers.calls.objects import documents, fields_of, nanoseconds, objects_in, short_ids, unwrapped
from suffice.importers.calls.payloads import first, logged_reply, messages_of, usage_in
from suffice.importers.calls.spans import CHAT, ERROR_CODES, About, Log, TraceSpan
from suffice.importers.files.recognise import Head
from suffice.importers.traces.runs import trace_importer
from suffice.loops.retrieval import GOLD_FIELDS

_CHAT_TYPES = ("CHAT_MODEL", "LLM")
_EXPECTED = ("expected_response", "expected_answer", *(name for name in GOLD_FIELDS if name != "answer"))


def mlflow_log(path: str | Path) -> Log:
    """Return the spans of MLflow's traces; expected answers among the assessments are gold answers.

    The metadata, tag or attribute named by `key` identifies the question.  Without `key`, `mlflow.trace.session` identifies it
    or, if there is none, the trace.
    """
    log = Log()
    for where, document in documents(path):
        listed = document.get("traces")
        for trace in listed if isinstance(listed, list) else [document]:
            _add_trace(log, trace, where)
    return log


def _is_mlflow(head: Head) -> bool:
    trace = head.item if head.has("traces") and not head.has("spans") else head.record
    spans = objects_in((fields_of(trace.get("data")) or trace).get("spans"))
    return any("mlflow.spanType" in (span.get("attributes") or {}) for span in spans)


read_mlflow = trace_importer("mlflow", mlflow_log, _is_mlflow)


def _add_trace(log: Log, trace: Any, where: str) -> None:
    trace = trace if isinstance(trace, dict) else {}
    info, data = unwrapped(trace.get("info")) or {}, unwrapped(trace.get("data")) or trace
    spans = unwrapped(data.get("spans")) if isinstance(data, dict) else None
    if not isinstance(spans, list) or not isinstance(info, dict):
        raise SchemaError(
            f"{where}: not a trace of MLflow: expected 'info' and 'data' with 'spans'; write trace.to_json(), or name the format "
            "with --kind"
        )
    name = str(first(info, ("trace_id", "request_id")) or "")
    ids = {**short_ids(fields_of(info.get("tags"))), **short_ids(_trace_metadata(info))}
    log.spans.extend(_mlflow_span(item, name, ids, where) for item in objects_in(spans))
    about = _about(info.get("assessments"))
    if about is not None and log.spans:
        log.about[log.spans[-1].trace] = about


def _trace_metadata(info: Mapping[str, Any]) -> dict[str, Any]:
    metadata = first(info, ("trace_metadata", "request_metadata"))
    return metadata if isinstance(metadata, dict) else {}


def _mlflow_span(item: Mapping[str, Any], trace: str, ids: Mapping[str, str], where: str) -> TraceSpan:
    context = item.get("context") if isinstance(item.get("context"), dict) else item
    attributes = {str(name): unwrapped(value) for name, value in fields_of(item.get("attributes")).items()}
    status = item.get("status")
    code = status.get("code") if isinstance(status, dict) else first(item, ("status_code",))
    kind = str(attributes.get("mlflow.spanType") or "UNKNOWN")
    plain = {name: value for name, value in attributes.items() if not isinstance(value, dict | list)}
    span = TraceSpan(
        trace=trace or str((context or {}).get("trace_id") or ""),
        span=str((context or {}).get("span_id") or ""),
        parent=str(first(item, ("parent_span_id", "parent_id")) or ""),
        name=str(item.get("name") or ""),
        kind=CHAT if kind in _CHAT_TYPES else kind.lower(),
        where=where,
        start=nanoseconds(first(item, ("start_time_unix_nano", "start_time")), where),
        end=nanoseconds(first(item, ("end_time_unix_nano", "end_time")), where),
        failed=code in ERROR_CODES,
        ids={**ids, **short_ids(plain)},
    )
    if span.kind != CHAT:
        return span
    reply = logged_reply(attributes.get("mlflow.spanOutputs"))
    model = first(attributes, ("mlflow.llm.model",)) or reply.model
    span.messages = messages_of(attributes.get("mlflow.spanInputs"))
    counts = attributes.get("mlflow.chat.tokenUsage")
    usage = usage_in(counts) if counts else reply.usage
    span.reply = replace(reply, model=str(model) if model else None, usage=usage)
    return span


def _about(assessments: Any) -> About | None:
    """Return the expected answers and grades of a trace; None if it has none."""
    if not isinstance(assessments, list) or not assessments:
        return None
    about = About()
    golds: list[str] = []
    for item in objects_in(assessments):
        name = str(item.get("assessment_name") or item.get("name") or "")
        expected, feedback = item.get("expectation"), item.get("feedback")
        if isinstance(expected, dict) and name in _EXPECTED:
            value = expected.get("value", fields_of(expected.get("serialized_value")).get("value"))
            value = unwrapped(value)
            golds.extend(str(gold) for gold in (value if isinstance(value, list) else [value]) if gold is not None)
        elif isinstance(feedback, dict) and "value" in feedback:
            about.scores[name] = feedback["value"]
    about.golds = tuple(dict.fromkeys(golds))
    return about
