"""Divide a recording into pieces that processes can read independently: whole parts, or row groups of large parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from suffice.recordings.file_checks import ColumnDigest
from suffice.recordings.opened import OpenFile, OpenRecording
from suffice.recordings.parts import OpenFolder

Digests = Mapping[str, ColumnDigest]
"""The checksums of the rows of a piece, by column."""


@dataclass(frozen=True, slots=True)
class Piece:
    """Row groups of one file of a recording.

    Attributes:
        file: The position of the file among the parts.
        name: The path of the file; if the piece is not the whole file, also its row groups.
    """

    file: int
    groups: range
    name: str

    def __str__(self) -> str:
        return self.name


def _files(recording: OpenRecording) -> Sequence[OpenFile]:
    if isinstance(recording, OpenFolder):
        return recording.parts
    assert isinstance(recording, OpenFile)
    return [recording]


def is_complete_on_disk(recording: OpenRecording) -> bool:
    """Return True if other processes can read the whole recording, since no rounds are only in this process's memory."""
    return not any(file.is_in_memory for file in _files(recording))


def are_equal(recording: OpenRecording, one: str, other: str) -> bool:
    """Return True if two columns are equal according to their checksums; False if that is unknown.

    It is unknown for a folder in which questions have other names than in their parts.
    """
    if isinstance(recording, OpenFolder) and recording.renames:
        return False
    digests = [file.digests for file in _files(recording)]
    return all(one in sums and sums[one] == sums.get(other) for sums in digests)


def pieces_of(recording: OpenRecording, columns: Sequence[str], rows: int) -> list[Piece]:
    """Return the pieces of a recording, in the order of its rows.

    Args:
        recording: A file, or a folder of parts.
        columns: The columns that will be read. If one of them holds lists, files are not divided, because checksums of
            lists cannot be added.
        rows: Approximate number of rows of a piece, if a file is divided.
    """
    pieces = []
    for i, file in enumerate(_files(recording)):
        sizes = file.group_rows
        lists = any(pa.types.is_nested(file.schema.field(name).type) for name in columns if name in file.schema.names)
        first, n = 0, 0
        for group, size in enumerate(sizes):
            n += size
            if group + 1 == len(sizes) or (n >= rows and not lists):
                groups = range(first, group + 1)
                some = f", row groups {first} to {group}" if len(groups) < len(sizes) else ""
                pieces.append(Piece(i, groups, f"{file.path}{some}"))
                first, n = group + 1, 0
    return pieces


def piece_tables(
    recording: OpenRecording, piece: Piece, rows: int, columns: Sequence[str]
) -> Iterator[tuple[pa.Table, Digests]]:
    """Yield all rows of the questions that begin in a piece, even if the last question ends in a later piece.

    Tables may be empty.  The checksums cover only the rows of the piece itself, and are complete after the last table;
    see `check_pieces`.
    """
    file = _files(recording)[piece.file]
    names = [name for name in recording.schema.names if name in {*columns}]
    schema = pa.schema([recording.schema.field(name) for name in names], recording.schema.metadata)
    wanted = recording.needed(piece.file, names) if isinstance(recording, OpenFolder) else names
    digests = file.new_digests(wanted, sum(file.group_rows[: piece.groups.start]))
    for table in _whole_questions(file, piece.groups, rows, wanted, digests):
        if isinstance(recording, OpenFolder):
            yield from ((counted, digests) for counted in recording.counted(piece.file, table, schema))
        else:
            yield table, digests
    yield schema.empty_table(), digests


def _whole_questions(
    file: OpenFile, groups: range, rows: int, columns: Sequence[str], digests: Digests
) -> Iterator[pa.Table]:
    last: Any = None
    if groups.start:
        (before,) = file.group_tables(range(groups.start - 1, groups.start), columns=["question_id"])
        last = before.column("question_id")[-1]
    skipped = groups.start > 0
    for table in file.group_tables(groups, rows, columns, digests):
        begin = _length_of(last, table) if skipped else 0
        skipped = skipped and begin == table.num_rows
        yield table.slice(begin)
        if not skipped:
            last = table.column("question_id")[-1]
    if skipped:
        return  # the whole piece belongs to a question that begins earlier
    for table in file.group_tables(range(groups.stop, len(file.group_rows)), rows, columns):
        end = _length_of(last, table)
        yield table.slice(0, end)
        if end < table.num_rows:
            break


def _length_of(question: Any, table: pa.Table) -> int:
    """Return the number of rows at the beginning of a table that belong to a question."""
    other = pc.fill_null(pc.not_equal(table.column("question_id"), question), True).to_numpy()
    return int(np.argmax(other)) if other.any() else len(other)


def check_pieces(recording: OpenRecording, digests: Sequence[tuple[Piece, Digests]]) -> None:
    """Compare the checksums of all pieces of a recording, in their order, with those in its files."""
    for i, file in enumerate(_files(recording)):
        own = [sums for piece, sums in digests if piece.file == i]
        file.compare({name: reduce(add, (sums[name] for sums in own)) for name in own[0]} if own else {})
