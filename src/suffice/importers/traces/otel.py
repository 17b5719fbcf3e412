"""Read OpenTelemetry's spans: OTLP JSON of exporters and the collector, and the forms of Phoenix and the SDK's console."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from suffice.errors import SchemaError
from suffice.importers.calls.objects import documents, dotted_fields, fields_of, nanoseconds, objects_in, short_ids
from suffice.importers.calls.payloads import first
from suffice.importers.calls.spans import ERROR_CODES, Log, TraceSpan
from suffice.importers.columns.grid import cell_number, whole_number
from suffice.importers.files.recognise import Head
from suffice.importers.traces.genai import Event, is_genai, read_attributes
from suffice.importers.traces.runs import trace_importer

_PARTS = ("resourceSpans", "resource_spans", "resourceLogs", "resource_logs", "resourceMetrics", "resource_metrics")


def otlp_log(path: str | Path) -> Log:
    """Return the spans of OTLP JSON in the GenAI, OpenLLMetry or OpenInference conventions.

    Log records with the messages (`logs.jsonl`) are joined to their spans.
    """
    log, records, foreign = Log(), dict[tuple[str, str], list[Event]](), 0
    raw: list[tuple[str, dict[str, Any], dict[str, Any]]] = []
    for where, document in documents(path):
        if not any(name in document for name in _PARTS):
            raise SchemaError(
                f"{where}: not OTLP JSON: there is no 'resourceSpans'; name the format with --kind, or leave this file out"
            )
        raw.extend((where, resource, span) for resource, span in _telemetry_items(document, "Spans"))
        for _, record in _telemetry_items(document, "Logs"):
            place = (str(first(record, ("traceId", "trace_id")) or ""), str(first(record, ("spanId", "span_id")) or ""))
            records.setdefault(place, []).append(_record_event(record))
    for where, resource, item in raw:
        attributes = _attributes(item.get("attributes"))
        foreign += not is_genai(attributes)
        span = TraceSpan(
            trace=str(first(item, ("traceId", "trace_id")) or ""),
            span=str(first(item, ("spanId", "span_id")) or ""),
            parent=str(first(item, ("parentSpanId", "parent_span_id")) or ""),
            name=str(item.get("name") or ""),
            kind="",
            where=where,
            start=nanoseconds(first(item, ("startTimeUnixNano", "start_time_unix_nano")), where),
            end=nanoseconds(first(item, ("endTimeUnixNano", "end_time_unix_nano")), where),
            failed=_is_error(fields_of(item.get("status")).get("code")),
            ids=short_ids(resource),
        )
        events = [(str(e.get("name", "")), _attributes(e.get("attributes"))) for e in objects_in(item.get("events"))]
        log.spans.append(read_attributes(span, attributes, [*events, *records.get((span.trace, span.span), ())]))
    if foreign:
        log.notes.append(f"spans of other things than models and agents (requests, databases), left out: {foreign}")
    return log


read_otlp = trace_importer("otlp", otlp_log, lambda head: any(map(head.has, _PARTS)))


def _telemetry_items(document: Mapping[str, Any], what: str) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    """Yield a document's spans or log records, each with the attributes of its resource."""
    lower = what.lower()
    for resource in objects_in(first(document, (f"resource{what}", f"resource_{lower}"))):
        attributes = _attributes(fields_of(resource.get("resource")).get("attributes"))
        for scope in objects_in(first(resource, (f"scope{what}", f"scope_{lower}"))):
            listed = scope.get("spans" if what == "Spans" else "logRecords", scope.get("log_records"))
            for item in objects_in(listed):
                yield attributes, item


def _is_error(value: Any) -> bool:
    return isinstance(value, str | int) and value in ERROR_CODES


def _attributes(listed: Any) -> dict[str, Any]:
    """Convert OTLP's list of keys with typed values to a mapping."""
    if isinstance(listed, dict):
        return dotted_fields(listed)
    return dotted_fields({str(item.get("key")): _attribute_value(item.get("value")) for item in objects_in(listed)})


