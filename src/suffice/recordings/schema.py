"""Columns of a recording: one row for each question and round."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from suffice.common.json_text import well_formed
from suffice.errors import DataError, SchemaError
from suffice.policy.metrics import METRICS
from suffice.policy.rounds import COST_KINDS, WRITTEN_KINDS, Floats
from suffice.policy.signals import LOOP_COMPONENTS, SIGNALS

RECORDING_FORMAT = "suffice.recording"
RECORDING_VERSION = 1
META_KEY = b"suffice"
"""Key in the file metadata whose value is a JSON object with format, version, configuration and provenance."""

ROUNDS_SUFFIX = ".rounds"
"""The ending of the name of a journal, after the name of the recording that it adds rounds to."""

REPLY_COLUMNS = ("reply_model", "system_fingerprint")
"""Text columns with names that an endpoint gave in its reply; present if any reply has one."""

TEXT_COLUMNS = (
    "question_id",
    "cluster",
    "end",
    "question",
    "answer",
    "text",
    "finish_reason",
    "feedback",
    "thinking",
    "prompt_id",
    *REPLY_COLUMNS,
)
"""Text columns with a fixed meaning, except `round`, `golds`, `passage_ids` and `recorded_at`."""

PINNED_LABELS = ("model", "prompt_id")
"""Labels on which a policy depends that was fitted on the recording."""

_DECISION_UNITS = {"stop_round": "round", "answer_round": "round", "audit_rate": "probability", "audited": "bool"}
AUDIT_UNIT = "audit_unit"
"""The column that says `request` if the audit drew a single request; all others share the draw of their question."""

_DECISION_TEXTS = ("policy_digest", "stop_reason", AUDIT_UNIT)

DECISION_COLUMNS = (*_DECISION_TEXTS, *_DECISION_UNITS)
"""The columns of a log with the decision on a question and its draw for the audit."""

SHADOW = "shadow."
"""Prefix of a log's columns with the round at which a shadow policy stops; the policy's label follows."""

EMBEDDING = "embedding"
"""The column of the answers' embeddings, lists of numbers; only present if an embedder was recorded."""

THINKING_IDS = "thinking_ids"
"""The column of the token ids of what was thought at each checkpoint; only present if chains were continued from them."""

ASSUMED_END = "end_assumed"
"""The column that is 1 if the log gave no end for a shorter question, and an import assumed that the loop ended it."""

RETURNED = "returned"
"""The signal that is 1 in the round whose answer the loop returned, if that is not the last one, and 0 in others."""

SPEND = "spend"
"""The signal with what a log says was spent so far, in the currency of the log."""

CURRENCY, DOLLAR = "currency", "USD"
"""The metadata with the currency of the signal `spend`, and the currency where there is none."""

TRIALS, ASKED = "trials", "asked afterwards"
"""The metadata of a recording whose trial answers were asked along finished chains of thought."""

COPIED_ANSWERS = "equal-answers"
"""The alarm about a log whose answers may be gold answers, inputs, or the results of whole runs, copied to their rows."""

CHECKPOINTS = "checkpoints"
"""What policies depend on if the checkpoints of a recording cannot be known in time: the reason."""

BATCH_NOTE = "replies of language models came in batches: their seconds are unknown, and prices were those of batches"
"""The entry among the `notes` of a recording that was made in batches."""

_LISTS = ("golds", "passage_ids")
_COLUMN_KINDS: Mapping[str, Container[str]] = {
    "identity": ("question_id", "cluster", "round", "end", ASSUMED_END, "prompt_id"),
    "happened": (*TEXT_COLUMNS, *_LISTS, EMBEDDING, THINKING_IDS),
    "decision": DECISION_COLUMNS,
    "provenance": ("recorded_at",),
    "metric": METRICS,
    "signal": SIGNALS,
}
_NUMERIC = ("signal", "cost", "metric", "provenance")
_UNITS = {"calls": "count", "seconds": "seconds"}

