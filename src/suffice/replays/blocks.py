"""Recordings of any size, read in blocks of whole questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError, SchemaError
from suffice.replays.outcomes import is_agreement
from suffice.store.digest import damaged
from suffice.store.opened import run_starts
from suffice.store.recording import Recording, open_recording
from suffice.store.schema import column_kind

__all__ = ["RecordingBlock", "Source"]


class Source:
    """A recording on disk.

    Its header is checked when it is opened, the pages of the columns that are read as they come, and those columns
    against their checksums at the end of each pass; columns that are not read are not checked.

    Raises:
        DataError: There is no such file, it has no rows, or its rounds do not start at 0 or 1.
        SchemaError: It is not a recording, or its header is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self._opened = opened = open_recording(path)
        self._path, self.schema, self.header = path, opened.schema, opened.metadata
        for name in ("question_id", "round"):
            if name not in self.schema.names:
                raise SchemaError(f"a recording needs the column {name!r}; there are: {', '.join(self.schema.names)}")
        if opened.n_rows == 0:
            raise DataError("the recording has no rounds")
        self.index = self._index()

    def _index(self) -> npt.NDArray[np.int64]:
        """Return the rounds of the recording, from the statistics that the writer left."""
        lowest, highest = self._opened.round_range()
        if lowest not in (0, 1) or highest - lowest > self._opened.n_rows:
            raise DataError(f"rounds start at 0 or 1 and run without gaps; these run from {lowest!r} to {highest!r}")
        return np.arange(int(lowest), int(highest) + 1, dtype=np.int64)

    def empty(self) -> RecordingBlock:
        """Return the recording without its rows: enough to fit a policy to it."""
        return RecordingBlock(self.schema.empty_table(), self.header, self.index, np.zeros(0, dtype=np.int64))

    def columns(self, signals: set[str], metrics: Sequence[str]) -> list[str]:
        """Return the columns that must be read."""
        wanted = {"question_id", "round", "end", "answer", "cluster", *signals}
        wanted |= {name.split(">", maxsplit=1)[0].strip() for name in metrics if not is_agreement(name)}
        return [name for name in self.schema.names if name in wanted or column_kind(name) == "cost"]

    def blocks(self, columns: list[str], rows: int) -> Iterator[RecordingBlock]:
        """Yield blocks of whole questions, in the order of the file.

        Raises:
            SchemaError: What was read is damaged; that a column is, shows at the end at the latest.
        """
        rest: pa.Table | None = None
        lowest, highest = int(self.index[-1]), int(self.index[0])
        for stored in self._opened.tables(rows, columns):
            ends = pc.min_max(stored.column("round")).as_py()
            lowest, highest = min(lowest, ends["min"]), max(highest, ends["max"])
            if lowest < self.index[0] or highest > self.index[-1]:
                break
            table = stored if rest is None else pa.concat_tables([rest, stored]).combine_chunks()
            starts = run_starts(table.column("question_id"))
            last = int(starts[-1])  # this question may go on in the next batch
            rest = table.slice(last)
            if last:
                yield self._block(table.slice(0, last), starts[:-1])
        if [lowest, highest] != [self.index[0], self.index[-1]]:
            raise damaged(self._path, "its statistics")
        assert rest is not None
        yield self._block(rest, np.zeros(1, dtype=np.int64))

    def _block(self, table: pa.Table, starts: npt.NDArray[np.int64]) -> RecordingBlock:
        if "cluster" in table.column_names:
            own = pc.all(pc.equal(table.column("cluster"), table.column("question_id"))).as_py()
            if not own:
                raise DataError(
                    "the rows of this recording repeat questions (column 'cluster'), and streamed intervals take every "
                    "question for itself: use `replay`, or drop the column"
                )
        return RecordingBlock(table, self.header, self.index, starts)


class RecordingBlock(Recording):
    """Whole questions out of a file, laid out as a recording is, without looking at a row in Python."""

    def __init__(
        self, table: pa.Table, metadata: Mapping[str, Any], index: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> None:
        self.table = table
        self.metadata = dict(metadata)
        self.index = index
        lengths = np.diff(starts, append=table.num_rows)
        self.question_ids = table.column("question_id").take(pa.array(starts)).to_pylist()
        self._row = np.repeat(np.arange(len(starts)), lengths)
        self._column = table.column("round").cast(pa.int64()).to_numpy() - index[0]
        width = len(index)
        # One pass counts every pair of question and round: 1 = seen, 2 = twice in the file.
        seen = np.bincount(self._row * width + self._column, minlength=len(starts) * width)
        self.seen = seen.reshape(len(starts), width) > 0
        doubled = seen.reshape(len(starts), width).max(axis=1) > 1
        gap = self.seen[:, 1:] & ~self.seen[:, :-1]
        wrong = doubled | gap.any(axis=1) | ~self.seen[:, 0]
        if wrong.any():
            name = self.question_ids[int(np.argmax(wrong))]
            raise DataError(f"question {name!r} lacks a round or has one twice: rounds must run without gaps")
        self._starts = starts

    @cached_property
    def ends(self) -> npt.NDArray[np.object_]:
        """Why each trajectory has no further round, shape ``(n_questions,)``."""
        if "end" not in self.table.column_names:
            return np.full(len(self._starts), "max_rounds", dtype=object)
        ends = self.table.column("end").take(pa.array(self._starts))
        return np.asarray(ends.to_numpy(zero_copy_only=False), dtype=object)

    def select(self, keep: npt.NDArray[np.bool_]) -> RecordingBlock:
        """Return the block of the questions where `keep`, shape ``(n_questions,)``, is True."""
        table = self.table.filter(pa.array(keep[self._row])).combine_chunks()
        return RecordingBlock(table, self.metadata, self.index, run_starts(table.column("question_id")))
