"""Read files of traces: JSON or JSON lines, gzipped or not, one file or a folder of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suffice.common.files import decoded, json_lines, unpacked
from suffice.common.json_text import load_json, values_in
from suffice.errors import DataError, SchemaError
from suffice.importers.columns.grid import whole_number
from suffice.importers.files.literals import load_record
from suffice.importers.files.recognise import data_files, head_of
from suffice.importers.files.records import csv_rows, parquet_rows

_LONGEST_ID = 256
_BETWEEN_OBJECTS = re.compile(r"\}\s+\{")
_SECONDS, _MILLISECONDS, _MICROSECONDS = 10**11, 10**14, 10**17  # a number below the bound is in this unit
_LATEST = 2**64  # nanoseconds have 64 bits


def documents(path: str | Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the JSON objects of a file or folder (array, lines or single object), each with its location."""
    for file in data_files(path):
        count = 0
        for where, value in _values(file):
            for item in value if isinstance(value, list) else [value]:
                if not isinstance(item, dict):
                    raise SchemaError(f"{where}: found {type(item).__name__}; expected JSON objects of a trace export")
                count += 1
                yield where, item
        if not count:
            raise DataError(f"{file}: the file is empty; export the traces again")


def _values(file: Path) -> Iterator[tuple[str, Any]]:
    head = head_of(file)
    if head.form == "parquet":
        yield from parquet_rows(file)
        return
    if head.form == "text":
        yield from ((where, {name: _cell(name, text) for name, text in row.items()}) for where, row in csv_rows(file))
        return
    if any(part in (".jsonl", ".ndjson") for part in file.suffixes):
        yield from json_lines(file, "one JSON object of a trace export")
        return
    text = decoded(b"".join(unpacked(file)), str(file))
    if not text.strip():
        return
    try:
        yield from ((str(file), value) for value in values_in(text))
    except ValueError as error:
        raise DataError(
            f"{file}: not complete JSON ({error}); the export may have been cut off: export it again"
        ) from error


def _cell(name: str, text: Any) -> Any:
    """Return a cell of a span table; a list of messages, written as JSON, Python or NumPy, is parsed, and other text is unchanged."""
    if not isinstance(text, str) or not name.endswith("messages") or text[:1] != "[":
        return text
    for written in (text, _BETWEEN_OBJECTS.sub("}, {", text)):
        with suppress(ValueError):
            return load_record(written)
    return text


def unwrapped(value: Any) -> Any:
    r"""Parse JSON that was encoded as text, once or repeatedly; return other text unchanged.

    >>> unwrapped('"[{\\"role\\": \\"user\\"}]"')
    [{'role': 'user'}]
    >>> unwrapped("42 is the answer")
    '42 is the answer'
    """
    while isinstance(value, str) and value.lstrip()[:1] in ("{", "[", '"'):
        try:
            value = load_json(value)
        except ValueError:
            break
    return value


def dotted_fields(value: Any, prefix: str = "") -> dict[str, Any]:
    """Flatten nested objects, and lists of objects, to dotted names.

    >>> dotted_fields({"llm": {"output_messages": [{"message.role": "user"}]}, "tags": ["a", "b"]})
    {'llm.output_messages.0.message.role': 'user', 'tags': ['a', 'b']}
    """
    if isinstance(value, dict):
        pairs = list(value.items())
    elif isinstance(value, list) and value and all(isinstance(item, dict) for item in value):
        pairs = [(str(place), item) for place, item in enumerate(value)]
    else:
        return {prefix: value}
    return {
        name: leaf
        for key, item in pairs
        for name, leaf in dotted_fields(item, f"{prefix}.{key}" if prefix else str(key)).items()
    }


def fields_of(value: Any) -> dict[str, Any]:
    """Return an object unchanged, and an empty object for any other value."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[dict[str, Any]]:
    """Return the objects in a list; an empty list for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def short_ids(values: Any) -> dict[str, str]:
    """Return the values that may be ids (short texts and whole numbers), by dotted name."""
    ids = {}
    for name, value in dotted_fields(values).items():
        if isinstance(value, str | int) and not isinstance(value, bool) and 0 < len(str(value)) <= _LONGEST_ID:
            ids[name] = str(value)
    return ids


def nanoseconds(value: Any, where: str) -> int | None:
    """Convert a time to nanoseconds since 1970.

    The time is ISO 8601 text (UTC unless it names a zone), or a number in any usual unit.

    >>> nanoseconds("2025-06-11T14:01:32.598Z", "")
    1749650492598000000
    >>> nanoseconds(1749650492.5, ""), nanoseconds("1749650492598000000", "")
    (1749650492500000000, 1749650492598000000)
    """
    if value is None or value == "":
        return None
    number = whole_number(value) if isinstance(value, str) else value
    if isinstance(number, int | float) and not isinstance(number, bool) and abs(number) < _LATEST:
        scale = next((factor for limit, factor in _TIME_UNITS if abs(number) < limit), 1)
        return round(number * scale)
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise DataError(f"{where}: {value!r:.80} is not a time; expected ISO 8601 or a number since 1970") from None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 10**9 + since.microseconds * 1000


_TIME_UNITS = ((_SECONDS, 10**9), (_MILLISECONDS, 10**6), (_MICROSECONDS, 10**3))
