"""Read tables in parts of some thousand rows, with all rows of a question in one part."""

from __future__ import annotations

import logging
import math
import pickle
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
import numpy.typing as npt

from suffice.common.files import PACKED
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.columns.grid import Grid, cell_text, whole_number
from suffice.importers.columns.merged_cells import filled_down
from suffice.importers.columns.table_columns import ColumnMap
from suffice.importers.files.file_names import refuse_other_files
from suffice.importers.files.ids import plain_id, plain_text
from suffice.importers.files.recognise import data_files, head_of, in_one_piece
from suffice.importers.files.records import Record
from suffice.importers.guesses.table_settings import TableOptions
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rows.numbering import with_ids
from suffice.importers.rows.repeated_rounds import without_copies
from suffice.importers.rows.runs import RunColumns, tell_apart
from suffice.importers.shapes.fields import lists_as_text, one_run_each
from suffice.importers.shapes.shape import Shape
from suffice.importers.tables.table_source import TableSource
from suffice.policy.metrics import normalize_answer
from suffice.policy.seen import one_name_per_text

LARGE = 1 << 23
"""Tables above this size in bytes are read part by part."""

PART = 10_000
"""Approximate number of rows of a part."""

_PACKED = 6
_ROUNDS_A_RECORD = 5
_FURTHER = 1_000
_GATHERED = 5
"""Number of parts in memory while the rows of questions are gathered."""

_log = logging.getLogger(__name__)
_LARGE_PIECE, _TIMES = 1 << 26, 10
"""Warn above this size that a source is read in one piece, and the least factor between its memory and its size."""

_NUMERIC = {int, float, type(None)}

_RecordList = list[Record]


def unpacked_size(file: Path) -> int:
    """Estimate the uncompressed size of a file in bytes."""
    return file.stat().st_size * (_PACKED if file.suffix in (*PACKED, ".parquet", ".eval") else 1)


def announce_size(path: Path, kind: str) -> None:
    """Warn before a large source is read in one piece."""
    size = sum(unpacked_size(file) for file in data_files(path))
    if size >= _LARGE_PIECE:
        parts = "CSV, parquet, JSON lines and JSON arrays of one shape are read part by part"
        advice = parts if kind == "tabular" else "import a shorter period if that is too much"
        megabytes = f"{size / 1e6:,.0f} MB"
        _log.warning(
            "%s has %s and is read in one piece, which takes %s times as much memory or more: %s",
            path,
            megabytes,
            _TIMES,
            advice,
        )


def is_large(path: Path) -> bool:
    """Return whether a table is to be read in parts.

    It must be large.  A file that is a single JSON document can be read in parts only if the document is an array.
    """
    files = data_files(path)
    return sum(map(unpacked_size, files)) >= LARGE and not any(in_one_piece(head_of(file)) for file in files)


