"""Read TruLens records with their feedback results as rows, as returned by `get_records_and_feedback`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suffice.importers.calls.objects import unwrapped
from suffice.importers.words.names import plain_name, words

_OF_RECORDS = frozenset({"record_id", "app_id", "input", "output", "record_json", "cost_json", "perf_json", "ts"})
_SYSTEMS = ("app_version", "app_id")
_SAID_TWICE = frozenset(
    words("record_id record_json app_json app_id app_version total_tokens perf_json input output latency")
)
"""Columns that are left out, or read under another name."""


def record_fields(values: Mapping[str, Any]) -> Mapping[str, Any]:
    """Convert a TruLens record to a row with question, output, system, costs and feedback; return other objects unchanged.

    A record has an id of its own, so its input identifies the question.  The app's version becomes the system.  Agreement with
    a ground truth becomes the correctness of the output.  Of `record_json`, only the user's `meta` is kept.

    >>> record = dict.fromkeys(_OF_RECORDS, "") | {"app_id": "rag", "input": '"Where?"', "output": '"Oslo"', "Ground Truth": 1.0}
    >>> row = record_fields(record)
    >>> row["question"], row["output"], row["system"], row["Ground Truth correctness"]
    ('Where?', 'Oslo', 'rag', 1.0)
    """
    if not values.keys() >= _OF_RECORDS:
        return values
    record, asked, said = (unwrapped(values[name]) for name in ("record_json", "input", "output"))
    feedback = {name for name in values if f"{name}_calls" in values or plain_name(name).startswith("ground_truth")}
    result = {
        f"{name} correctness" if name in feedback and plain_name(name).startswith("ground_truth") else name: value
        for name, value in values.items()
        if name not in _SAID_TWICE and not name.endswith("_calls")
    }
    result |= {
        "question": asked,
        "output": said,
        "system": next(values[name] for name in _SYSTEMS if values.get(name) is not None),
    }
    if isinstance(values.get("latency"), int | float | str):
        result["latency_s"] = values["latency"]
    meta = record.get("meta") if isinstance(record, dict) else None
    return result | ({"meta": meta} if isinstance(meta, dict) else {})
