"""Rows of a CSV file."""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from suffice.errors import DataError
from suffice.files import decoded, unpacked

__all__ = ["csv_rows"]


def csv_rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the rows of a CSV file with a header, each with its place for messages; an empty field is None.

    Raises:
        DataError: A row has another number of fields than the header, or the file is not CSV in UTF-8.
    """
    limit = csv.field_size_limit(sys.maxsize)  # a passage or a draft may have a megabyte
    try:
        lines = (decoded(raw, f"{path}, line {number}") for number, raw in enumerate(unpacked(path), start=1))
        table = csv.DictReader(lines, strict=True)
        for record in table:
            where = f"{path}, line {table.line_num}"
            if None in record or None in record.values():
                raise DataError(f"{where}: expected {len(table.fieldnames or ())} fields, as in the header")
            # An empty field is a missing value: CSV has one form for both.
            yield where, {name: value or None for name, value in record.items()}
    except csv.Error as error:
        raise DataError(f"{path}: not CSV ({error}).") from error
    finally:
        csv.field_size_limit(limit)
