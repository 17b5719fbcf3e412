"""A recording together with the rounds that processes are still adding to it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from suffice._version import __version__
from suffice.errors import DataError, SchemaError
from suffice.signals import LOOP_COMPONENTS
from suffice.store.round_journal import JournalContent
from suffice.store.schema import build_table, cost_column, cost_names, fill_costs

__all__ = ["INFERRED", "RUN", "UNFINISHED", "merged", "together"]

RUN = "run"
"""The column that names a question's run, unique among all that were ever recorded."""

INFERRED = "end_inferred"
"""The column that says whether a question's end was inferred from its length, 1 or 0."""

UNFINISHED = "unfinished: it goes on, or its process was killed"
"""Why a question that has not ended counts as failed."""


def merged(
    stored: pa.Table | None, metadata: Mapping[str, Any], content: JournalContent
) -> tuple[pa.Table, dict[str, Any]]:
    """Return the rows of a recording with those of a journal, and the metadata of both.

    A question that has not ended counts as failed.  An end that nobody named is inferred from the lengths of all
    questions: `max_rounds` for the longest ones, as a cap ended them, and `rule` for the others, which the loop ended.

    Args:
        stored: The rows of the recording; None if there is none.
        metadata: Its metadata.
        content: The journal; questions without rounds are only counted, and stored ones are left out.

    Raises:
        DataError: There are no rows.
        SchemaError: The recording was not made by a `Recorder`.
    """
    if stored is not None and not {RUN, INFERRED} <= set(stored.column_names):
        raise SchemaError(
            "rounds wait to be added to a recording that no Recorder made: move the file FILE.rounds away"
        )
    failed = dict(metadata.get("failed") or {})
    names = _Names(stored, failed)
    rows: list[dict[str, Any]] = []
    kinds: dict[str, str] = {}
    for question in content.questions:
        if question.run in names.runs:
            continue
        question_id = names.new(question.fields["cluster"])
        ending = question.ending or {"end": "failed", "inferred": False, "why": UNFINISHED}
        if ending.get("why"):
            failed[question_id] = ending["why"]
        for row in question.rows:
            kinds |= row["kinds"]
            own = {RUN: question.run, "end": ending["end"], INFERRED: float(ending["inferred"])}
            rows.append({**row["columns"], "question_id": question_id, **own})
    if stored is None and not rows:
        raise DataError("no round was observed yet: the recording has no rows")
    tables = [] if stored is None else [stored]
    if rows:
        known = set() if stored is None else {name for name in stored.column_names if name.startswith("cost.")}
        fill_costs(rows, cost_names(rows) | known)
        tables.append(build_table(rows, kinds))
    table = _with_ends(reduce(together, tables).replace_schema_metadata(None))
    return table, {**metadata, **content.metadata, "failed": failed, "suffice": __version__}


class _Names:
    """The names of questions: that of the cluster for the first, ``NAME#2`` for the second, and so on."""

    def __init__(self, stored: pa.Table | None, failed: Mapping[str, str]) -> None:
        self._ids: set[str] = {*failed} if stored is None else {*failed, *stored.column("question_id").to_pylist()}
        self.runs: set[str] = set() if stored is None else set(stored.column(RUN).to_pylist())
        self._seen: Counter[str] = Counter()

    def new(self, cluster: str) -> str:
        while True:
            self._seen[cluster] += 1
            number = self._seen[cluster]
            name = cluster if number == 1 else f"{cluster}#{number}"
            if name not in self._ids:
                self._ids.add(name)
                return name


def together(old: pa.Table, new: pa.Table) -> pa.Table:
    """Return the rows of two tables whose columns may differ, those of the first table first."""
    old, new = (table.replace_schema_metadata(None) for table in (old, new))
    for name in set(old.column_names) & set(new.column_names):
        kinds = old.field(name).type, new.field(name).type
        if kinds[0] == kinds[1]:
            continue
        # The type of a column without values is only a guess; a label may be a number first and a text later.
        if old.column(name).null_count == old.num_rows:
            old = _cast(old, name, new.field(name))
        elif new.column(name).null_count == new.num_rows:
            new = _cast(new, name, old.field(name))
        else:
            text = pa.field(name, pa.string(), metadata=old.field(name).metadata)
            old, new = _cast(old, name, text), _cast(new, name, text)
    return pa.concat_tables([_with_free(old, new), _with_free(new, old)], promote_options="permissive")


def _with_free(table: pa.Table, other: pa.Table) -> pa.Table:
    """Return a table with cost 0, where a call is recorded, for every component that only the other table charges."""
    called = [name for name in (cost_column(item, "calls") for item in LOOP_COMPONENTS) if name in table.column_names]
    for name in other.column_names:
        if name.startswith("cost.") and name not in table.column_names and called:
            known = pc.coalesce(*(table.column(item) for item in called))
            free = pc.if_else(pc.is_valid(known), pa.scalar(0.0), pa.scalar(None, pa.float64()))
            table = table.append_column(other.field(name), free)
    return table


def _cast(table: pa.Table, name: str, field: pa.Field) -> pa.Table:
    position = table.column_names.index(name)
    column = table.column(name)
    blank = column.null_count == table.num_rows
    values = pa.nulls(table.num_rows, field.type) if blank else column.cast(field.type)
    return table.set_column(position, field, values)


def _with_ends(table: pa.Table) -> pa.Table:
    """Return the table with the ends that nobody named, inferred from the lengths of all questions that did not fail."""
    ids, ends = table.column("question_id").to_pylist(), table.column("end").to_pylist()
    inferred = table.column(INFERRED).to_pylist()
    lengths = Counter(name for name, end in zip(ids, ends, strict=True) if end != "failed")
    longest = max(lengths.values(), default=0)
    for i, (name, guess) in enumerate(zip(ids, inferred, strict=True)):
        if guess:
            ends[i] = "max_rounds" if lengths[name] == longest else "rule"
    position = table.column_names.index("end")
    return table.set_column(position, table.schema.field("end"), pa.array(ends, pa.string()))
