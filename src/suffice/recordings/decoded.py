"""Refuse files that are small on disk and huge in memory, before their rows are read.

Parquet stores a repeated text once.  So a file of some kilobytes may contain thousands of rows of megabytes each, and its metadata
does not say so: the texts are counted here as references to the stored ones.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
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
    # Each value may be as long as all of its group.
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
            # Group by group: each has a dictionary of its own, and arrow cannot read lists of references to two of them.
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
    """Open a file whose texts are read as references to a dictionary."""
    try:
        return pq.ParquetFile(path, metadata=footer, read_dictionary=texts)
    except KeyError as error:
        raise pa.ArrowInvalid(f"the footer lacks the column {error}") from None


def most_bytes() -> int:
    """Return the largest size in memory of rows that are read at once, 8 GiB or as the environment says."""
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
        # Asked for a chunk of a damaged footer, pyarrow ends the process; to read a row of it raises an error.
        next(file.iter_batches(1, row_groups=[group], columns=[*dict.fromkeys(names[i] for i in places)]), None)
        row_group = file.metadata.row_group(group)
        yield from (row_group.column(i) for i in places)


def _bound(chunk: Any, rows: int | None) -> int:
    """Return the largest size in memory that a chunk can have, by its metadata: each text may be as long as all of them."""
    n = int(chunk.num_values if rows is None else min(chunk.num_values, rows))
    if chunk.physical_type != _TEXT:
        return _NUMBER_BYTES * n
    return int(chunk.total_uncompressed_size) * (n if chunk.has_dictionary_page else 1)


def _size_of(values: pa.Array) -> int:
    """Return the size of texts that are references to a dictionary, also in lists."""
    while pa.types.is_list(values.type) or pa.types.is_large_list(values.type):
        values = values.flatten()
    counts = np.bincount(values.indices.drop_null().to_numpy(), minlength=len(values.dictionary))
    lengths = pc.binary_length(values.dictionary).fill_null(0).to_numpy()
    return int(counts @ lengths)
