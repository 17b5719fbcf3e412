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
from suffice.store.digest import ColumnDigest, damaged
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
        opened = open_recording(path)
        self._path, self._file, self._digests = path, opened.file, opened.digests
        self.schema, self.header = opened.schema, opened.metadata
        for name in ("question_id", "round"):
            if name not in self.schema.names:
                raise SchemaError(f"a recording needs the column {name!r}; there are: {', '.join(self.schema.names)}")
        if self._file.metadata.num_rows == 0:
            raise DataError("the recording has no rounds")
        self.index = self._index()

    def _index(self) -> npt.NDArray[np.int64]:
        """Return the rounds of the file, from the row groups' statistics where the writer left some."""
        place = self.schema.names.index("round")
        groups = [self._file.metadata.row_group(i).column(place) for i in range(self._file.num_row_groups)]
        if all(group.is_stats_set and group.statistics.has_min_max for group in groups):
            ends = [(group.statistics.min, group.statistics.max) for group in groups]
        else:
            batches = self._file.iter_batches(columns=["round"])
            ends = [tuple(pc.min_max(batch.column(0)).as_py().values()) for batch in batches]
        lowest, highest = min(low for low, _ in ends), max(high for _, high in ends)
        if lowest not in (0, 1) or highest - lowest > self._file.metadata.num_rows:
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
        digests = {name: ColumnDigest() for name in columns if name in self._digests}
        lowest, highest = int(self.index[-1]), int(self.index[0])
        try:
            for batch in self._file.iter_batches(batch_size=rows, columns=columns):
                table = pa.Table.from_batches([batch])
                for name, digest in digests.items():
                    digest.update(table.column(name))
                ends = pc.min_max(table.column("round")).as_py()
                lowest, highest = min(lowest, ends["min"]), max(highest, ends["max"])
                if lowest < self.index[0] or highest > self.index[-1]:
                    break
                table = table if rest is None else pa.concat_tables([rest, table]).combine_chunks()
                starts = run_starts(table.column("question_id"))
                last = int(starts[-1])  # this question may go on in the next batch
                rest = table.slice(last)
                if last:
                    yield self._block(table.slice(0, last), starts[:-1])
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"{str(self._path)!r} does not read (corrupt or truncated?): {error}") from None
        if [lowest, highest] != [self.index[0], self.index[-1]]:
            raise damaged(self._path, "its statistics")
        for name, digest in digests.items():
            if digest.value != self._digests[name]:
                raise damaged(self._path, f"the column {name!r}")
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


def run_starts(ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the rows at which another question begins."""
    if ids.null_count:
        raise SchemaError("the column 'question_id' must hold text in every row")
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return np.concatenate([[0], np.flatnonzero(changes.to_numpy()) + 1]).astype(np.int64)


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