class UnevenError(Exception):
    """Raised if the records of a table differ too much in shape to be read in parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scan:
    """Facts about a table that are known only after all of its parts were read.

    Attributes:
        codes: The hashes of question ids, for each part.
        blocks: The hashes of question and run, for each group of consecutive rows.
        longest: The largest number of rounds of a trajectory.
        runs: Facts that distinguish several runs of a question.
        repeated: Hashes of the texts that several questions share.
    """

    codes: npt.NDArray[np.int64]
    blocks: npt.NDArray[np.int64]
    rows: int
    lowest: int
    longest: int
    runs: RunColumns
    repeated: frozenset[int]


class PartedTable(TableSource):
    """A table that is read part by part, several times.

    The meaning of columns is guessed from a sample: the first rows, and each later row with a new column, with a new lowest round
    number, or with the first answer that is a list.  If records differ too much for a sample, an `UnevenError` is raised.
    The rows of questions that are not contiguous are gathered in files of an empty folder.
    """

    def __init__(self, path: Path, folder: Path, options: TableOptions) -> None:
        super().__init__(path, options)
        self._folder = folder
        self._source: Callable[[], Iterable[_RecordList]] = self._adjacent
        head = list(islice(self._records(), PART))
        if filled_down(head, options.columns)[1]:  # only the last row shows whether it has totals
            raise UnevenError
        self._listed = lists_as_text(head)
        self._sample = one_run_each(head, lists=self._listed)
        self.texts: set[str] = set()
        self._further: list[Record] = []
        self._lists, self._low = False, math.inf
        self._files: set[str] = set()
        self._with_rounds: set[str] = set()
        try:
            self._guess_from_sample()
        except SchemaError:  # the first rows may all be of one round
            self._sample += one_run_each(deque(self._records(), PART), lists=self._listed)
            try:
                self._guess_from_sample()
            except SchemaError:  # the rounds of a question may be far apart, and only all rows show them
                raise UnevenError from None
        scan = self._scan()
        while self._further:
            if len(self._sample) > PART + _FURTHER:
                raise UnevenError
            self._sample += self._further
            self._guess_from_sample()
            scan = self._scan()
        self._refuse_passes(scan.blocks.tolist(), scan.rows)
        refuse_other_files(path, self._files, self._with_rounds, self.shape.how)
        if len(np.unique(scan.codes)) < len(scan.codes):
            self._gather(scan)
            scan = self._scan()
        self.run = scan.runs.choice()
        if self.run is not None:
            scan = self._scan()
        self.grid = replace(self.grid, lowest=scan.lowest, longest=scan.longest)
        self._names = self._shared_names(scan.repeated)

    def _guess_from_sample(self) -> None:
        self._guess(self._unfolded(self._sample))
        self._known = {name for row in self._rows for name in row.values}

    def parts(self) -> Iterator[tuple[_RecordList, Mapping[str, str]]]:
        """Yield the rows of some whole questions, and a mapping from the id of each run to its question.

        The mapping is empty if questions have one run each.
        """
        self.repeated = 0
        for part in self._source():
            numbered = self._numbered(part)
            self._refuse_calls(bool(self._kinds(numbered)))
            rows = self._without_repeated_calls(numbered)
            yield (rows, {}) if self.run is None else tell_apart(rows, self.plan, self.run)

    @staticmethod
    def _without_copies(
        columns: RoundColumns, grid: Grid, plan: ColumnMap, said: Mapping[str, str], least: int = 1
    ) -> tuple[RoundColumns, Grid]:
        """Return the arguments unchanged; raise an `UnevenError` if some rounds seem to copy the last answer after the end of a loop.

        A part of the table cannot show if they do, so the table must then be read as a whole.
        """
        with suppress(UnsettledError):
            if without_copies(columns, grid, plan, said, least)[0] is columns:
                return columns, grid
        raise UnevenError("records may repeat the last round of a loop")

    def _guess(self, shape: Shape) -> None:
        super()._guess(shape)
        if self.calls_tools:
            raise UnevenError("messages that call tools are charged to the next answer")
        if self.lacks_rows:
            raise UnevenError("some rows are around the loop")
        self._refuse_calls(bool(self._answering))

    @staticmethod
    def _refuse_calls(are_some: bool) -> None:
        if are_some:
            raise UnevenError("rows of other kinds are charged to the round of an answer")

    def _numbered(self, rows: _RecordList) -> _RecordList:
        if self._order is None:
            return rows
        try:
            numbered, time = self._order.numbered(rows)
        except ValueError as error:
            if isinstance(error, DataError):
                raise
            raise UnevenError from None
        if time != self._order.time:
            raise UnevenError
        return numbered

    def clusters(self, names: Sequence[str], texts: Sequence[str]) -> list[str]:  # noqa: ARG002 - all texts are known
        """Return the cluster of each question, which it shares with questions of the same text in any part."""
        return [self._names.get(name, name) for name in names]

    def _read(self) -> Iterator[_RecordList]:
        """Yield rows with ids."""
        records, first, self.skipped = self._records(), 1, 0
        size = PART // _ROUNDS_A_RECORD if self.shape.how else PART
        while part := [*islice(records, size)]:
            part = one_run_each(part, first, self._listed)
            first += len(part)
            try:
                rows, skipped = self.shape.read(part)
            except ValueError as error:
                if isinstance(error, DataError):
                    raise
                raise UnevenError from None
            rows = with_ids(rows, self.plan)
            self.skipped += skipped
            self._observe(part, rows)
            yield rows

    def _adjacent(self) -> Iterator[_RecordList]:
        """Yield groups of consecutive rows of one question."""
        rest: _RecordList = []
        for part in self._read():
            rows = [*rest, *part]
            cut = len(rows)
            while cut and self._id(rows[cut - 1]) == self._id(rows[-1]):
                cut -= 1
            rest = rows[cut:]
            if cut:
                yield rows[:cut]
        if rest:
            yield rest

    def _id(self, row: Record) -> str:
        return plain_text(row.values.get(self._key))

    def _observe(self, records: Sequence[Record], rows: _RecordList) -> None:
        """Add rows with new columns or values to the sample."""
        answer = self.plan.columns.get("answer", "")
        self._files.update(item.file for item in records)
        self._with_rounds.update(row.file for row in rows)
        low = _lowest(rows, self.plan.columns["round"])
        for row in rows:
            is_new = not row.values.keys() <= self._known
            if is_new:
                self._known |= row.values.keys()
            if not self._lists and _has_lists([row], answer):
                self._lists = is_new = True
            if low < self._low and _lowest([row], self.plan.columns["round"]) == low:
                self._low, is_new = low, True
            if is_new:
                self._further.append(records[row.number - records[0].number])
        for name in self._known - self.texts:
            if not {type(row.values.get(name)) for row in rows} <= _NUMERIC:
                self.texts.add(name)

    def _scan(self) -> _Scan:
        """Read all parts once, to collect facts that no single part shows."""
        self._with_rounds = set()
        self._further, self._lists = [], _has_lists(self._rows, self.plan.columns.get("answer", ""))
        self._low = _lowest(self._rows, self.plan.columns["round"])
        codes, blocks, texts, alike = [], [], [], []
        longest, lowest, n = 0, math.inf, 0
        runs = RunColumns(self._rows, self.plan, self.declared_runs, self._options.where)
        for rows, _ in self.parts():
            by_id = self._by_id(rows)
            n += len(rows)
            codes.append(_codes(by_id))
            alike.append(_codes(map(plain_id, by_id)))
            blocks.append(_codes(self._blocks(rows)))
            longest = max(longest, *map(len, by_id.values()))
            lowest = min(lowest, _lowest(rows, self.plan.columns["round"]))
            runs.add(rows)
            texts.append(_codes(filter(None, (text for text, _ in self._texts(by_id)))))
        if not codes:
            raise UnevenError
        if "question_id" not in self._options.columns:
            plain, ids = (len(np.unique(np.concatenate(own))) for own in (alike, codes))
            if plain < ids:
                raise UnevenError("ids may differ in spaces or leading zeros alone")
        values, counts = np.unique(np.concatenate(texts), return_counts=True)
        return _Scan(
            codes=np.concatenate(codes),
            blocks=np.concatenate(blocks),
            rows=n,
            lowest=0 if math.isinf(lowest) else int(lowest),
            longest=longest,
            runs=runs,
            repeated=frozenset(values[counts > 1].tolist()),
        )

    def _by_id(self, rows: Iterable[Record]) -> dict[str, _RecordList]:
        by_id: dict[str, _RecordList] = {}
        for row in rows:
            by_id.setdefault(self._id(row), []).append(row)
        return by_id

    def _texts(self, by_id: Mapping[str, _RecordList]) -> Iterator[tuple[str, str]]:
        """Yield the normalised text and id of each question; nothing if the table has a column of clusters."""
        name, number = self.plan.columns.get("question"), self.plan.columns["round"]
        if name is None or "cluster" in self.plan.columns:
            return
        for own, rows in by_id.items():
            first = rows[0]
            if any(row.values.get(name) != first.values.get(name) for row in rows):
                first = min(rows, key=lambda row: _lowest([row], number))
            yield normalize_answer(cell_text(first.values.get(name), "question", first.where) or ""), own

    def _shared_names(self, repeated: frozenset[int]) -> dict[str, str]:
        """Return the cluster of each question whose text another question has, too.

        `repeated` has the hashes of such texts.
        """
        names, texts = [], []
        for rows, questions in self.parts() if repeated else ():
            for text, own in self._texts(self._by_id(rows)):
                if hash(text) in repeated:
                    names.append(questions.get(own, own))
                    texts.append(text)
        return dict(zip(names, one_name_per_text(names, texts), strict=True))

    def _gather(self, scan: _Scan) -> None:
        """Gather the rows of each question on disk; questions are in the order of their first rows."""
        codes, first = np.unique(scan.codes, return_index=True)
        n_files = min(-(-scan.rows // PART), len(codes))
        places = np.empty(len(codes), dtype=np.int64)
        places[np.argsort(first)] = np.arange(len(codes)) * n_files // len(codes)
        pending: dict[int, _RecordList] = {}
        n = 0
        for part in chain(self._adjacent(), [None]):
            if part is not None:
                files = places[np.searchsorted(codes, _codes(map(self._id, part)))]
                for row, file in zip(part, files.tolist(), strict=True):
                    pending.setdefault(file, []).append(row)
                n += len(part)
            if part is None or n >= _GATHERED * PART:
                for file, rows in pending.items():
                    with (self._folder / f"{file}.rows").open("ab") as sink:
                        pickle.dump(rows, sink)
                pending, n = {}, 0
        self._source = lambda: map(self._gathered, range(n_files))

    def _gathered(self, file: int) -> _RecordList:
        rows: _RecordList = []
        with (self._folder / f"{file}.rows").open("rb") as source, suppress(EOFError):
            while True:
                rows += pickle.load(source)  # noqa: S301 - written by `_gather` into a folder of our own
        return [*chain.from_iterable(self._by_id(rows).values())]


def _has_lists(rows: Iterable[Record], answer: str) -> bool:
    return any(str(row.values.get(answer))[:1] == "[" for row in rows)


def _codes(texts: Iterable[Hashable]) -> npt.NDArray[np.int64]:
    return np.array([*map(hash, texts)], dtype=np.int64)


def _lowest(rows: Iterable[Record], number: str) -> float:
    """Return the lowest round number; infinite if there is none."""
    texts = {str(row.values.get(number)) for row in rows}
    return min((value for value in map(whole_number, texts) if value is not None), default=math.inf)