_KNOWN_ENDS = frozenset({"max_rounds", "exhausted", "rule", "failed"})


def cost_column(component: str, kind: str) -> str:
    """Return the name of the column that holds one kind of cost of one component.

    >>> cost_column("generator", "output_tokens")
    'cost.generator.output_tokens'
    """
    return f"cost.{component}.{kind}"


_CONFIDENCE = re.compile(
    r"(?:^|_)(?:conf|confidence|certainty|uncertainty|p_(?:known?|true|ik|yes)|log_?probs?|probs?|probability|entropy|perplexity"
    r"|margin|self_(?:score|rating|eval|assessment)|own_score|familiarity)(?=_|$)"
)


def is_confidence_name(name: str) -> bool:
    """Return True if a snake-case column name suggests a model's confidence in its answers or its knowledge.

    >>> [is_confidence_name(name) for name in ("verbal_conf", "gate_logprob", "p_known", "configuration")]
    [True, True, True, False]
    """
    return _CONFIDENCE.search(name) is not None


_OF_USE = re.compile(
    r"(?:^|_)(?:ms|s|secs?|seconds?|minutes?|latency|duration|elapsed|times?|timestamp|ts|date|usd|eur|gbp|dollars?|cents?|costs?|price|spend"
    r"|money|tokens?|toks?|calls?|retries|bytes|chars|characters|words|length|len|size|n|num|count|counts|number|idx|index|id|seed|epoch"
    r"|top_k|temperature|year|batch|port|pid|gpus?)(?=_|$)"
)


