"""Write files of recordings atomically, and open them without reading rows; rows are checked while they are read."""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice.common.files import is_url, place, quoted, reaching, replacing, unreachable
from suffice.errors import DataError, NotFoundError, SchemaError
from suffice.recordings.file_checks import ColumnDigest, TableDigest, check_decoded, chunks_of, damaged, stored_digests
from suffice.recordings.schema import META_KEY, RECORDING_FORMAT, RECORDING_VERSION, ROUNDS_SUFFIX, build_table

if TYPE_CHECKING:
    from suffice.recordings.round_journal import JournalContent

_MAGIC = b"PAR1"
_MORE_READINGS = 4
_LARGE_COLUMN = 1 << 16
_Opened = TypeVar("_Opened", bound="OpenFile")
_Read = TypeVar("_Read")


class PartGoneError(NotFoundError):
    """Raised if a file was removed after it was listed; a compaction removes parts after joining their rows."""

    def __init__(self, path: object) -> None:
        super().__init__(f"{str(path)!r} was compacted or removed while it was read: try again")


def read_again(read: Callable[[], _Read]) -> _Read:
    """Call a function that reads a folder, and repeat the call if the folder is compacted meanwhile; return the result."""
    for _ in range(_MORE_READINGS):
        with suppress(PartGoneError):
            return read()
    return read()


