"""Check a recording's file: before rows are read, check that they fit into memory; while reading, check the checksums.

Parquet stores a repeated text once. So a file of some kilobytes may contain thousands of rows of megabytes each, and
its metadata does not show this. The size is therefore computed by reading each text as a reference to the stored text.

Parquet itself only has checksums of pages.  The metadata of the file contains one checksum for the header (the JSON
object and the names and kinds of columns) and one for the decoded values of each column.  If only some columns are
read, only their checksums are checked.  The checksums do not depend on chunks, row groups, encodings and compression,
so a recording can be written and read in pieces.
"""

from __future__ import annotations

import json
import os
import zlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from suffice.errors import DataError, SchemaError

VARIABLE = "SUFFICE_MAX_DECODED_BYTES"
"""The environment variable with the largest size of rows in memory."""

_MOST_BYTES = 8 << 30
_TEXT = "BYTE_ARRAY"
_NUMBER_BYTES = 8
_ROWS = 1 << 16

DIGEST_KEY = b"suffice.digest"
"""File metadata key of the checksums."""

_PARQUET_PREFIX = b"PARQUET:"
_POLYNOMIAL = 0xEDB88320
_RECENT: deque[tuple[pa.Schema, bytes, str]] = deque(maxlen=1)
"""The header of the file before, which is that of all parts of most folders, with its checksum."""
_EMPTY = (0, 0)
_NONE = np.zeros(0, dtype=np.int64)


def check_decoded(
    file: pq.ParquetFile, path: Any, groups: Sequence[int], rows: int | None, columns: Sequence[str] | None
) -> None:
    """Raise a `SchemaError` if rows that are read at once take more memory than `most_bytes`.

    Args:
        file: The opened file.
        path: Its path, for the message.
        groups: The row groups to read.
        rows: Number of rows that are read at once; None = all rows of these groups.
        columns: The columns to read; None = all.
    """
    most = most_bytes()
    # Each value may be as long as all values of its row group together.
    wholes = [file.metadata.row_group(group) for group in groups]
    if sum(one.num_rows * (one.total_byte_size + _NUMBER_BYTES * one.num_columns) for one in wholes) <= most:
        return
    chunks = [*chunks_of(file, groups, columns)]
    if sum(_bound(chunk, rows) for chunk in chunks) <= most:
        return
    numbers = sum(_bound(chunk, rows) for chunk in chunks if chunk.physical_type != _TEXT)
    texts = list(dict.fromkeys(chunk.path_in_schema for chunk in chunks if chunk.physical_type == _TEXT))
    size = largest = numbers
    if texts and size <= most:
        with _referring(path, file.metadata, texts) as referring:
            # Group by group: each has its own dictionary, and arrow cannot read lists of references to two dictionaries.
            for group in groups:
                for batch in referring.iter_batches(rows or _ROWS, row_groups=[group], columns=texts):
                    size = (size if rows is None else numbers) + sum(map(_size_of, batch.columns))
                    largest = max(size, largest)
                    if largest > most:
                        break
    if largest > most:
        raise SchemaError(
            f"{str(path)!r} has rows of more than {most:,} bytes in memory, although it is smaller on disk, as a file that is made to exhaust "
            f"the memory. If it can be trusted, set the environment variable {VARIABLE} to a larger number of bytes"
        )


def _referring(path: Any, footer: Any, texts: list[str]) -> pq.ParquetFile:
    """Open a file such that its texts are read as references to a dictionary."""
    try:
        return pq.ParquetFile(path, metadata=footer, read_dictionary=texts)
    except KeyError as error:
        raise pa.ArrowInvalid(f"the footer lacks the column {error}") from None


def most_bytes() -> int:
    """Return the largest size in bytes of rows that are read at once: 8 GiB, or the value of an environment variable."""
    text = os.environ.get(VARIABLE, "")
    if not text:
        return _MOST_BYTES
    if not text.isdecimal() or not int(text):
        raise DataError(f"the environment variable {VARIABLE} must be a positive whole number of bytes, not {text!r}")
    return int(text)


def chunks_of(file: pq.ParquetFile, groups: Iterable[int], columns: Sequence[str] | None = None) -> Iterator[Any]:
    """Yield the metadata of column chunks, group by group."""
    names = [file.schema.column(i).path.partition(".")[0] for i in range(len(file.schema))]
    places = [i for i, name in enumerate(names) if columns is None or name in columns]
    for group in groups:
        # Read a row first: this raises an error if the footer is damaged, while asking for a chunk would end the process.
        next(file.iter_batches(1, row_groups=[group], columns=[*dict.fromkeys(names[i] for i in places)]), None)
        row_group = file.metadata.row_group(group)
        yield from (row_group.column(i) for i in places)


