"""Assemble a recording's file, piece by piece, from the journal and the file of an earlier run."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from suffice.policy.normalizers import MATCH
from suffice.recordings.journal import Journal
from suffice.recordings.opened import write_tables
from suffice.recordings.schema import Columns, fill_costs
from suffice.recordings.shards import with_places
from suffice.recordings.stored import StoredRows

ROWS = 2000
"""Rows of a row group, the most in memory at a time."""

_NO_ROW = dict.fromkeys(("question_id", "round", "end", "question"))
"""The columns of a shard without questions."""


class Assembly:
    """The rows of a recording in the order of its questions.

    A first pass over the rows collects the columns, a second pass writes the rows.

    Args:
        journal: Contains the rows of new questions.
        new: The new questions.
        costs: The cost columns of the new questions.
        stored: Rows of an earlier run; None if no earlier run stored rows.
        kept: Questions whose stored rows are kept.
        order: Questions in the order of the file; those without rows are left out.
        rows: Number of rows in memory at once; questions are never split.

    Attributes:
        complete: Questions that did not fail.
    """

    def __init__(
        self,
        journal: Journal,
        new: Collection[str],
        *,
        costs: Collection[str],
        stored: StoredRows | None,
        kept: Collection[str],
        order: Iterable[str],
        rows: int = ROWS,
    ) -> None:
        self._journal, self._new, self._costs, self._stored, self._rows = journal, new, costs, stored, rows
        self.sizes: dict[str, int] = {}
        self.complete: set[str] = set()
        self._columns = Columns({MATCH: "metric"})
        self._schema: pa.Schema
        self._superseded: tuple[list[str], list[str]]
        for question_id in order:
            if question_id in new:
                rows_of_question = self._filled(question_id)
                self._columns.add(rows_of_question)
                self.sizes[question_id], end = len(rows_of_question), rows_of_question[0]["end"]
            elif stored is not None and question_id in kept:
                self.sizes[question_id], end = stored.count(question_id), stored.ends[question_id]
            else:
                continue
            if end != "failed":
                self.complete.add(question_id)
        if not self.sizes:
            self._columns.add([_NO_ROW])
        self._schema, self._superseded = self._columns.schema, ([], [])
        if kept and stored is not None:
            self._schema, self._superseded = _merged_schema(self._columns, stored)

    def write(self, path: Path, metadata: Mapping[str, Any], places: Mapping[str, int] | None = None) -> None:
        """Write the file atomically; for a shard, add each question's position in the data set (`places`).

        Raises:
            DataError: The disk is full, or the path cannot be written.
            SchemaError: The journal is damaged.
        """
        tables = self._tables()
        if places is None:
            write_tables(path, self._schema, tables, metadata)
        else:
            schema = with_places(self._schema.empty_table(), {}).schema
            write_tables(path, schema, (with_places(table, places) for table in tables), metadata)

    def _filled(self, question_id: str) -> list[dict[str, Any]]:
        rows = self._journal.rows(question_id)
        fill_costs(rows, self._costs)
        return rows

    def _tables(self) -> Iterator[pa.Table]:
        piece: list[str] = []
        n_rows = 0
        for question_id, size in self.sizes.items():
            if piece and n_rows + size > self._rows:
                yield self._table(piece)
                piece, n_rows = [], 0
            piece.append(question_id)
            n_rows += size
        if piece:
            yield self._table(piece)

    def _table(self, piece: Sequence[str]) -> pa.Table:
        """Return the rows of the questions in `piece`, in this order, with all columns of the file."""
        tables = [self._schema.empty_table()]
        rows = [row for question_id in piece if question_id in self._new for row in self._filled(question_id)]
        if rows:
            tables.append(self._columns.table(rows).drop_columns(self._superseded[0]))
        old = [question_id for question_id in piece if question_id not in self._new]
        if old and self._stored is not None:
            tables.append(self._stored.table(old).drop_columns(self._superseded[1]))
        table = pa.concat_tables(tables, promote_options="permissive")
        index = {question_id: position for position, question_id in enumerate(piece)}
        keys = [index[question_id] for question_id in table.column("question_id").to_pylist()]
        order = sorted(range(table.num_rows), key=keys.__getitem__)  # stable: rounds stay in order
        return table.take(pa.array(order))


def _merged_schema(columns: Columns, stored: StoredRows) -> tuple[pa.Schema, tuple[list[str], list[str]]]:
    """Merge the schemas of new and stored rows; also return the columns to drop from the new and from the stored rows.

    If the types of a column differ, the column is dropped from the rows where it has no values, because the type of a
    column without values is only a guess.
    """
    new, old = columns.schema, stored.schema
    differ = [name for name in new.names if name in old.names and new.field(name).type != old.field(name).type]
    left = [name for name in differ if name in columns.blank]
    right = [name for name in differ if name in stored.blank and name not in left]
    schemas = [
        pa.schema([field for field in schema if field.name not in without])
        for schema, without in ((new, left), (old, right))
    ]
    return pa.unify_schemas(schemas, promote_options="permissive"), (left, right)