class OpenRecording(ABC):
    """An opened recording with a checked header."""

    path: Path
    schema: pa.Schema
    metadata: dict[str, Any]

    @property
    @abstractmethod
    def n_rows(self) -> int:
        """The number of rows."""

    @abstractmethod
    def round_range(self) -> tuple[int, int]:
        """Return the lowest and the highest round, from the statistics in the file."""

    @abstractmethod
    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows as tables; finally compare each column that was read with its checksum.

        Args:
            rows: The largest number of rows in a table; None = all rows of a file.
            columns: The columns to read; None = all.

        Raises:
            SchemaError: A file is corrupt, truncated or damaged.
        """

    @abstractmethod
    def table(self) -> pa.Table:
        """Return all rows, in the order of the recording."""

    @abstractmethod
    def close(self) -> None:
        """Close the files."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class OpenFile(OpenRecording):
    """One opened parquet file.

    Args:
        path: The file.
        buffer: The content to read, if it differs from the file because rounds are still being added.

    Attributes:
        digests: The checksum of each column; empty for files of older releases.

    Raises:
        NotFoundError: The file does not exist.
        SchemaError: The file is corrupt, truncated, not a recording or of another version, or its header is damaged.
    """

    def __init__(self, path: str | Path, buffer: pa.Buffer | None = None) -> None:
        self.path = path = place(path)
        if buffer is None and not path.is_file():
            raise NotFoundError(f"the recording {str(path)!r} does not exist")
        self._buffer = buffer
        self._opened: pq.ParquetFile | None = None
        try:
            self.schema, stored = self.file.schema_arrow, self.file.metadata.metadata
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise _unreadable_file(path, error) from None
        header = (self.schema.metadata or {}).get(META_KEY)
        if header is None:
            raise SchemaError(
                f"{str(path)!r} is parquet, but not a recording of Suffice: convert other tables with `suffice import`"
            )
        try:
            self.metadata = json.loads(header)
        except ValueError as error:
            raise SchemaError(f"the header of {str(path)!r} is not JSON: {error}") from None
        if not isinstance(self.metadata, dict):
            raise SchemaError(f"the header of {str(path)!r} must be a JSON object, not {str(self.metadata)[:80]!r}")
        if self.metadata.get("format") != RECORDING_FORMAT or self.metadata.get("version") != RECORDING_VERSION:
            raise SchemaError(
                f"{str(path)!r} has the format {self.metadata.get('format')!r} version {self.metadata.get('version')!r}; "
                f"this release reads {RECORDING_FORMAT!r} version {RECORDING_VERSION}"
            )
        self.digests: Mapping[str, str] = stored_digests(self.schema, header, stored, path)

    @property
    def file(self) -> pq.ParquetFile:
        """The opened file; opened again after `close`."""
        if self._opened is None:
            remote = self._buffer is None and is_url(self.path)
            try:
                source = self.path if self._buffer is None else pa.BufferReader(self._buffer)
                # From a URL, only the bytes of the columns are read, in few requests.
                source = _remote_file(self.path) if remote else source
                self._opened = pq.ParquetFile(source, page_checksum_verification=True, pre_buffer=remote)
            except FileNotFoundError:
                raise PartGoneError(self.path) from None
        return self._opened

    @contextmanager
    def used(self) -> Iterator[pq.ParquetFile]:
        """Yield the opened file for one use."""
        yield self.file

    @property
    def n_rows(self) -> int:
        """The number of rows."""
        with self.used() as file:
            return int(file.metadata.num_rows)

    @property
    def group_rows(self) -> list[int]:
        """The number of rows of each row group."""
        with self.used() as file:
            return [file.metadata.row_group(i).num_rows for i in range(file.metadata.num_row_groups)]

    def round_range(self) -> tuple[int, int]:
        """Return the lowest and the highest round, from the statistics in the file."""
        with self.used() as file:
            statistics = self._statistics(file, "round")
            if all(item is not None and item.has_min_max for item in statistics):
                ends = [(item.min, item.max) for item in statistics]
            else:
                batches = file.iter_batches(columns=["round"])
                ends = [tuple(pc.min_max(batch.column(0)).as_py().values()) for batch in batches]
        return min(low for low, _ in ends), max(high for _, high in ends)

    def is_blank(self, name: str) -> bool:
        """Return True if a column has no value, according to the statistics in the file."""
        with self.used() as file:
            statistics = self._statistics(file, name)
            if all(item is not None and item.has_null_count for item in statistics):
                n_missing = sum(item.null_count for item in statistics)
            else:
                n_missing = file.read(columns=[name]).column(0).null_count
            return bool(n_missing == file.metadata.num_rows)

    def _statistics(self, file: pq.ParquetFile, name: str) -> list[Any]:
        try:
            chunks = [*chunks_of(file, range(file.metadata.num_row_groups), [name])]
        except (pa.ArrowException, OSError) as error:
            raise _unreadable_file(self.path, error) from None
        return [chunk.statistics if chunk.is_stats_set else None for chunk in chunks]

    def tables(self, rows: int | None = None, columns: Sequence[str] | None = None) -> Iterator[pa.Table]:
        """Yield the rows as tables; finally compare each column that was read with its checksum."""
        with self.used() as file:
            digests = self.new_digests(columns)
            yield from self.group_tables(range(file.metadata.num_row_groups), rows, columns, digests)
            self.compare(digests)

    def group_tables(
        self,
        groups: range,
        rows: int | None = None,
        columns: Sequence[str] | None = None,
        digests: Mapping[str, ColumnDigest] | None = None,
    ) -> Iterator[pa.Table]:
        """Yield the rows of the row groups `groups`, and add the rows to the checksums in `digests`.

        The checksums are compared after the last row.
        """
        metadata = self.schema.metadata  # without the checksums, since the caller may change the table
        with self.used() as file, reaching(self.path):
            try:
                if self._buffer is None and not is_url(self.path):
                    for some in [groups] if rows is None else ([group] for group in groups):
                        check_decoded(file, self.path, some, rows, columns)
                names = None if columns is None else [*columns]
                if rows is None:
                    found = iter([file.read_row_groups([*groups], columns=names)])
                else:
                    batches = file.iter_batches(rows, row_groups=[*groups], columns=names)
                    found = (pa.Table.from_batches([batch]) for batch in batches)
                for table in found:
                    if columns is None:
                        table.validate(full=True)  # raises for text that is not UTF-8
                    for name, digest in (digests or {}).items():
                        digest.update(table.column(name))
                    yield table.replace_schema_metadata(metadata)
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                raise _unreadable_file(self.path, error) from None

    def new_digests(self, columns: Sequence[str] | None = None, after: int = 0) -> dict[str, ColumnDigest]:
        """Return a new checksum, to be updated with rows, for each of `columns` that has a stored checksum."""
        return {name: ColumnDigest(after) for name in self.digests if columns is None or name in columns}

    def compare(self, digests: Mapping[str, ColumnDigest]) -> None:
        """Compare the checksums of all rows with those in the file."""
        with self.used():
            for name, digest in digests.items():
                if digest.value != self.digests[name]:
                    raise damaged(self.path, f"the column {name!r}")

    def table(self) -> pa.Table:
        """Return all rows, in the order of the file."""
        (table,) = self.tables()
        return table

    @property
    def is_in_memory(self) -> bool:
        """True if some rounds are only in memory, because a `Recorder` is still adding them."""
        return self._buffer is not None

    def __getstate__(self) -> dict[str, Any]:
        if self.is_in_memory:
            raise TypeError("rounds that are not in a file cannot be sent to another process")
        return {**vars(self), "_opened": None}  # the receiving process opens it again

    def close(self) -> None:
        """Close the file."""
        if self._opened is not None:
            self._opened.close(force=True)
            self._opened = None


def open_file(path: str | Path, kind: type[_Opened]) -> _Opened:
    """Open a file of a recording, with the rounds that a `Recorder` is still adding to it.

    Raises:
        DataError: The file does not exist, or no round was observed yet.
        SchemaError: The file is corrupt, truncated, not a recording or of another version, or its header is damaged.
    """
    path = place(path)
    # The journal is read before the recording: rows that are moved meanwhile are then in both, and none is missed.
    content = _journal_content(path)
    if content is None:
        return kind(path)
    check_moved(path, content)
    if not content.questions and path.is_file():
        return kind(path)
    sink = io.BytesIO()
    table, metadata = with_journal(path, content)
    _write(sink, table.schema, [table], metadata)
    return kind(path, pa.py_buffer(sink.getvalue()))