def _bound(chunk: Any, rows: int | None) -> int:
    """Return a chunk's largest possible size in memory according to its metadata.

    The metadata does not bound single texts, so each text may be as long as all stored texts together.
    """
    n = int(chunk.num_values if rows is None else min(chunk.num_values, rows))
    if chunk.physical_type != _TEXT:
        return _NUMBER_BYTES * n
    return int(chunk.total_uncompressed_size) * (n if chunk.has_dictionary_page else 1)


def _size_of(values: pa.Array) -> int:
    """Return the size in memory of texts, or of lists of texts, that are stored as references to a dictionary."""
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
    counts = np.bincount(values.indices.drop_null().to_numpy(), minlength=len(values.dictionary))
    lengths = pc.binary_length(values.dictionary).fill_null(0).to_numpy()
    return int(counts @ lengths)


class ColumnDigest:
    """The checksum of one column, computed in any number of pieces, one after another or independently.

    >>> whole, parts = ColumnDigest(), ColumnDigest()
    >>> whole.update(pa.array(["Oslo", None, "Lima"]))
    >>> parts.update(pa.array(["Oslo", None])); parts.update(pa.array(["Lima"]))
    >>> whole.value == parts.value
    True
    >>> first, second = ColumnDigest(), ColumnDigest(after=2)
    >>> first.update(pa.array(["Oslo", None])); second.update(pa.array(["Lima"]))
    >>> (first + second).value == whole.value
    True

    Args:
        after: Number of rows before this piece, if checksums of pieces are added up. Checksums of lists cannot be
            added.
    """

    def __init__(self, after: int = 0) -> None:
        self._after = after
        self._rows = 0
        self._kind = ""
        self._sums: dict[str, tuple[int, int]] = {}  # the checksum, and its number of bytes
        self._items: ColumnDigest | None = None

    def __add__(self, other: ColumnDigest) -> ColumnDigest:
        if self._items or other._items or other._after != self._after + self._rows:
            raise ValueError("checksums are added in the order of the rows, and not of lists")
        both = ColumnDigest(self._after)
        both._rows = self._rows + other._rows
        both._kind = other._kind or self._kind
        none = (0, 0)
        for what in self._sums | other._sums:
            (first, length), (second, more) = self._sums.get(what, none), other._sums.get(what, none)
            both._sums[what] = _joined_crc(first, second, more), length + more
        return both

    @property
    def value(self) -> str:
        """The checksum of all values so far, eight hexadecimal digits."""
        # The text of json.dumps(..., sort_keys=True), which itself takes longer than the checksum of a small part.
        items = "null" if self._items is None else f'"{self._items.value}"'
        sums = ", ".join(f'"{what}": {checksum}' for what, (checksum, _) in sorted(self._sums.items()))
        return _crc(f'[{self._rows}, "{self._kind}", {{{sums}}}, {items}]'.encode())

    def update(self, values: pa.Array | pa.ChunkedArray) -> None:
        """Add the next rows."""
        for chunk in values.chunks if isinstance(values, pa.ChunkedArray) else [values]:
            if len(chunk):
                self._update(chunk)

    def _update(self, values: pa.Array) -> None:
        kind = values.type
        if pa.types.is_dictionary(kind):
            values = values.dictionary_decode()
            kind = values.type
        rows, n_missing = len(values), values.null_count
        missing = _NONE
        if n_missing == rows:
            missing = np.arange(rows, dtype=np.int64)
        elif n_missing:
            missing = np.flatnonzero(values.is_null().to_numpy(zero_copy_only=False))
        if n_missing:
            self._add("nulls", missing + (self._after + self._rows))
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            self._kind = str(kind)
            self._numbers(values, missing)
        elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
            self._kind = "text"
            self._text(values, missing)
        elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
            self._kind = "list"
            lengths = _lengths(values)
            lengths[missing] = 0
            self._add("lengths", lengths)
            self._items = self._items or ColumnDigest()
            self._items.update(values.flatten())
        elif pa.types.is_boolean(kind):
            self._kind = "bool"
            self._add("values", values.fill_null(False).to_numpy(zero_copy_only=False))
        else:  # such as dates in other tables
            self._kind = "other"
            self._add("values", "".join(f"{value!r}\n" for value in values.to_pylist()).encode())
        self._rows += rows

    def _numbers(self, values: pa.Array, missing: npt.NDArray[np.int64]) -> None:
        width = values.type.bit_width // 8
        if len(missing) == len(values):
            self._add("values", bytes(width * len(values)))
            return
        data = memoryview(values.buffers()[1])[width * values.offset : width * (values.offset + len(values))]
        if len(missing):
            numbers = np.frombuffer(data, dtype=f"u{width}").copy()
            numbers[missing] = 0
            data = numbers.data
        self._add("values", data)

    def _text(self, values: pa.Array, missing: npt.NDArray[np.int64]) -> None:
        offsets = _offsets(values)
        lengths = _lengths(values)
        if len(missing) and lengths[missing].any():  # text under a missing value, which does not count
            self._text(values.fill_null(""), _NONE)
            return
        data = values.buffers()[2]
        self._add("lengths", lengths)
        self._add("values", b"" if data is None else memoryview(data)[int(offsets[0]) : int(offsets[-1])])

    def _add(self, what: str, data: Any) -> None:
        raw = np.ascontiguousarray(data).data if isinstance(data, np.ndarray) else data
        checksum, length = self._sums.get(what, _EMPTY)
        self._sums[what] = zlib.crc32(raw, checksum), length + (raw.nbytes if isinstance(raw, memoryview) else len(raw))