def _attribute_value(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for name in ("stringValue", "boolValue", "doubleValue", "string_value", "bool_value", "double_value"):
        if name in value:
            return value[name]
    number = first(value, ("intValue", "int_value"))
    if number is not None:
        return int(number) if isinstance(number, int) else whole_number(str(number))
    listed = first(value, ("arrayValue", "array_value"))
    if isinstance(listed, dict):
        values = listed.get("values")
        return [_attribute_value(item) for item in values] if isinstance(values, list) else []
    fields = first(value, ("kvlistValue", "kvlist_value"))
    if isinstance(fields, dict):
        return {str(item.get("key")): _attribute_value(item.get("value")) for item in objects_in(fields.get("values"))}
    return None


def _record_event(record: Mapping[str, Any]) -> Event:
    attributes = _attributes(record.get("attributes"))
    body = _attribute_value(record.get("body"))
    name = first(record, ("eventName", "event_name")) or attributes.get("event.name") or ""
    return str(name), {**attributes, **(dotted_fields(body, "body") if isinstance(body, dict) else {"body": body})}


def openinference_log(path: str | Path) -> Log:
    """Return the spans of a Phoenix export, or those printed by OpenTelemetry's console exporter."""
    log = Log()
    for where, document in documents(path):
        listed = first(document, ("data", "spans"))
        for item in listed if isinstance(listed, list) else [document]:
            log.spans.append(_plain_span(item, where))
    return log


def _is_openinference(head: Head) -> bool:
    header = head.text.partition("\n")[0].split(",") if head.form == "text" else ()
    is_flat = "context.trace_id" in (*head.names, *head.item, *header)
    return is_flat or "trace_id" in fields_of(head.item.get("context"))


read_openinference = trace_importer("openinference", openinference_log, _is_openinference)


_ANNOTATION = re.compile(r"annotations?\.(?P<name>[^.]+)\.score")
_WORSE = re.compile(r"hallucinat|toxic|harm|bias|error|violation", re.IGNORECASE)
"""Names of scores of which less is better, so that they are no metrics."""


def _annotations(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the scores in the annotations of a Phoenix span, by name."""
    found = {match["name"]: value for name, value in fields.items() if (match := _ANNOTATION.fullmatch(name))}
    known = {name: value for name, value in found.items() if value not in (None, "") and not _WORSE.search(name)}
    return {name: cell_number(value, name, "annotation") for name, value in known.items()}


def _plain_span(item: Any, where: str) -> TraceSpan:
    fields = dotted_fields(item) if isinstance(item, dict) else {}
    attributes = {name.removeprefix("attributes."): v for name, v in fields.items() if name.startswith("attributes.")}
    trace = first(fields, ("context.trace_id", "trace_id", "traceId"))
    if trace is None or not (attributes or "span_kind" in fields or "attributes" in fields):
        raise SchemaError(
            f"{where}: not a span of Phoenix or OpenTelemetry: expected 'context' with a trace_id, and 'attributes'; name the "
            "format with --kind, or leave this file out"
        )
    if (
        "openinference.span.kind" not in attributes
        and "gen_ai.operation.name" not in attributes
        and "span_kind" in fields
    ):
        attributes["openinference.span.kind"] = fields["span_kind"]
    span = TraceSpan(
        trace=str(trace),
        span=str(first(fields, ("context.span_id", "span_id", "spanId")) or ""),
        parent=str(first(fields, ("parent_id", "parent_span_id", "parentId")) or ""),
        name=str(fields.get("name") or ""),
        kind="",
        where=where,
        start=nanoseconds(first(fields, ("start_time", "startTime")), where),
        end=nanoseconds(first(fields, ("end_time", "endTime")), where),
        failed=_is_error(first(fields, ("status_code", "status.status_code", "statusCode"))),
        scores=_annotations(fields),
    )
    events = [
        (str(event.get("name", "")), dotted_fields(fields_of(event.get("attributes"))))
        for event in objects_in(fields_of(item).get("events"))
    ]
    return read_attributes(span, attributes, events)
