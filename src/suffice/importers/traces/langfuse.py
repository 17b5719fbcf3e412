"""Read Langfuse's traces: downloads of the interface, observations of the API, or exported lines."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from suffice.errors import SchemaError
from suffice.importers.calls.objects import documents, nanoseconds, objects_in, short_ids, unwrapped
from suffice.importers.calls.payloads import asked_in, logged_reply, messages_of, usage_in
from suffice.importers.calls.spans import CHAT, About, Log, TraceSpan
from suffice.importers.files.recognise import Head
from suffice.importers.traces.runs import trace_importer
from suffice.importers.words.names import words

_UPPER = re.compile(r"(?<!^)(?=[A-Z])")
_TYPES = frozenset(words("GENERATION SPAN EVENT AGENT TOOL CHAIN RETRIEVER EMBEDDING EVALUATOR GUARDRAIL"))
"""Types of observations, as Langfuse spells them."""

_PRINTED_NULLS = ("None", "null")


def langfuse_log(path: str | Path) -> Log:
    """Return Langfuse's observations as spans, from a download, `GET /api/public/traces/ID`, or an export.

    The field or metadata named by `key` identifies the question.  Without `key`, the session does or, without a session, the trace.
    """
    log, printed = Log(), 0
    for where, document in documents(path):
        inner = document.get("trace")
        trace: Mapping[str, Any] = inner if isinstance(inner, dict) else document
        listed = document.get("observations", document.get("data"))
        if not isinstance(listed, list):
            trace, listed = {}, [document]
        for item in listed:
            if not isinstance(item, dict) or _of(item, "traceId") is None or _of(item, "startTime") is None:
                raise SchemaError(
                    f"{where}: not an observation of Langfuse: expected 'traceId', 'type' and 'startTime'; download the trace as "
                    "JSON with its observations, or name the format with --kind"
                )
            span, was_printed = _observation_span(item, trace, where)
            printed += was_printed
            log.spans.append(span)
        _add_scores(log, trace)
    if printed:
        log.notes.append(f"generations whose output is the text 'None' or 'null', read as without an answer: {printed}")
    return log


def _is_langfuse(head: Head) -> bool:
    """Return whether a file has Langfuse observations, from an export or inside a trace."""
    first = next(iter(objects_in(head.record.get("observations"))), head.item)
    own = {"parentObservationId", "parent_observation_id", "usageDetails", "usage_details"} & first.keys()
    is_typed = first.get("type") in _TYPES and _of(first, "startTime") is not None
    return head.has("trace", "observations") or (bool(own or is_typed) and _of(first, "traceId") is not None)


read_langfuse = trace_importer("langfuse", langfuse_log, _is_langfuse)


def _of(item: Mapping[str, Any], name: str) -> Any:
    """Return a field that is named as in the API (`traceId`) or as in an export (`trace_id`)."""
    value = item.get(name)
    return item.get(_UPPER.sub("_", name).lower()) if value is None else value


def _observation_span(item: Mapping[str, Any], trace: Mapping[str, Any], where: str) -> tuple[TraceSpan, bool]:
    kind = str(_of(item, "type") or "").lower()
    span = TraceSpan(
        trace=str(_of(item, "traceId")),
        span=str(item.get("id") or ""),
        parent=str(_of(item, "parentObservationId") or ""),
        name=str(item.get("name") or ""),
        kind=CHAT if kind == "generation" else kind,
        where=where,
        start=nanoseconds(_of(item, "startTime"), where),
        end=nanoseconds(_of(item, "endTime"), where),
        failed=_of(item, "level") == "ERROR",
        ids={**_ids(trace), **_ids(item)},
    )
    if span.kind != CHAT:
        span.asked = asked_in(item.get("input"))
        return span, False
    printed = item.get("output") in _PRINTED_NULLS
    reply = logged_reply(None if printed else item.get("output"))
    model = _of(item, "model") or reply.model
    span.messages = messages_of(item.get("input"))
    details = unwrapped(_of(item, "usageDetails") or _of(item, "usage"))
    usage = usage_in(details) if details else reply.usage
    span.reply = replace(reply, model=str(model) if model else None, usage=usage)
    return span, printed


def _ids(item: Mapping[str, Any]) -> dict[str, str]:
    fields = {name: value for name, value in item.items() if not isinstance(value, dict | list)}
    metadata = unwrapped(item.get("metadata"))
    ids = {**short_ids(metadata if isinstance(metadata, dict) else {}), **short_ids(fields)}
    # LangGraph's `thread_id` in the metadata is not a session: traces of one thread may ask different questions.
    return {name: value for name, value in ids.items() if name != "thread_id"} | (
        {"metadata.thread_id": ids["thread_id"]} if "thread_id" in ids else {}
    )


def _add_scores(log: Log, trace: Mapping[str, Any]) -> None:
    by_id = {span.span: span for span in log.spans}
    for mark in objects_in(trace.get("scores")):
        value = mark.get("value")
        if _of(mark, "dataType") == "BOOLEAN" and value in (0, 1):
            value = bool(value)
        elif value is None or _of(mark, "dataType") == "CATEGORICAL":
            value = _of(mark, "stringValue") or value
        span = by_id.get(str(_of(mark, "observationId")))
        holder = log.about.setdefault(str(_of(mark, "traceId")), About()).scores if span is None else span.scores
        holder[str(mark.get("name"))] = value
