"""Values checked by a JSON Schema: the part of it with which the server describes itself."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from typing import Any

from suffice.errors import DataError, did_you_mean

__all__ = ["Schema", "check_value"]

Schema = Mapping[str, Any]
"""A schema of draft 2020-12 with the keywords that `check_value` reads."""

_PHRASES = {
    "object": "an object",
    "array": "a list",
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "null": "null",
}
_LONGEST = 60


def check_value(value: Any, schema: Schema, schemas: Mapping[str, Schema], where: str = "") -> None:
    """Raise if a JSON value does not have the form that a schema describes.

    >>> check_value({"stop": 1}, {"type": "object", "properties": {"stop": {"type": "boolean"}}}, {})
    Traceback (most recent call last):
    suffice.errors.DataError: stop must be true or false, not 1

    Args:
        value: What `json.loads` returned.
        schema: The schema; its references are names in `schemas`.
        schemas: Schemas by name.
        where: The place of the value, for messages; empty for the whole body.

    Raises:
        DataError: It does not.
    """
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    name = where or "the body"
    kinds = [schema["type"]] if isinstance(schema.get("type"), str) else schema.get("type", [*_PHRASES])
    options = [*map(str, map(json.dumps, schema.get("enum", ())))]
    if not any(_is(value, kind) for kind in kinds) or (options and value not in schema["enum"]):
        expected = ", ".join(options) or " or ".join(_PHRASES[kind] for kind in kinds)
        raise DataError(f"{name} must be {expected}, not {_short(value)}")
    if isinstance(value, dict):
        _check_object(value, schema, schemas, where)
    elif isinstance(value, list):
        _check_length(value, schema, "Items", name)
        first = schema.get("prefixItems", ())
        for position, item in enumerate(value):
            described = first[position] if position < len(first) else schema.get("items")
            if described is not None:
                check_value(item, described, schemas, f"{where}[{position}]")
    elif isinstance(value, str):
        _check_length(value, schema, "Length", name)
        if re.search(schema.get("pattern", ""), value) is None:
            raise DataError(f"{name} must match {schema['pattern']}, not {_short(value)}")
    elif value is not None and not isinstance(value, bool):
        _check_bounds(value, schema.get("minimum"), schema.get("maximum"), name)


def _check_object(value: dict[str, Any], schema: Schema, schemas: Mapping[str, Schema], where: str) -> None:
    properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    missing = [name for name in schema.get("required", ()) if name not in value]
    if missing:
        raise DataError(f"{where or 'the body'} needs {', '.join(missing)}")
    for name, item in value.items():
        if name in properties:
            check_value(item, properties[name], schemas, f"{where}.{name}" if where else name)
        elif others is False:
            raise DataError(
                f"{where or 'the body'} has the unknown field {_short(name)}.{did_you_mean(name, properties)} There are: "
                f"{', '.join(properties)}"
            )
        elif others is not True:
            check_value(item, others, schemas, f"{where}[{_short(name)}]")


def _check_length(value: str | list[Any], schema: Schema, what: str, name: str) -> None:
    _check_bounds(len(value), schema.get(f"min{what}"), schema.get(f"max{what}"), f"the length of {name}")


def _check_bounds(number: float, least: float | None, most: float | None, name: str) -> None:
    if least is not None and number < least:
        raise DataError(f"{name} must be at least {least}, not {number}")
    if most is not None and number > most:
        raise DataError(f"{name} must be at most {most}, not {number}")


def _is(value: Any, kind: str) -> bool:
    if kind in ("integer", "number"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        return is_number and (kind == "number" or value == int(value))
    return isinstance(value, _KINDS[kind])


_KINDS = {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