def is_measure_name(name: str) -> bool:
    """Return True if a column's name suggests a cost, a time, a count or a setting, so that it is not a confidence.

    >>> [is_measure_name(name) for name in ("latencyMs", "usd", "n_docs", "self_rating")]
    [True, True, True, False]
    """
    return _OF_USE.search(re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\W+", "_", name).lower()) is not None


def column_kind(name: str, field: pa.Field | None = None) -> str:
    """Return the kind of a column: identity, happened, decision, signal, cost, metric, provenance or label.

    Columns written by this library have the kind in their metadata. For other columns, the kind follows from the name.
    """
    if field is not None and (stated := stated_kind(field)):
        return stated
    if name.startswith("cost.") and name.rsplit(".", 1)[-1] in (*COST_KINDS, *WRITTEN_KINDS):
        return "cost"
    if name.startswith(SHADOW):
        return "decision"
    return next((kind for kind, names in _COLUMN_KINDS.items() if name in names), "label")


def stated_kind(field: pa.Field) -> str | None:
    """Return the kind of a column from the column's metadata; None if this library did not write the column."""
    return (field.metadata or {}).get(b"kind", b"").decode() or None


def metric_field(name: str) -> pa.Field:
    """Return the schema field of a metric, whatever its name."""
    return _column_field(name, {name: "metric"}, numeric=True)


def _column_field(name: str, kinds: Mapping[str, str], *, numeric: bool) -> pa.Field:
    kind = kinds.get(name) or column_kind(name)
    metadata = {"kind": kind}
    if name == "round":
        dtype = pa.int16()
    elif name in _LISTS:
        dtype = pa.list_(pa.string())
    elif name == THINKING_IDS:
        dtype = pa.list_(pa.int32())
    elif name == EMBEDDING:
        dtype = pa.list_(pa.float32())
    elif name == ASSUMED_END or kind in _NUMERIC or (kind == "decision" and name not in _DECISION_TEXTS) or numeric:
        dtype = pa.float64()
        metadata["unit"] = _column_unit(name, kind)
    else:
        dtype = pa.string()
    return pa.field(name, dtype, metadata=metadata)


def _column_unit(name: str, kind: str) -> str:
    if kind == "signal" and name in SIGNALS:
        return SIGNALS[name].unit
    if kind == "cost":
        return _UNITS.get(name.rsplit(".", 1)[-1], "tokens")
    if kind == "decision":
        return _DECISION_UNITS.get(name, "round")
    return "seconds since 1970" if kind == "provenance" else "score"


class Columns:
    """The columns of rows that do not fit into memory: `add` all rows, then build tables in pieces.

    Args:
        kinds: Kinds of columns that the name does not determine (custom signals and metrics).

    >>> columns = Columns()
    >>> columns.add([{"question_id": "q1", "mine": None}])
    >>> columns.add([{"question_id": "q2", "mine": 3}])
    >>> columns.table([{"question_id": "q1", "mine": None}]).schema.field("mine").type
    DataType(double)
    """

    def __init__(self, kinds: Mapping[str, str] | None = None) -> None:
        self._kinds = kinds or {}
        self._numeric: dict[str, bool | None] = {}  # by column, True if all values are numbers; None = no value so far

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add the names and types of further rows."""
        for row in rows:
            for name, value in row.items():
                numeric = self._numeric.setdefault(name, None)
                if value is not None and numeric is not False:
                    self._numeric[name] = isinstance(value, int | float) and not isinstance(value, bool)

    @property
    def schema(self) -> pa.Schema:
        """The columns of all rows so far, with units in the field metadata."""
        return pa.schema(
            [_column_field(name, self._kinds, numeric=bool(known)) for name, known in self._numeric.items()]
        )

    @property
    def blank(self) -> set[str]:
        """The columns without any value, so that their type is a guess."""
        return {name for name, known in self._numeric.items() if known is None}

    def table(self, rows: Sequence[Mapping[str, Any]]) -> pa.Table:
        """Build a table of some rows, with the columns of all rows."""
        schema = self.schema
        return pa.table([_array([row.get(field.name) for row in rows], field.type) for field in schema], schema=schema)


def _array(values: list[Any], dtype: pa.DataType) -> pa.Array:
    if pa.types.is_floating(dtype):
        values = [None if value is None or value != value else float(value) for value in values]  # noqa: PLR0124
    elif pa.types.is_string(dtype):
        values = [None if value is None else value if isinstance(value, str) else json.dumps(value) for value in values]
    try:
        return pa.array(values, type=dtype)
    except UnicodeEncodeError:  # a host's text may contain lone surrogates
        return pa.array(well_formed(values), type=dtype)


def build_table(rows: Iterable[Mapping[str, Any]], kinds: Mapping[str, str] | None = None) -> pa.Table:
    """Build a table from rows, with units in the field metadata.

    Args:
        rows: One mapping for each question and round. A missing value is None; an undefined number is None or NaN.
        kinds: Kinds of columns that the name does not determine (custom signals and metrics).
    """
    all_rows = list(rows)
    names = dict.fromkeys(itertools.chain.from_iterable(all_rows))
    # By column and not by row, which takes a third of the time.
    return table_of_columns({name: [row.get(name) for row in all_rows] for name in names}, kinds or {})


def table_of_columns(columns: Mapping[str, Any], kinds: Mapping[str, str], texts: Collection[str] = ()) -> pa.Table:
    """Build a table from columns, with units in the field metadata.

    Args:
        columns: Values by column: a list as for `build_table`, a numpy array, or a pyarrow array of the final type.
        kinds: Kinds of columns that the name does not determine.
        texts: Columns to store as text even if all values here are numbers, because they contain text elsewhere.
    """
    fields, arrays = [], []
    for name, values in columns.items():
        types = {*map(type, values)} - {type(None)} if isinstance(values, list) else set()
        numeric = bool(types) and all(issubclass(one, int | float) and one is not bool for one in types)
        fields.append(_column_field(name, kinds, numeric=numeric and name not in texts))
        if isinstance(values, list):
            arrays.append(_array(values, fields[-1].type))
        elif isinstance(values, np.ndarray):
            arrays.append(pa.array(values, fields[-1].type, from_pandas=True))
        else:
            arrays.append(values)
    return pa.table(arrays, schema=pa.schema(fields))


def cost_names(rows: Iterable[Mapping[str, Any]]) -> set[str]:
    """Return the cost columns of all rows."""
    return {name for row in rows for name in row if name.startswith("cost.")}


def fill_costs(rows: Iterable[dict[str, Any]], names: Collection[str]) -> None:
    """Replace missing costs by 0, in place, in rows with recorded calls, because the components were not called there."""
    ordered = sorted(names)
    for row in rows:
        if any(row.get(cost_column(component, "calls")) is not None for component in LOOP_COMPONENTS):
            for name in ordered:
                row.setdefault(name, 0.0)


def with_values(table: pa.Table, name: str, values: npt.NDArray[Any]) -> pa.Table:
    """Return a table with new values in a column; the column's type and all metadata stay the same."""
    place, item = table.column_names.index(name), table.schema.field(name)
    return table.set_column(place, item, pa.chunked_array([pa.array(values).cast(item.type)]))


def is_computed(name: str) -> bool:
    """Return True if a signal may be computed from recorded rounds: it has a registered function and no `Signal.needs`.

    >>> is_computed("answer_length"), is_computed("answer_margin"), is_computed("my_own")
    (True, False, False)
    """
    signal = SIGNALS.get(name)
    return signal is not None and signal.compute is not None and not signal.fitted and not signal.needs


def reordered_totals(totals: Floats, places: npt.NDArray[np.int64]) -> Floats:
    """Recompute running totals for one or several other orders of the rounds; each round adds the same amount as before.

    >>> reordered_totals(np.array([[1.0, 4.0, 6.0]]), np.array([[2, 0, 1]])).tolist()
    [[3.0, 5.0, 6.0]]

    Args:
        totals: The running totals, shape ``(n_questions, n_rounds)``; NaN where unknown.
        places: The new position of each round, shape ``(n_orders * n_questions, n_rounds)``.
    """
    added = np.tile(np.diff(totals, axis=1, prepend=0.0), (len(places) // len(totals), 1))
    turned = np.empty_like(added)
    np.put_along_axis(turned, places, added, axis=1)
    return turned.cumsum(axis=1)


def column_values(column: pa.ChunkedArray) -> npt.NDArray[Any]:
    """Return the values of a column, without copying if the column is contiguous and has no missing values."""
    return np.asarray((column.chunk(0) if column.num_chunks == 1 else column).to_numpy(zero_copy_only=False))


def check_ends(ends: Iterable[Any]) -> None:
    """Raise a `DataError` if the reason for the end of a trajectory is not allowed."""
    unknown = set(ends) - _KNOWN_ENDS
    if unknown:
        raise DataError(f"unknown end {sorted(map(str, unknown))!r}; allowed: {', '.join(sorted(_KNOWN_ENDS))}")


def checked_rounds(table: pa.Table) -> npt.NDArray[np.int64]:
    """Return the round of each row, shape ``(n_rows,)``.

    Raises:
        SchemaError: In some row, the round is not a whole number, or the question's id is not a text.
    """
    ids, rounds = table.column("question_id"), table.column("round")
    if not (pa.types.is_string(ids.type) or pa.types.is_large_string(ids.type)) or ids.null_count:
        raise SchemaError(
            f"the column 'question_id' must contain text in every row, got {ids.type} with {ids.null_count} missing"
        )
    try:
        integers = rounds.cast(pa.int64())  # raises for fractions and for text that is not a number
    except pa.ArrowException as error:
        raise SchemaError(f"the column 'round' must contain whole numbers: {error}") from None
    if integers.null_count:
        raise SchemaError(
            f"the column 'round' must contain a whole number in every row; {integers.null_count} are missing"
        )
    return np.asarray(integers.to_numpy())
