"""Check JSON values against the part of JSON Schema that the server's own document uses.

The document publishes the same schemas that check requests, so the two cannot differ.  Models of pydantic 2.14 were tried
for the fields of `DecideRequest`: strict models refuse the index 1.0, which JSON Schema counts as an integer; an error in a
number that may be "inf" is reported once for each type; and no message contains the value, the allowed names or a likely
correction.  Code to translate its errors would be as long as this module.
"""

from __future__ import annotations

import json
import math
import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from suffice.errors import DataError, did_you_mean

Schema = Mapping[str, Any]
"""A schema of draft 2020-12 with the keywords that `checker` reads."""

Check = Callable[..., None]
"""Raises a `DataError` if a value does not match a schema; also takes the value's place in the body."""

_Place = tuple[Any, ...]
"""Path to a value, nested: the place of its container, and its key or position there; empty for the whole value."""

_PHRASES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_KINDS_OF: dict[type, frozenset[str]] = {
    dict: frozenset({"object"}),
    list: frozenset({"array"}),
    str: frozenset({"string"}),
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    type(None): frozenset({"null"}),
}
_WHOLE_NUMBER = _KINDS_OF[int]
_PLAIN: dict[type, tuple[str, frozenset[str]]] = {
    str: ("string", frozenset({"pattern", "minLength", "maxLength"})),
    float: ("number", frozenset({"minimum", "maximum"})),
    bool: ("boolean", frozenset()),
    type(None): ("null", frozenset()),
}
"""For each type of value without parts: its kind, and the schema keywords that restrict its values."""
_EXCERPT = 60


def checker(schema: Schema, schemas: Mapping[str, Schema], known: dict[str, Check] | None = None) -> Check:
    """Return a function that raises if a JSON value does not match a schema; the schema is read once, not for each value.

    >>> check = checker({"type": "object", "properties": {"stop": {"type": "boolean"}}}, {})
    >>> check({"stop": True})
    >>> check({"stop": 1})
    Traceback (most recent call last):
    suffice.errors.DataError: stop must be true or false, not 1

    Args:
        schema: The schema; its references are names in `schemas`, without cycles.
        schemas: Schemas by name.
        known: The functions of schemas that were referenced before, by name; new ones are added.

    Returns:
        A function that takes a value from `json.loads` and its place in the body, for messages; it raises `DataError`.
    """
    known = {} if known is None else known
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        if name not in known:
            known[name] = checker(schemas[name], schemas, known)
        return known[name]
    described = [checker(item, schemas, known) for item in schema.get("prefixItems", ())]
    others = checker(schema["items"], schemas, known) if "items" in schema else None
    properties = {name: checker(item, schemas, known) for name, item in schema.get("properties", {}).items()}
    more = schema.get("additionalProperties", True)
    more = checker(more, schemas, known) if isinstance(more, dict) else more
    plain = _plain_types(schema)

    def check(value: Any, place: _Place = ()) -> None:
        kind = type(value)
        if kind in plain and (kind is not float or math.isfinite(value)):
            return
        _check_kind(value, schema, place)
        if kind is dict:
            _check_object(value, schema, properties, more, place)
        elif kind is list:
            _check_bounds(len(value), schema.get("minItems"), schema.get("maxItems"), place, "the length of ")
            for position, item in enumerate(value):
                of_item = described[position] if position < len(described) else others
                if of_item is not None:
                    of_item(item, (place, position))
        else:
            _check_scalar(value, schema, place)

    return check


def _check_scalar(value: Any, schema: Schema, place: _Place) -> None:
    if isinstance(value, str):
        _check_bounds(len(value), schema.get("minLength"), schema.get("maxLength"), place, "the length of ")
        if "pattern" in schema and re.search(schema["pattern"], value) is None:
            raise DataError(f"{_place_name(place)} must match {schema['pattern']}, not {_excerpt(value)}")
    elif value is not None and not isinstance(value, bool):
        _check_bounds(value, schema.get("minimum"), schema.get("maximum"), place)


def _plain_types(schema: Schema) -> frozenset[type]:
    """Return the Python types of which every finite value matches a schema, so that only the type need be checked."""
    expected = schema.get("type", [*_PHRASES])
    kinds = {expected} if isinstance(expected, str) else {*expected}
    plain = {kind for kind, (name, narrower) in _PLAIN.items() if name in kinds and not schema.keys() & narrower}
    return frozenset() if "enum" in schema else frozenset(plain)


def _check_kind(value: Any, schema: Schema, place: _Place) -> None:
    expected = schema.get("type")
    if expected is not None:
        kinds = _KINDS_OF[type(value)]
        if type(value) is float:
            kinds = frozenset() if not math.isfinite(value) else _WHOLE_NUMBER if value.is_integer() else kinds
        elif type(value) is int and abs(value) > sys.float_info.max:
            kinds = frozenset()  # too large for a float
        if expected not in kinds if isinstance(expected, str) else kinds.isdisjoint(expected):
            phrases = [_PHRASES[kind] for kind in ([expected] if isinstance(expected, str) else expected)]
            raise DataError(f"{_place_name(place)} must be {' or '.join(phrases)}, not {_excerpt(value)}")
    if "enum" in schema and value not in schema["enum"]:
        options = ", ".join(map(json.dumps, schema["enum"]))
        raise DataError(f"{_place_name(place)} must be one of {options}, not {_excerpt(value)}")


def _check_object(
    value: dict[str, Any], schema: Schema, properties: Mapping[str, Check], others: Check | bool, place: _Place
) -> None:
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise DataError(f"{_place_name(place)} needs {', '.join(missing)}")
    for name, item in value.items():
        if name in properties:
            properties[name](item, (place, name))
        elif others is False:
            raise DataError(
                f"{_place_name(place)} has the unknown field {_excerpt(name)}.{did_you_mean(name, properties)} There are: "
                f"{', '.join(properties)}"
            )
        elif others is not True:
            others(item, (place, name))


def _check_bounds(number: float, least: float | None, most: float | None, place: _Place, what: str = "") -> None:
    if least is not None and number < least:
        raise DataError(f"{what}{_place_name(place)} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise DataError(f"{what}{_place_name(place)} must be at most {most}, not {number}")


def _place_name(place: _Place) -> str:
    """Format a place for messages, for example ``rounds[1].answer``."""
    if not place:
        return "the body"
    holder, key = place
    if isinstance(key, int):
        return f"{_place_name(holder) if holder else ''}[{key}]"
    name = key if key.isidentifier() else f"[{_excerpt(key)}]"
    return name if not holder else f"{_place_name(holder)}{'.' if key.isidentifier() else ''}{name}"


def _excerpt(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _EXCERPT else f"{text[:_EXCERPT]}..."