def check_moved(path: Path, content: JournalContent | None) -> None:
    """Raise a `SchemaError` if a file lacks rows that were moved to it from its journal.

    This happens if file and journal are copies from different times.
    """
    if content is None or not content.file_rows:
        return
    n_rows = 0
    if path.is_file():
        with OpenFile(path) as opened:
            n_rows = opened.n_rows
    now = _journal_content(path) if n_rows < content.file_rows else None  # unless it was compacted meanwhile
    if now is not None and n_rows < now.file_rows:
        raise SchemaError(
            f"{str(path)!r} has {n_rows:,} rows, and its journal {path.name + ROUNDS_SUFFIX!r} says that {content.file_rows:,} were moved to it, "
            "as in a copy that was made meanwhile: copy both again. If the file was changed on purpose, remove the journal; "
            f"{sum(question.ending is None for question in content.questions):,} questions in it have not ended"
        )


def _journal_content(path: Path) -> JournalContent | None:
    """Return the content of a recording's journal; None if there is no journal."""
    if not path.with_name(path.name + ROUNDS_SUFFIX).exists():
        return None
    from suffice.recordings.round_journal import RoundJournal

    return RoundJournal(path).content()


def with_journal(path: str | Path, content: JournalContent) -> tuple[pa.Table, dict[str, Any]]:
    """Combine a recording with its journal; see `merged`."""
    from suffice.recordings.merging import merged

    if not place(path).is_file():
        return merged(None, {}, content)
    with OpenFile(path) as opened:
        (stored,) = opened.tables()
        return merged(stored, opened.metadata, content)


def run_starts(ids: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Return the numbers of the rows whose question differs from that of the previous row, and of the first row."""
    if ids.null_count:
        raise SchemaError("the column 'question_id' must contain text in every row")
    changes = pc.not_equal(ids.slice(1), ids.slice(0, len(ids) - 1))
    return np.concatenate([[0], np.flatnonzero(changes.to_numpy()) + 1]).astype(np.int64)


def write_recording(
    path: str | Path,
    rows: Iterable[Mapping[str, Any]] | pa.Table,
    metadata: Mapping[str, Any] | None = None,
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Write a recording atomically.

    Args:
        path: The parquet file.
        rows: One mapping for each question and round (see `build_table`), or a table.
        metadata: Configuration and provenance, JSON-ready.
        kinds: Kinds of columns that the name does not determine.

    Raises:
        DataError: The disk is full, or the path cannot be written.
    """
    table = rows if isinstance(rows, pa.Table) else build_table(rows, kinds)
    write_tables(path, table.schema, [table], metadata)


def write_tables(
    path: str | Path,
    schema: pa.Schema,
    tables: Iterable[pa.Table],
    metadata: Mapping[str, Any] | None = None,
    *,
    private: bool = False,
) -> None:
    """Write a recording in pieces, atomically; with `private`, only the owner can read the file."""
    with replacing(path, private=private) as temporary:
        _write(temporary, schema, tables, metadata)


def _write(
    sink: Path | io.BytesIO, schema: pa.Schema, tables: Iterable[pa.Table], metadata: Mapping[str, Any] | None
) -> None:
    header = header_text(metadata)
    schema = schema.with_metadata({META_KEY: header})
    digest = TableDigest(schema, header)
    remaining = iter(tables)
    table = next(remaining, None)
    with pq.ParquetWriter(sink, schema, compression=_codecs(schema, table), write_page_checksum=True) as writer:
        while table is not None:  # no other variable refers to a table, which may be large
            writer.write_table(table)
            digest.update(table)
            table = next(remaining, None)
        writer.add_key_value_metadata(digest.to_metadata())


def _codecs(schema: pa.Schema, first: pa.Table | None) -> dict[str, str]:
    """Return the compression of each column: zstd for large columns; for small columns snappy, which needs no setup.

    A part of a log has many small columns, and the setup of zstd for each would take two thirds of the time to read the part.
    """
    codecs = {}
    for i, field in enumerate(schema):
        path = field.name
        kind = field.type
        while pa.types.is_list(kind) or pa.types.is_large_list(kind):
            path, kind = f"{path}.list.element", kind.value_type
        codecs[path] = "snappy" if first is not None and first.column(i).nbytes < _LARGE_COLUMN else "zstd"
    return codecs


def header_text(metadata: Mapping[str, Any] | None) -> bytes:
    """Return the header of a recording with this metadata."""
    return json.dumps(
        {**(metadata or {}), "format": RECORDING_FORMAT, "version": RECORDING_VERSION}, sort_keys=True
    ).encode()


def _remote_file(path: Any) -> Any:
    return path.fs.open(path.path, "rb", cache_type="none")


def _unreadable_file(path: str | Path, error: Exception) -> DataError:
    path = place(path)
    # The operating system's errors have a number; errors about damaged files have none.
    if is_url(path) and isinstance(error, OSError) and (error.errno is not None or type(error) is not OSError):
        return unreachable(path, error)
    with suppress(OSError), path.open("rb") as file:
        start = file.read(len(_MAGIC))
        if start and start != _MAGIC and path.suffix != ".parquet":
            return SchemaError(f"{str(path)!r} is not a recording; a log becomes one by: suffice import {quoted(path)}")
    return SchemaError(f"{str(path)!r} cannot be read as parquet (corrupt or truncated?): {error}")
