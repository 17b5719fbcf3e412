"""Read TOML tables into dataclasses; every key, type and file is checked, and errors name the place in the file."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import MISSING, fields, is_dataclass, replace
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from suffice.cli.gating import SELF_RAG_GATE
from suffice.cli.settings import SECRETS_STAY_OUT, check_key_variable
from suffice.errors import DataError, NotFoundError, SchemaError, did_you_mean

T = TypeVar("T")

_TOML_KINDS: Mapping[Any, tuple[tuple[type, ...], str]] = {
    str: ((str,), "text"),
    int: ((int,), "a whole number"),
    float: ((int, float), "a number"),
    bool: ((bool,), "true or false"),
    Path: ((str,), "the path of a file or folder"),
}
_JSON_OPTIONS = ("extra_body", "template_args")
"""Options that are JSON on the command line."""

_NAMES = {"prices": "list", "gate": str(SELF_RAG_GATE)}
"""Values of path options that are names, not files."""

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
        SchemaError: The table has an unknown key; the message contains this key, the nearest allowed key, and all
            allowed keys.
    """
    for key in entry:
        if key not in known:
            secret = SECRETS_STAY_OUT * ("key" in key or "token" in key)
            raise SchemaError(
                f"{where}: unknown key {key!r}.{secret}{did_you_mean(key, known)} Allowed: {', '.join(known)}"
            )


def read_fields(
    group: type[T],
    entry: Any,
    where: str,
    *,
    folder: Path,
    left_out: Iterable[str] = (),
    base: T | None = None,
    absent: list[str] | None = None,
    **given: Any,
) -> T:
    """Build a dataclass from a table of a TOML file.

    The keys of the table are the names of fields, with hyphens; nested tables become nested dataclasses.

    Args:
        group: The dataclass, for instance the options of a command.
        entry: The table.
        where: The file and the table, named in messages.
        folder: The folder that paths are relative to.
        left_out: Fields that the file cannot set. If a field contains a nested dataclass, the metadata of this field
            lists those fields of the nested dataclass that the file cannot set.
        base: Object with the values of keys that are not in the table; None for the defaults of the fields.
        absent: List to which a message is added for each file that does not exist; None to raise instead.
        given: Values of fields that come from elsewhere.

    Raises:
        SchemaError: The entry is not a table, or has an unknown key.
        DataError: A value is of the wrong type or out of range, or a required key is missing.
        NotFoundError: A file does not exist.
    """
    if not isinstance(entry, Mapping):
        raise SchemaError(f"{where} is {entry!r}; write a table, with one key per line")
    hints = get_type_hints(group, include_extras=True)
    own: dict[str, Any] = {f.name: f for f in fields(cast("Any", group)) if f.name not in {*left_out, *given}}
    names = {toml_name(name): name for name in own}
    check_keys(entry, names, where)
    values: dict[str, Any] = dict(given)
    for key, value in entry.items():
        name, place = names[key], f"{where}: {key}"
        hint, options = _plain_hint(hints[name])
        if is_dataclass(hint):
            inner = getattr(base, name) if base is not None else own[name].default_factory()
            hidden = own[name].metadata.get("left_out", ())
            values[name] = read_fields(
                cast("Any", hint), value, place, folder=folder, left_out=hidden, base=inner, absent=absent
            )
        else:
            values[name] = _field_value(value, hint, name, place, folder=folder, absent=absent)
            _check_least(values[name], options, place)
    if base is not None:
        return cast("T", replace(cast("Any", base), **values))
    for name, item in own.items():
        if item.default is MISSING and item.default_factory is MISSING and name not in values:
            raise DataError(f"{where}: the key {toml_name(name)!r} is missing; allowed: {', '.join(names)}")
    return group(**values)


def _field_value(value: Any, hint: Any, name: str, where: str, *, folder: Path, absent: list[str] | None) -> Any:
    """Check a value against the type of its field, and return it converted to that type."""
    if get_origin(hint) in (tuple, list):
        if not isinstance(value, list):
            raise DataError(f"{where} is {value!r}; expected a list in brackets")
        inner = _plain_hint(get_args(hint)[0])[0]
        return get_origin(hint)(_field_value(item, inner, name, where, folder=folder, absent=absent) for item in value)
    if name in _JSON_OPTIONS and isinstance(value, dict):  # written as a table, which is easier to read
        return json.dumps(value, sort_keys=True)
    if get_origin(hint) is Literal:
        return among(value, get_args(hint), where)
    if hint not in _TOML_KINDS:
        raise DataError(f"{where} cannot be set in a file: leave it out")
    types, expected = _TOML_KINDS[hint]
    if not isinstance(value, types) or (isinstance(value, bool) and hint is not bool):
        raise DataError(f"{where} is {value!r}; expected {expected}")
    if name.endswith("api_key_env"):
        check_key_variable(str(value), where)
    return _path(str(value), name, where, folder, absent) if hint is Path else value


def _check_least(value: Any, options: tuple[Any, ...], where: str) -> None:
    for least in (option.min for option in options if getattr(option, "min", None) is not None):
        if value < least:
            raise DataError(f"{where} is {value!r}; allowed: {least:g} or more")


def among(value: str, known: Iterable[str], where: str) -> str:
    """Return a value if it is allowed.

    Raises:
        DataError: The value is not allowed; the message contains the nearest allowed one.
    """
    allowed = list(dict.fromkeys(known))
    if value not in allowed:
        near = did_you_mean(value, allowed) if isinstance(value, str) else ""
        raise DataError(f"{where} is {value!r}.{near} Allowed: {', '.join(allowed) or 'none'}")
    return value


def _plain_hint(hint: Any) -> tuple[Any, tuple[Any, ...]]:
    """Return the type of a field without None, and the command-line options in its annotation."""
    options: tuple[Any, ...] = ()
    if get_origin(hint) is Annotated:
        hint, *rest = get_args(hint)
        options = tuple(rest)
    if get_origin(hint) in (Union, UnionType):
        hint, more = _plain_hint(next(part for part in get_args(hint) if part is not NoneType))
        options += more
    return hint, options


def missing_file(path: Path | str, message: str, absent: list[str] | None) -> None:
    """Append the message about a missing file to `absent`, unless it is already there; raise it if `absent` is None."""
    if absent is None:
        raise NotFoundError(message)
    if not any(repr(str(path)) in known for known in absent):
        absent.append(message)


def _path(value: str, name: str, where: str, folder: Path, absent: list[str] | None) -> Path:
    path = folder / value
    if value == _NAMES.get(name):
        return Path(value)
    if name not in _WRITTEN and not path.exists():
        missing_file(
            path, f"{where}: {str(path)!r} does not exist; paths are relative to the file of the experiment", absent
        )
    return path
