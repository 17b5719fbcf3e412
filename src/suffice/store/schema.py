"""Columns of a recording: one row for each question and round."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from suffice.json_text import well_formed
from suffice.metrics import METRICS
from suffice.rounds import COST_KINDS
from suffice.signals import SIGNALS

__all__ = ["EMBEDDING", "FORMAT", "META_KEY", "TEXT_COLUMNS", "VERSION", "build_table", "column_kind", "cost_column"]

FORMAT = "suffice.recording"
VERSION = 1
META_KEY = b"suffice"
"""File metadata key under which a JSON object says format, version, configuration and provenance."""

TEXT_COLUMNS = (
    "question_id",
    "cluster",
    "end",
    "question",
    "answer",
    "text",
    "finish_reason",
    "feedback",
    "prompt_id",
)
"""Text columns with a fixed meaning, `round`, `golds`, `passage_ids` and `recorded_at` aside."""

EMBEDDING = "embedding"
"""The column of the answers' embeddings, lists of numbers; only where an embedder was recorded."""

_LISTS = ("golds", "passage_ids")
_KINDS: Mapping[str, Container[str]] = {
    "identity": ("question_id", "cluster", "round", "end", "prompt_id"),
    "happened": (*TEXT_COLUMNS, *_LISTS, EMBEDDING),
    "provenance": ("recorded_at",),
    "metric": METRICS,
    "signal": SIGNALS,
}
_UNITS = {"calls": "count", "seconds": "seconds"}


def cost_column(component: str, kind: str) -> str:
    """Return the column of one kind of cost of one component.

    >>> cost_column("generator", "output_tokens")
    'cost.generator.output_tokens'
    """
    return f"cost.{component}.{kind}"


def column_kind(name: str, field: pa.Field | None = None) -> str:
    """Return what a column holds: identity, happened, signal, cost, metric, provenance or label.

    A column written by this library says so in its field's metadata; a foreign one is told by its name and type.
    """
    if field is not None and field.metadata and b"kind" in field.metadata:
        return str(field.metadata[b"kind"].decode())
    if name.startswith("cost.") and name.rsplit(".", 1)[-1] in COST_KINDS:
        return "cost"
    return next((kind for kind, names in _KINDS.items() if name in names), "label")


def _field(name: str, kinds: Mapping[str, str], values: Sequence[Any]) -> pa.Field:
    kind = kinds.get(name) or column_kind(name)
    metadata = {"kind": kind}
    if name == "round":
        dtype = pa.int16()
    elif name in _LISTS:
        dtype = pa.list_(pa.string())
    elif name == EMBEDDING:
        dtype = pa.list_(pa.float32())
    elif kind in ("signal", "cost", "metric", "provenance") or _is_number(values):
        dtype = pa.float64()
        metadata["unit"] = _unit(name, kind)
    else:
        dtype = pa.string()
    return pa.field(name, dtype, metadata=metadata)


def _is_number(values: Sequence[Any]) -> bool:
    given = [value for value in values if value is not None]
    return bool(given) and all(isinstance(value, int | float) and not isinstance(value, bool) for value in given)


def _unit(name: str, kind: str) -> str:
    if kind == "signal" and name in SIGNALS:
        return SIGNALS[name].unit
    if kind == "cost":
        return _UNITS.get(name.rsplit(".", 1)[-1], "tokens")
    return "seconds since 1970" if kind == "provenance" else "score"


def build_table(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str] | None = None) -> pa.Table:
    """Return rows as a table with units in the field metadata.

    Args:
        rows: One mapping for each question and round; a missing value is None, an undefined number None or NaN.
        kinds: The kind of columns whose name does not tell (a user's own signal or metric).
    """
    listed = list(rows)
    names = dict.fromkeys(name for row in listed for name in row)
    fields, arrays = [], []
    for name in names:
        values = [row.get(name) for row in listed]
        field = _field(name, kinds or {}, values)
        if pa.types.is_floating(field.type):
            values = [None if value is None or value != value else float(value) for value in values]  # noqa: PLR0124
        elif pa.types.is_string(field.type):
            values = [
                None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values
            ]
        fields.append(field)
        try:
            arrays.append(pa.array(values, type=field.type))
        except UnicodeEncodeError:  # a host's own text may hold what UTF-8 cannot
            arrays.append(pa.array(well_formed(values), type=field.type))
    return pa.table(arrays, schema=pa.schema(fields))
