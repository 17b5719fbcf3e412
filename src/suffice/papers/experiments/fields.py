"""Tables of a TOML file read into dataclasses, strictly: every key, type and file is checked, and named where it is wrong."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, fields
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

from suffice.cli.settings import SECRETS_STAY_OUT, check_key_variable
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean

__all__ = ["check_keys", "read_fields", "toml_name"]

T = TypeVar("T")

_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    Path: ((str,), "the path of a file or folder"),
}
_OBJECTS = ("extra_body", "template_args")
"""JSON on the command line."""

_WRITTEN = ("cache",)
"""Paths that a run creates."""


def toml_name(field: str) -> str:
    """Return the key of a field, spelled as the option of a command.

    >>> toml_name("base_url")
    'base-url'
    """
    return field.replace("_", "-")


def check_keys(entry: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Raise if a table has a key that is not known.

    Raises:
        SchemaError: It has one; the message names it, the nearest key and all that are allowed.
    """
    for key in entry:
        if key not in known:
            secret = SECRETS_STAY_OUT * ("key" in key or "token" in key)
            raise SchemaError(
                f"{where}: unknown key {key!r}.{secret}{did_you_mean(key, known)} Allowed: {', '.join(known)}"
            )


def read_fields(
    group: type[T], entry: Any, where: str, *, folder: Path, left_out: Iterable[str] = (), **given: Any
) -> T:
    """Return a dataclass from a table of a TOML file; keys are its fields, with hyphens.

    Args:
        group: The dataclass; the options of a command are one, too.
        entry: The table.
        where: File and table, for messages.
        folder: Paths are relative to it.
        left_out: Fields that the file cannot set.
        given: Values of fields that come from elsewhere.

    Raises:
        SchemaError: The entry is not a table, or has an unknown key.
        DataError: A value is of the wrong type or out of range, or a required key is missing.
        NotFoundError: A file does not exist.
    """
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where} is {entry!r}; write a table, with one key per line")
    hints = get_type_hints(group, include_extras=True)
    names = {toml_name(f.name): f.name for f in fields(group) if f.name not in {*left_out, *given}}  # type: ignore[arg-type]
    check_keys(entry, names, where)
    values = {
        name: _value(hints[name], name, entry[key], f"{where}: {key}", folder)
        for key, name in names.items()
        if key in entry
    }
    for field in fields(group):  # type: ignore[arg-type]
        required = field.default is MISSING and field.default_factory is MISSING
        if required and field.name not in {**values, **given}:
            raise DataError(f"{where}: the key {toml_name(field.name)!r} is missing; allowed: {', '.join(names)}")
    return group(**values, **given)


def _value(hint: Any, name: str, value: Any, where: str, folder: Path) -> Any:
    """Return a value of the type of a field."""
    hint, options = _plain(hint)
    if get_origin(hint) is tuple:
        if not isinstance(value, list) or not value:
            raise DataError(f"{where} is {value!r}; expected a list of at least one value in brackets")
        return tuple(_value(get_args(hint)[0], name, item, where, folder) for item in value)
    if name in _OBJECTS and isinstance(value, dict):  # written as a table, which is easier to read
        return json.dumps(value, sort_keys=True)
    types, expected = _KINDS[hint]
    if not isinstance(value, types) or (isinstance(value, bool) and hint is not bool):
        raise DataError(f"{where} is {value!r}; expected {expected}")
    if value == "":
        raise DataError(f"{where} is empty; expected {expected}")
    if name.endswith("api_key_env"):
        check_key_variable(str(value), where)
    for least in (option.min for option in options if getattr(option, "min", None) is not None):
        if value < least:
            raise DataError(f"{where} is {value!r}; allowed: {least:g} or more")
    return _path(str(value), name, where, folder) if hint is Path else value


def _plain(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of a field without None, and the options of a command behind it."""
    options: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        options = tuple(rest)
    if get_origin(hint) in (Union, UnionType):
        hint, more = _plain(next(part for part in get_args(hint) if part is not NoneType))
        options += more
    return hint, options


def _path(value: str, name: str, where: str, folder: Path) -> Path:
    path = folder / value
    if name == "prices" and value == "list":
        return Path(value)
    if name not in _WRITTEN and not path.exists():
        raise NotFoundError(f"{where}: {str(path)!r} does not exist; paths are relative to the file of the experiment")
    return path