def _offsets(values: pa.Array) -> npt.NDArray[Any]:
    """Return the offsets of texts or lists.

    They are read from the buffer, because arrow's functions take longer than a small checksum.
    """
    is_large = pa.types.is_large_string(values.type) or pa.types.is_large_list(values.type)
    offsets = np.frombuffer(values.buffers()[1], dtype=np.int64 if is_large else np.int32)
    return offsets[values.offset : values.offset + len(values) + 1]


def _lengths(values: pa.Array) -> npt.NDArray[np.int64]:
    offsets = _offsets(values).astype(np.int64)
    return np.asarray(offsets[1:] - offsets[:-1])


class TableDigest:
    """The checksums of a recording written as one or more tables of one schema."""

    def __init__(self, schema: pa.Schema, header: bytes) -> None:
        self._header = header_digest(schema, header)
        self._columns = [ColumnDigest() for _ in schema]

    def update(self, table: pa.Table) -> None:
        """Add the next rows."""
        for digest, column in zip(self._columns, table.columns, strict=True):
            digest.update(column)

    def to_metadata(self) -> dict[bytes, bytes]:
        """Return the entries for the metadata of the file."""
        stored = {"header": self._header, "columns": [digest.value for digest in self._columns]}
        return {DIGEST_KEY: json.dumps(stored).encode()}


def header_digest(schema: pa.Schema, header: bytes) -> str:
    """Return the checksum over a header and over the names and metadata of the columns."""
    for known, same_header, digest in tuple(_RECENT):  # another thread may append meanwhile
        if same_header == header and known.equals(schema, check_metadata=True):
            return digest
    digest = _header_digest(schema, header)
    _RECENT.append((schema, header, digest))
    return digest


def _header_digest(schema: pa.Schema, header: bytes) -> str:
    fields = [
        [
            field.name,
            sorted((k.hex(), v.hex()) for k, v in (field.metadata or {}).items() if not k.startswith(_PARQUET_PREFIX)),
        ]
        for field in schema
    ]
    return _crc(json.dumps(fields).encode() + header)


def stored_digests(schema: pa.Schema, header: bytes, stored: Mapping[bytes, bytes], path: object) -> dict[str, str]:
    """Check the header, and return the stored checksums by column; empty for files of older releases."""
    text = stored.get(DIGEST_KEY)
    if text is None:
        return {}
    columns: dict[str, str] = {}
    try:
        digests = json.loads(text)
        columns = dict(zip(schema.names, digests["columns"], strict=True))
        matches = digests["header"] == header_digest(schema, header)
    except (ValueError, KeyError, TypeError):
        matches = False
    if not matches:
        raise damaged(path, "its header")
    return columns


def damaged(path: object, what: str) -> SchemaError:
    """Return the error for a file whose checksums do not match its content."""
    return SchemaError(
        f"{str(path)!r} is damaged, or was changed by another program: the checksum of {what} does not "
        "match. Copy the file again from an intact source; write changed tables with write_recording"
    )


def _crc(data: bytes) -> str:
    return f"{zlib.crc32(data):08x}"


def _joined_crc(first: int, second: int, length: int) -> int:
    """Return the CRC-32 of two joined pieces of bytes, given the CRC-32 of each and the length of the second.

    >>> _joined_crc(zlib.crc32(b"Os"), zlib.crc32(b"lo, Norway"), 10) == zlib.crc32(b"Oslo, Norway")
    True
    """
    # As `crc32_combine` of zlib: appending a zero bit is a linear map of the 32 bits, stored as the image of each bit; squaring it doubles the zeros.
    one_bit = [_POLYNOMIAL, *(1 << i for i in range(31))]
    power = one_bit
    for _ in range(3):  # a byte
        power = [_mapped(power, row) for row in power]
    while length:
        if length & 1:
            first = _mapped(power, first)
        length >>= 1
        power = [_mapped(power, row) for row in power] if length else power
    return first ^ second


def _mapped(rows: list[int], bits: int) -> int:
    result = 0
    for i, row in enumerate(rows):
        if bits >> i & 1:
            result ^= row
    return result
