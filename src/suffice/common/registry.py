"""What users add by name: metrics and normalizers."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from suffice.errors import DataError

__all__ = ["registration"]

_Named = TypeVar("_Named")
_Entry = TypeVar("_Entry")


def registration(table: dict[str, _Entry], name: str, what: str) -> Callable[[_Named], _Named]:
    """Return a decorator that enters what it decorates into a table, under a name that is free.

    >>> table = {}
    >>> registration(table, "upper", "a function")(str.upper)("a"), list(table)
    ('A', ['upper'])

    Args:
        table: What is known, by name.
        name: An ASCII identifier.
        what: What is named, for messages: ``a metric``.

    Raises:
        DataError: The name is taken, or is not an identifier.
    """
    if not (name.isidentifier() and name.isascii()):
        raise DataError(f"{name!r} cannot name {what}: use ASCII letters, digits and underscores")
    if name in table:
        raise DataError(f"there is {what} {name!r} already; choose another name")

    def register(entry: _Named) -> _Named:
        table[name] = entry  # type: ignore[assignment]  # what the decorator's own type promises
        return entry

    return register
