"""Recordings in memory or on disk, in the form that a search reads block by block."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError
from suffice.evaluation.replay.blocks import BlockReader, PieceFacts, RecordingBlock, Source
from suffice.evaluation.replay.costs import gate_signals
from suffice.recordings.computed import source_columns
from suffice.recordings.opened import run_starts
from suffice.recordings.pieces import Piece
from suffice.recordings.recording import Recording
from suffice.recordings.schema import column_kind

_ALWAYS = ("question_id", "round", "end", "cluster")

_BLOCK_ROWS = 1 << 16
"""Number of rows of a file that are read together; memory is proportional to it."""


class SearchSource(Source):
    """A recording on disk that is searched piece by piece, in any process.

    Raises:
        DataError: There is no such recording, or it has no rows.
        SchemaError: The file is not a recording, or is damaged.
    """

    def reader(self, piece: Piece, columns: Iterable[str]) -> BlockReader:
        """Return the questions that begin in a piece, in blocks.

        Args:
            piece: The piece.
            columns: The columns to read; the question's name, rounds, end and cluster are always added.
        """
        wanted = {*_ALWAYS, *source_columns({*columns}, self.schema)}
        return self.blocks(piece, [name for name in self.schema.names if name in wanted], _BLOCK_ROWS)


class MemorySource:
    """A recording in memory that is searched as one piece, sorted by question and round."""

    is_on_disk = False

    def __init__(self, table: pa.Table, header: Mapping[str, object], index: npt.NDArray[np.int64]) -> None:
        self.path, self.schema, self.header, self.index = "the recording", table.schema, dict(header), index
        self._table = table
        # Sorted, so that figures do not depend on the order of rows, not even by rounding.
        order = [("question_id", "ascending"), ("round", "ascending")]
        self._order = pc.sort_indices(table.select(["question_id", "round"]), sort_keys=order)

    def empty(self) -> RecordingBlock:
        """Return the recording without its rows, to build a policy for it."""
        return RecordingBlock(self.schema.empty_table(), self.header, self.index, np.zeros(0, dtype=np.int64))

    def pieces(self, columns: Sequence[str], rows: int) -> list[Piece]:  # noqa: ARG002 - as of a file
        """Return the whole recording as one piece, without a name, since errors need not distinguish parts."""
        return [Piece(0, range(0), "")]

    def reader(self, piece: Piece, columns: Iterable[str]) -> _WholeReader:  # noqa: ARG002 - there is one
        """Return all questions as one block; texts are included if they define the units."""
        wanted = {
            *_ALWAYS,
            *source_columns({*columns}, self.schema),
            *([] if is_clustered(self.schema) else ["question"]),
        }
        table = self._table.select([name for name in self.schema.names if name in wanted]).take(self._order)
        table = _decoded(table).combine_chunks()
        return _WholeReader(RecordingBlock(table, self.header, self.index, run_starts(table.column("question_id"))))

    def check(self, read: Sequence[tuple[Piece, PieceFacts]]) -> None:
        """Do nothing, since a recording in memory has no checksums."""


def _decoded(table: pa.Table) -> pa.Table:
    """Decode dictionary-encoded columns, which a user's table may have, so that texts are stored as in a file."""
    for place, column in enumerate(table.schema):
        if pa.types.is_dictionary(column.type):
            plain = column.with_type(column.type.value_type)
            table = table.set_column(place, plain, table.column(place).cast(plain.type))
    return table


@dataclass(frozen=True, slots=True)
class _WholeReader:
    """The one block of a recording in memory."""

    block: RecordingBlock

    @property
    def facts(self) -> PieceFacts:
        """Empty facts, since there is no file to compare with."""
        return PieceFacts(digests={}, rounds=None)

    def __iter__(self) -> Iterator[RecordingBlock]:
        yield self.block


def source_of(recording: Recording | str | Path) -> SearchSource | MemorySource:
    """Return the source of a recording, which is in memory or at a path."""
    if isinstance(recording, Recording):
        return MemorySource(recording.table, recording.metadata, recording.index)
    return SearchSource(recording)


def check_jobs(sources: Sequence[SearchSource | MemorySource], jobs: int) -> None:
    """Raise a `DataError` if several processes are requested for a recording in memory."""
    if jobs > 1 and any(isinstance(each, MemorySource) for each in sources):
        raise DataError(
            "a recording in memory is searched in this process: give its path to search its parts in several"
        )


def is_clustered(schema: pa.Schema) -> bool:
    """Return whether a column defines the units; otherwise questions with the same text form a unit."""
    return "cluster" in schema.names


def columns_of_metric(schema: pa.Schema, metric: str) -> set[str]:
    """Return the columns from which a metric is read or computed."""
    name = metric.split(">", maxsplit=1)[0].strip()
    return {name} if name in schema.names else {"golds", "answer"}


def cost_columns(empty: RecordingBlock) -> set[str]:
    """Return the columns that costs are computed from."""
    # The costs of a gate depend on whether its signal was recorded, those of a panel on the model of each round.
    more = {*gate_signals(empty), *(["model"] if empty.independent else [])}
    return {name for name in empty.table.column_names if column_kind(name) == "cost"} | more


def complete(block: RecordingBlock) -> RecordingBlock | None:
    """Return a block's questions that did not fail while recording; None if all failed."""
    failed = block.failed
    if failed.all():
        return None
    return block.select(~failed) if failed.any() else block


def unit_names(recording: Recording) -> list[str]:
    """Return the cluster of each question, or its own name if it has none."""
    if "cluster" not in recording.table.column_names:
        return recording.question_ids
    clusters = recording.per_question("cluster", []).tolist()
    return [
        name if cluster is None else str(cluster)
        for cluster, name in zip(clusters, recording.question_ids, strict=True)
    ]
