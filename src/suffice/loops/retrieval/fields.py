"""Read fields of published rows: lists written as text, and lists that the hub stores as columns."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from suffice.common.json_text import load_json
from suffice.common.syntax import literal_of
from suffice.errors import DataError

PublishedRow = dict[str, Any]
"""A row as read from a file."""

_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*["]""", re.DOTALL)


def text_field(record: Mapping[str, Any], key: str, where: str, *, required: bool = False) -> str | None:
    """Return a field's text; None if the field is missing."""
    value = record.get(key)
    if value is None and not required:
        return None
    if not isinstance(value, str) or (required and not value.strip()):
        raise DataError(f"{where}: {key} is {value!r:.80}; expected a {'non-empty ' if required else ''}string")
    return value


def list_field(record: Mapping[str, Any], key: str, where: str) -> list[Any]:
    """Return a field's list; an empty list if the field is missing."""
    value = literal(record.get(key))
    if value is None:
        return []
    if not isinstance(value, list):
        raise DataError(f"{where}: {key} is {value!r:.80}; expected a list")
    return value


def object_of(record: object, where: str, fields: str = "id and question") -> PublishedRow:
    """Return a record if it is a JSON object; raise otherwise."""
    if not isinstance(record, dict):
        raise DataError(f"{where}: found {type(record).__name__} {record!r:.60}; expected a JSON object with {fields}")
    return record


def texts_of(record: Mapping[str, Any], key: str, where: str) -> list[str]:
    """Return the distinct texts of a field that contains one text or a list; blank texts are left out."""
    value = literal(record.get(key))
    items = [] if value is None else value if isinstance(value, list) else [value]
    if isinstance(value, str) and value.lstrip().startswith("["):
        raise DataError(f"{where}: {key} is {value!r:.80}; it begins like a list, but cannot be read as one")
    if not all(isinstance(item, str) for item in items):
        raise DataError(f"{where}: {key} is {value!r:.80}; expected text, or a list of texts")
    return distinct(items)


def distinct(texts: Iterable[str | None]) -> list[str]:
    """Return the distinct texts that are not blank."""
    return [*dict.fromkeys(text for text in texts if text and text.strip())]


def objects_of(record: Mapping[str, Any], key: str, where: str) -> list[PublishedRow]:
    """Return the objects of a field.

    The field contains a list of objects, or one object of columns, such as `{"title": ["Oslo", "Lima"]}`; the hub stores
    lists in this way.
    """
    value = literal(record.get(key))
    if isinstance(value, dict):
        columns = {name: column for name, column in value.items() if isinstance(column, list)}
        if len(columns) != len(value) or len({*map(len, columns.values())}) > 1:
            raise DataError(f"{where}: {key} is {value!r:.80}; expected columns of one length")
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    listed = list_field({key: value}, key, where)
    return [object_of(item, f"{where}, {key} {place}", "columns") for place, item in enumerate(listed)]


def pairs_of(record: Mapping[str, Any], key: str, where: str, second: tuple[str, ...]) -> list[list[Any]]:
    """Return the pairs in a field, each of which starts with a title.

    The field contains a list of pairs, or the column `title` and one of the columns in `second`.
    """
    value = literal(record.get(key))
    if isinstance(value, dict):
        rows = objects_of({key: value}, key, where)
        name = next((name for name in second if name in value), second[0])
        pairs = [[row.get("title"), row.get(name)] for row in rows]
    else:
        pairs = list_field({key: value}, key, where)
    for pair in pairs:
        if not isinstance(pair, list) or len(pair) != 2 or not isinstance(pair[0], str):  # noqa: PLR2004 - a pair
            raise DataError(f"{where}: {key} contains {pair!r:.80}; expected pairs that start with a title")
    return pairs


def literal(value: Any) -> Any:
    """Parse a list or object that a table spells as text in JSON, Python or NumPy; return other values unchanged.

    >>> literal('["Oslo"]'), literal("['Oslo', 'Lima']"), literal("['Oslo' 'Lima']"), literal("[0, 1)")
    (['Oslo'], ['Oslo', 'Lima'], ['Oslo', 'Lima'], '[0, 1)')
    """
    if not isinstance(value, str) or value.lstrip()[:1] not in ("[", "{"):
        return value
    for read in (load_json, _python_value):
        try:
            found = read(value)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        return found if isinstance(found, list | dict) else value
    return value


def _python_value(text: str) -> Any:
    """Return the value of a Python literal, or of a printed NumPy array of texts, such as `['Oslo' 'Lima']`.

    Raises:
        ValueError: The text is neither a literal nor such an array.  A literal in which texts follow each other without a
            comma is refused too, because Python would join these texts.
        SyntaxError: The text is not Python.
    """
    bare = _QUOTED.sub("''", text)
    if re.fullmatch(r"\s*\[\s*''(?:\s+'')+\s*\]\s*", bare):
        return [*map(literal_of, _QUOTED.findall(text))]
    if re.search(r"''\s*''", bare):
        raise ValueError("texts follow each other without a comma")
    return literal_of(text)
