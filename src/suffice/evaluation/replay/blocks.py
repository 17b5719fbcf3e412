"""Recordings of any size, read in blocks of whole questions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from suffice.errors import DataError, SchemaError
from suffice.evaluation.replay.costs import gate_signals
from suffice.evaluation.replay.outcomes import is_agreement
from suffice.policy.rounds import Floats, Mask, Rounds
from suffice.recordings.computed import source_columns
from suffice.recordings.file_checks import damaged
from suffice.recordings.opened import run_starts
from suffice.recordings.pieces import (
    Digests,
    Piece,
    are_equal,
    check_pieces,
    is_complete_on_disk,
    piece_tables,
    pieces_of,
)
from suffice.recordings.recording import Recording, open_recording
from suffice.recordings.schema import check_ends, checked_rounds, column_kind, column_values
from suffice.recordings.text_keys import text_bytes, text_keys

_SPACE, _ASCII = 32, 126


class Source:
    """A recording on disk.

    The header is checked when the file is opened, and each page when it is read.  At the end of a pass, each column
    that was read is compared with its checksum; other columns are not checked.

    Raises:
        DataError: There is no such file, it has no rows, or its rounds do not start at 0 or 1.
        SchemaError: The file is not a recording, its header is damaged, or the ids of its questions are not text.
    """

    def __init__(self, path: str | Path) -> None:
        self._opened = opened = open_recording(path)
        self.path, self.schema, self.header = path, opened.schema, opened.metadata
        for name in ("question_id", "round"):
            if name not in self.schema.names:
                raise SchemaError(f"a recording needs the column {name!r}; there are: {', '.join(self.schema.names)}")
        if opened.n_rows == 0:
            raise DataError("the recording has no rounds")
        checked_rounds(self.schema.empty_table())
        self.index = self._index()

    def _index(self) -> npt.NDArray[np.int64]:
        """Return the numbers of the recorded rounds, from the column statistics in the file."""
        lowest, highest = self._opened.round_range()
        if lowest not in (0, 1) or highest - lowest > self._opened.n_rows:
            raise DataError(f"rounds start at 0 or 1 and run without gaps; these run from {lowest!r} to {highest!r}")
        return np.arange(int(lowest), int(highest) + 1, dtype=np.int64)

    def empty(self, highest: int | None = None) -> RecordingBlock:
        """Return the recording without rows, which is enough to build a policy for it.

        With `highest`, later rounds are left out.
        """
        index = self.index if highest is None else self.index[self.index <= highest]
        return RecordingBlock(self.schema.empty_table(), self.header, index, np.zeros(0, dtype=np.int64))

    def columns(self, signals: set[str], metrics: Sequence[str]) -> list[str]:
        """Return the names of the columns that must be read.

        Clusters are left out if the file shows that each question is its own cluster.  If the texts of questions are
        read, clusters are always read too: both are needed to find the questions that the policy was fitted on.
        """
        # The costs of a gate depend on whether its signal was recorded, those of a panel on the model of each round.
        wanted = {
            "question_id",
            "round",
            "end",
            "answer",
            *source_columns(signals, self.schema),
            *gate_signals(self.empty()),
        }
        if self.empty().independent:
            wanted.add("model")
        if "question" in signals or not are_equal(self._opened, "cluster", "question_id"):
            wanted.add("cluster")
        wanted |= {name.split(">", maxsplit=1)[0].strip() for name in metrics if not is_agreement(name)}
        return [name for name in self.schema.names if name in wanted or column_kind(name) == "cost"]

    @property
    def n_rows(self) -> int:
        """The number of rows of the recording."""
        return self._opened.n_rows

    @property
    def is_on_disk(self) -> bool:
        """True if other processes can read the recording."""
        return is_complete_on_disk(self._opened)

    def pieces(self, columns: Sequence[str], rows: int) -> list[Piece]:
        """Return the pieces of the file, each of which can be read alone; see `pieces_of`."""
        return pieces_of(self._opened, columns, rows)

    def blocks(self, piece: Piece, columns: list[str], rows: int) -> BlockReader:
        """Return an iterator over the blocks of whole questions that begin in a piece."""
        return BlockReader(self, piece_tables(self._opened, piece, rows, columns), rows)

    def block(self, table: pa.Table, starts: npt.NDArray[np.int64]) -> RecordingBlock:
        """Convert rows to a block; `starts` are the first rows of its questions."""
        return RecordingBlock(table, self.header, self.index, starts)

    def tables(self, rows: int, column: str) -> Iterator[pa.Table]:
        """Yield one column in tables of at most `rows` rows."""
        return self._opened.tables(rows, [column])

    def check_grouped(self, keys: Sequence[npt.NDArray[np.uint64]], rows: int) -> None:
        """Raise a `DataError` if the rows of a question are not adjacent.

        Args:
            keys: The keys of the questions, in the order of the rows, see `text_keys`.
            rows: Number of rows that are checked at once.
        """
        every = np.sort(np.concatenate(keys))
        again = np.unique(every[1:][every[1:] == every[:-1]])
        names: set[str] = set()
        last = None
        for table in self._opened.tables(rows, ["question_id"]) if len(again) else ():
            starts = table.column("question_id").take(pa.array(run_starts(table.column("question_id"))))
            starts = starts.slice(int(starts[0] == last))  # the first question may have begun in the previous table
            for name in starts.filter(pa.array(np.isin(text_keys(starts), again))).to_pylist():
                if name in names:
                    raise DataError(
                        f"the rows of question {name!r} in {str(self.path)!r} do not follow each other: sort the recording by "
                        "question_id and round, or replay what `read_recording` returns, which holds it in memory"
                    )
                names.add(name)
            last = table.column("question_id")[-1]

    def check(self, read: Sequence[tuple[Piece, PieceFacts]]) -> None:
        """Compare the facts of all pieces with the checksums and statistics in the files.

        Raises:
            SchemaError: A column, or the range of rounds, differs from what the file states.
        """
        check_pieces(self._opened, [(piece, facts.digests) for piece, facts in read])
        ends = [facts.rounds for _, facts in read if facts.rounds is not None]
        if ends and (min(low for low, _ in ends), max(high for _, high in ends)) != (self.index[0], self.index[-1]):
            raise damaged(self.path, "its statistics")


@dataclass(frozen=True, slots=True, kw_only=True)
class PieceFacts:
    """Checksums and rounds of one piece, to compare with the file's header once all pieces have been read.

    Attributes:
        digests: The checksums of the piece's rows, by column.
        rounds: The lowest and the highest round; None = no question begins in the piece.
    """

    digests: Digests
    rounds: tuple[int, int] | None


class BlockReader:
    """An iterator over the blocks of questions that begin in a piece, in the order of the file; it can be used once.

    Raises:
        SchemaError: The file is damaged; a damaged column is only reported after all pieces were read.
    """

    def __init__(self, source: Source, tables: Iterator[tuple[pa.Table, Digests]], rows: int) -> None:
        self._source, self._tables, self._rows = source, tables, rows
        self._digests: Digests = {}
        self._rounds: tuple[int, int] | None = None

    @property
    def facts(self) -> PieceFacts:
        """The facts of the piece; complete once all blocks were read."""
        return PieceFacts(digests=self._digests, rounds=self._rounds)

    def __iter__(self) -> Iterator[RecordingBlock]:
        unfinished: list[pa.Table] = []  # rows of the last question so far, which may continue in the next table
        straddling: list[pa.Table] = []  # rows of one question from several tables, which become one block
        for stored, digests in self._tables:
            self._digests = digests
            if not stored.num_rows:
                continue
            checked_rounds(stored)
            self._look_at(stored.column("round"))
            starts = run_starts(stored.column("question_id"))
            first, last = 0, int(starts[-1])
            if unfinished and unfinished[-1].column("question_id")[-1] == stored.column("question_id")[0]:
                first = int(starts[1]) if len(starts) > 1 else stored.num_rows
                unfinished.append(_copied(stored, 0, first))
            if first <= last:  # another question begins
                straddling += unfinished
                unfinished = [_copied(stored, last, stored.num_rows)]
            if first < last:
                own = starts[(starts >= first) & (starts < last)]
                yield self._source.block(stored.slice(first, last - first), own - first)
            if sum(table.num_rows for table in straddling) >= self._rows:
                yield self._joined(straddling)
                straddling = []
        if unfinished:
            yield self._joined([*straddling, *unfinished])

    def _look_at(self, rounds: pa.ChunkedArray) -> None:
        ends = pc.min_max(rounds).as_py()
        low, high = self._rounds or (ends["min"], ends["max"])
        self._rounds = min(low, ends["min"]), max(high, ends["max"])
        index = self._source.index
        if self._rounds[0] < index[0] or self._rounds[1] > index[-1]:
            raise damaged(self._source.path, "its statistics")

    def _joined(self, tables: list[pa.Table]) -> RecordingBlock:
        table = pa.concat_tables(tables).combine_chunks()
        return self._source.block(table, run_starts(table.column("question_id")))


def _copied(table: pa.Table, first: int, end: int) -> pa.Table:
    """Copy some rows, so that the memory of the other rows can be released."""
    return table.take(pa.array(np.arange(first, end)))


class RecordingBlock(Recording):
    """Some whole questions of a file, with the interface of a recording; no row is read in a Python loop."""

    def __init__(
        self, table: pa.Table, metadata: Mapping[str, Any], index: npt.NDArray[np.int64], starts: npt.NDArray[np.int64]
    ) -> None:
        self.table = table
        self.metadata = dict(metadata)
        self.index = index
        self._starts = starts
        self._lengths = np.diff(starts, append=table.num_rows)
        width = len(index)
        rounds = column_values(table.column("round"))
        # In nearly every block each question has all rounds in order, so its columns only need to be reshaped.
        self._is_regular = bool((self._lengths == width).all()) and bool(
            (rounds.reshape(len(starts), width) == index.astype(rounds.dtype)).all()
        )
        if self._is_regular:
            self.seen = np.ones((len(starts), width), dtype=np.bool_)
        else:
            self._check_rounds(width)

    @cached_property
    def _column(self) -> npt.NDArray[np.int64]:
        rounds = column_values(self.table.column("round").cast(pa.int64()))
        return np.asarray(rounds - self.index[0], dtype=np.int64)

    def _check_rounds(self, width: int) -> None:
        # Count each pair of question and round: 1 = present, 2 = twice in the file.
        counts = np.bincount(self.row_question * width + self._column, minlength=len(self._starts) * width)
        counts = counts.reshape(len(self._starts), width)
        self.seen = counts > 0
        gap = self.seen[:, 1:] & ~self.seen[:, :-1]
        wrong = (counts.max(axis=1) > 1) | gap.any(axis=1) | ~self.seen[:, 0]
        if wrong.any():
            name = self.question_ids[int(np.argmax(wrong))]
            raise DataError(
                f"question {name!r} lacks a round or has one twice: rounds must run without gaps, in rows that follow each other "
                "(sort the recording by question_id and round)"
            )

    @property
    def shape(self) -> tuple[int, int]:
        """``(n_questions, n_rounds)``."""
        return len(self._starts), len(self.index)

    @cached_property
    def row_question(self) -> npt.NDArray[np.int64]:  # type: ignore[override]
        """Index in `question_ids` of each row's question, shape ``(n_rows,)``."""
        return np.repeat(np.arange(len(self._starts)), self._lengths)

    @cached_property
    def names_of_questions(self) -> pa.Array:
        """The ids of the questions as a column."""
        return self.table.column("question_id").take(pa.array(self._starts)).combine_chunks()

    @cached_property
    def keys(self) -> npt.NDArray[np.uint64]:
        """The keys of the questions, see `text_keys`."""
        return text_keys(self.table.column("question_id"), self._starts)

    @cached_property
    def question_ids(self) -> list[str]:  # type: ignore[override]
        """The ids of the questions."""
        return list(self.names_of_questions.to_pylist())

    def column(self, name: str) -> Floats:
        """Return a numeric column, see `Recording.column`; cached."""
        if name not in self._columns:
            self._columns[name] = super().column(name)
        return self._columns[name]

    @cached_property
    def _columns(self) -> dict[str, Floats]:
        return {}

    def _dense(self, values: Floats) -> Floats:
        return values.reshape(self.shape) if self._is_regular else super()._dense(values)

    def view(self, columns: Mapping[str, Floats]) -> Rounds:
        """Return these columns with the recorded answers, which are loaded only when they are read."""
        rounds = super().view(columns)
        if "answer" in self.table.column_names and pa.types.is_string(self.table.schema.field("answer").type):
            rounds.answered = self._answered
        return rounds

    @cached_property
    def _answered(self) -> Mask:
        answers = self.table.column("answer")
        ends, content = text_bytes(answers)
        values = ends[1:] > ends[:-1]
        # White space begins with a byte below 33 or above ASCII, so only texts with such a first byte can be blank.
        first = (
            content[np.minimum(ends[:-1], len(content) - 1)] if len(content) else np.zeros(len(values), dtype=np.uint8)
        )
        unclear = np.flatnonzero(values & ((first <= _SPACE) | (first > _ASCII)))
        if len(unclear):
            values[unclear] = ~column_values(pc.utf8_is_space(answers.take(pa.array(unclear))))
        if self._is_regular:
            return values.reshape(self.shape)
        dense = np.zeros(self.shape, dtype=np.bool_)
        dense[self.row_question, self._column] = values
        return dense

    @cached_property
    def _end_codes(self) -> tuple[npt.NDArray[np.object_], npt.NDArray[np.int64]]:
        """The distinct reasons why trajectories end, and for each question the index of its reason."""
        places, content = text_bytes(self.table.column("end"))
        length = int(places[1] - places[0]) if len(self._starts) else 0
        content = content[places[0] : places[-1]]
        if length and (np.diff(places) == length).all() and (content[length:] == content[:-length]).all():
            one = content[:length].tobytes().decode()  # in most blocks all ends are of one kind
            check_ends([one])
            return np.array([one], dtype=object), np.zeros(len(self._starts), dtype=np.int64)
        ends = self.table.column("end").take(pa.array(self._starts)).combine_chunks().dictionary_encode("encode")
        names = ends.dictionary.to_pylist()
        check_ends(names)
        return np.array(names, dtype=object), ends.indices.to_numpy()

    @cached_property
    def ends(self) -> npt.NDArray[np.object_]:
        """The reason why each trajectory has no further round, shape ``(n_questions,)``."""
        if "end" not in self.table.column_names:
            return np.full(len(self._starts), "max_rounds", dtype=object)
        names, codes = self._end_codes
        return names[codes]

    @property
    def failed(self) -> Mask:
        """Mask of the questions whose recording failed, so that they have no answer, shape ``(n_questions,)``."""
        if "end" not in self.table.column_names:
            return np.zeros(len(self._starts), dtype=np.bool_)
        names, codes = self._end_codes
        if "failed" not in names:
            return np.zeros(len(self._starts), dtype=np.bool_)
        return np.asarray((names == "failed")[codes], dtype=np.bool_)

    def up_to(self, highest: int) -> RecordingBlock:
        """Return the questions that did not fail, cut off after round `highest`."""
        table = self.table.filter(pa.array(~self.failed[self.row_question])).combine_chunks()
        index = self.index[self.index <= highest]
        return RecordingBlock(table, self.metadata, index, run_starts(table.column("question_id")))

    def select(self, keep: npt.NDArray[np.bool_]) -> RecordingBlock:
        """Return the block of the questions where `keep`, shape ``(n_questions,)``, is True."""
        table = self.table.filter(pa.array(keep[self.row_question])).combine_chunks()
        return RecordingBlock(table, self.metadata, self.index, run_starts(table.column("question_id")))
