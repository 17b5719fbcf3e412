"""Registries of users' own metrics and normalizers, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from suffice.errors import DataError

_Named = TypeVar("_Named")
_Entry = TypeVar("_Entry")


def registration(table: dict[str, _Entry], name: str, what: str) -> Callable[[_Named], _Named]:
    """Return a decorator that registers a function or class in a table, under a name not yet in use.

    >>> table = {}
    >>> registration(table, "upper", "a function")(str.upper)("a"), list(table)
    ('A', ['upper'])

    Args:
        table: The registered items by name.
        name: An ASCII identifier.
        what: The kind of item, for messages: ``a metric``.
    """
    if not (name.isidentifier() and name.isascii()):
        raise DataError(f"{name!r} cannot name {what}: use ASCII letters, digits and underscores")
    if name in table:
        raise DataError(f"there is {what} {name!r} already; choose another name")

    def register(entry: _Named) -> _Named:
        table[name] = entry  # type: ignore[assignment]  # what the decorator's own type promises
        return entry

    return register
