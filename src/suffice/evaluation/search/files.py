"""Spaces as TOML files."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from suffice.errors import DataError, SchemaError
from suffice.evaluation.search.space import Block, Literal, Space


def read_space(path: str | Path) -> Space:
    """Read a space from a TOML file.

    Raises:
        DataError: There is no such file, or a value is not allowed.
        SchemaError: The file is not TOML, or has unknown fields.
    """
    source = Path(path)
    try:
        data = tomllib.loads(source.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"the space {str(path)!r} cannot be read: {error.strerror or error}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SchemaError(f"the space {str(path)!r} is not TOML: {error}") from None
    return space_from_dict({"name": source.stem, **data})


def space_from_dict(data: Mapping[str, Any]) -> Space:
    """Return the space that nested values describe.

    >>> literals = [{"signal": "p_correct", "grid": 20}, {"signal": "answer_stable", "thresholds": [1], "comparison": ">="}]
    >>> space_from_dict({"name": "mine", "patience": [1, 2], "blocks": [{"form": "dnf", "literals": literals}]}).count
    122

    Args:
        data: The fields of `Space`; `blocks` holds those of `Block`, their `literals` those of `Literal`.

    Raises:
        SchemaError: A field is unknown, missing or of another kind.
        DataError: A value is not allowed.
    """
    blocks = []
    for block in _list(data, "blocks", "the space"):
        literals = [
            Literal(**_fields_of(Literal, {**literal, **_tuples(literal, "thresholds", float)}, "a literal"))
            for literal in _list(block, "literals", "a block")
        ]
        blocks.append(Block(**_fields_of(Block, {**block, "literals": tuple(literals)}, "a block")))
    whole = {**_tuples(data, "patience", int), **_tuples(data, "max_rounds", int)}
    return Space(**_fields_of(Space, {**data, **whole, "blocks": tuple(blocks)}, "the space"))


def _list(data: Any, name: str, owner: str) -> list[Mapping[str, Any]]:
    tables = data.get(name) if isinstance(data, Mapping) else None
    if not isinstance(tables, list) or not all(isinstance(item, Mapping) for item in tables):
        raise SchemaError(f"{owner} needs the field {name!r}, a list of tables")
    return tables


def _tuples(data: Mapping[str, Any], name: str, kind: type) -> dict[str, tuple[Any, ...]]:
    if name not in data:
        return {}
    values = data[name]
    allowed = (int, float) if kind is float else (int,)
    if not isinstance(values, list) or not all(type(value) in allowed for value in values):
        raise SchemaError(f"{name} must be a list of {'numbers' if kind is float else 'whole numbers'}, not {values!r}")
    return {name: tuple(kind(value) for value in values)}


def _fields_of(kind: type, data: Mapping[str, Any], owner: str) -> dict[str, Any]:
    known = {item.name: item for item in fields(kind)}
    unknown = sorted(set(data) - set(known))
    if unknown:
        raise SchemaError(f"{owner} has no field {unknown[0]!r}; there are: {', '.join(known)}")
    required = {"signal", "form", "name"} & set(known)
    missing = sorted(required - set(data))
    if missing:
        raise SchemaError(f"{owner} needs the field {missing[0]!r}")
    texts = {"signal", "comparison", "form", "prompt", "name"}
    wrong = next((name for name in texts & set(data) if not isinstance(data[name], str)), None)
    numbers = {"grid": (int,), "low": (int, float)}
    wrong = wrong or next(
        (name for name, kinds in numbers.items() if name in data and type(data[name]) not in kinds), None
    )
    if wrong is not None:
        raise SchemaError(f"the field {wrong!r} of {owner} has the wrong kind: {data[wrong]!r}")
    return dict(data)
