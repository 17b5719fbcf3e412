"""Read the rows of a recording by question, in any order, without loading them into memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from suffice.common.files import disk_fault
from suffice.errors import SchemaError
from suffice.recordings.opened import OpenRecording
from suffice.recordings.recording import Recording

_ROWS_AT_A_TIME = 2000
_ROW_KEYS = ("question_id", "round", "end")
_QUESTION_COLUMN = "question"


class StoredRows:
    """The rows of a recording, checked once and stored such that single questions can be read.

    The rows are copied without compression into a memory-mapped file beside the recording. The copy is unlinked at once
    but stays open. On Windows this is impossible, so `remove_leftovers` deletes the copy later.

    Args:
        path: The recording.
        opened: The same recording, opened; `StoredRows` closes it.

    Attributes:
        blank: Columns without any value.
        ends: The reason for each question's end, in the order of the file.

    Raises:
        DataError: The rows contradict each other, or the disk is full.
        SchemaError: The file is corrupt, truncated or damaged, or lacks a required column.
    """

    def __init__(self, path: Path, opened: OpenRecording) -> None:
        missing = [name for name in (*_ROW_KEYS, _QUESTION_COLUMN) if name not in opened.schema.names]
        if missing:
            raise SchemaError(
                f"{str(path)!r} has no column {missing[0]!r}, which `suffice record` writes: record to another file"
            )
        copy = path.with_name(f".{path.name}.{os.getpid()}.rows.tmp")
        self.schema = opened.schema
        with opened:
            try:
                self._file = _mapped(copy, opened.schema, opened.tables(_ROWS_AT_A_TIME))
            except OSError as error:
                raise disk_fault(copy, error) from error
            finally:
                with suppress(PermissionError):  # Windows does not remove open files
                    copy.unlink(missing_ok=True)
        batches = [self._file.get_batch(i) for i in range(self._file.num_record_batches)]
        self._starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
        self.blank = {
            name
            for i, name in enumerate(self.schema.names)
            if all(batch.column(i).null_count == batch.num_rows for batch in batches)
        }
        keys = Recording(pa.Table.from_batches(batches, self.schema).select(list(_ROW_KEYS)))
        self.ends: dict[str, str] = dict(zip(keys.question_ids, keys.ends.tolist(), strict=True))
        self._position = {question_id: i for i, question_id in enumerate(self.ends)}
        self._order = np.argsort(keys.row_question, kind="stable")
        self._first = np.searchsorted(keys.row_question[self._order], np.arange(len(self.ends) + 1))

    def count(self, question_id: str) -> int:
        """Return the number of rows of a question."""
        return len(self._rows(question_id))

    def _rows(self, question_id: str) -> Any:
        position = self._position[question_id]
        return self._order[self._first[position] : self._first[position + 1]]

    def texts(self) -> Iterator[tuple[str, str]]:
        """Yield the question id and the text of each row."""
        for i in range(self._file.num_record_batches):
            batch = self._file.get_batch(i)
            yield from zip(*(batch.column(name).to_pylist() for name in (_ROW_KEYS[0], _QUESTION_COLUMN)), strict=True)

    def table(self, question_ids: Iterable[str]) -> pa.Table:
        """Return the rows of the questions in `question_ids`, in the order of the file."""
        rows = np.sort(np.concatenate([self._rows(question_id) for question_id in question_ids]))
        batch_of = np.searchsorted(self._starts, rows, side="right") - 1
        parts = [
            self._file.get_batch(int(i)).take(pa.array(rows[batch_of == i] - self._starts[i]))
            for i in np.unique(batch_of)
        ]
        return pa.Table.from_batches(parts, self.schema)


def _mapped(copy: Path, schema: pa.Schema, tables: Iterable[pa.Table]) -> pa.RecordBatchFileReader:
    with pa.OSFile(str(copy), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
        for table in tables:
            writer.write_table(table)
    return pa.ipc.open_file(pa.memory_map(str(copy)))
