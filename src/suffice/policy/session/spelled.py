"""A field of a frozen dataclass that accepts a value or its text, and stores the value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, cast

from suffice.errors import DataError

_Value = TypeVar("_Value")


class Spelled(Generic[_Value]):
    """A descriptor that accepts text on assignment, and returns the parsed value when it is read.

    Args:
        kind: The class of the values; it may be abstract.
        parse: Parses a text into a value.
        default: The value of the field if none is given.
    """

    def __init__(self, kind: type[Any], parse: Callable[[str], _Value], default: _Value) -> None:
        self._kind = kind
        self._parse = parse
        self._default = default

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object | None, owner: type) -> _Value:
        return self._default if instance is None else cast("_Value", vars(instance)[self._name])

    def __set__(self, instance: object, value: _Value | str) -> None:
        spelled = self._parse(value) if isinstance(value, str) else value
        if not isinstance(spelled, self._kind):
            hint = " Call it: a function is not what it returns." if callable(spelled) else ""
            raise DataError(f"{self._name} must be a {self._kind.__name__} or its text, not {value!r}.{hint}")
        vars(instance)[self._name] = spelled
