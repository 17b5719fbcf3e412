"""Check values that were read from JSON against the annotations of the dataclass that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_ACCEPTED: dict[type, type] = {
    **{one: one for one in (str, bool, list, dict, type(None))},
    int: Integral,
    float: Real,
}
"""The class of the values that each type accepts; `int` and `float` also accept numbers of numpy."""

_PLAIN = (str, int, float, bool, type(None))
_IN_JSON: Mapping[Any, type] = {tuple: list, set: list, Mapping: dict}
"""The type that a container has in JSON, by the type in the annotation."""


@lru_cache(maxsize=64)
def _checked_types(cls: type) -> dict[str, tuple[tuple[type, ...], tuple[Any, ...]]]:
    """Return the allowed types and literals of each field.

    Fields whose annotation contains anything else, such as another dataclass, are left out.
    """
    checked = {}
    for name, hint in get_type_hints(cls).items():
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        literals = tuple(value for part in parts if get_origin(part) is Literal for value in get_args(part))
        types = [part if part in _PLAIN else _IN_JSON.get(get_origin(part)) for part in parts]
        types = [one for part, one in zip(parts, types, strict=True) if get_origin(part) is not Literal]
        if None not in types:
            checked[name] = (tuple(one for one in types if one is not None), literals)
    return checked


def check_types(cls: type, values: Mapping[str, Any]) -> None:
    """Raise if a value in the JSON of a dataclass does not have the type of its field.

    >>> from suffice.policy.rounds import Decision
    >>> check_types(Decision, {"stop": True, "stop_round": 2, "answer": None})

    Args:
        cls: The dataclass.
        values: Values by field; only texts, numbers, booleans, lists, objects and literals are checked.

    Raises:
        TypeError: A value has another type.
    """
    for name, (types, literals) in _checked_types(cls).items():
        if name not in values:
            continue
        value = values[name]
        is_truth = isinstance(value, bool)
        is_allowed = any(isinstance(value, _ACCEPTED[one]) and is_truth == (one is bool) for one in types)
        if not is_allowed and not (isinstance(value, str) and value in literals):
            allowed = [*("null" if one is type(None) else one.__name__ for one in types), *map(repr, literals)]
            raise TypeError(f"{name} is {value!r:.80}; allowed: {', '.join(allowed)}")
