"""Read JSON from files and endpoints as well-formed Unicode, check and convert its values, and seal texts by a hash."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import chain
from numbers import Integral, Real
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import numpy as np

_NOT_BLANK = re.compile(r"[^ \t\r\n]")
_MAY_FOLLOW = {"": "[", "[": "]", ",": "", "item": ",]", "]": ""}
_STRUCTURE = re.compile(r'"(?:[^"\\]|\\.)*(?:"|\Z)|[][{},]', re.DOTALL)
_INFINITE = ("inf", "-inf")
_CLOSED_BY = {"{": "}", "[": "]"}
_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")


def well_formed(value: Any) -> Any:
    r"""Replace each lone surrogate by U+FFFD in a text, or in a structure of lists and dicts.

    JSON may contain the escape of half a character, for example if a text was cut within an emoji.  Python reads such a
    half character, but cannot encode it in UTF-8.

    >>> well_formed(["caf\u00e9", "cut \ud83d", 3])
    ['café', 'cut \ufffd', 3]
    """
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return value
    if isinstance(value, dict):
        return {well_formed(key): well_formed(item) for key, item in value.items()}
    return [well_formed(item) for item in value] if isinstance(value, list) else value


def load_json(text: str) -> Any:
    r"""Return the value of a JSON text, without lone surrogates; see `well_formed`.

    >>> load_json('{"answer": "Oslo \\ud800"}')
    {'answer': 'Oslo \ufffd'}

    Raises:
        ValueError: The text is not JSON, is nested too deeply, or contains an integer with thousands of digits.
    """
    try:
        value = json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    # Decoded text can have surrogates only through escapes; a text without these needs no check.
    return well_formed(value) if _SURROGATE_ESCAPE.search(text) else value


def as_number(value: object) -> float:
    """Convert any value to a float; NaN if it is not a number (None, text, an array)."""
    if type(value) is float:  # by far the most frequent
        return value
    if isinstance(value, (Real, np.bool_)):
        try:
            return float(value)
        except OverflowError:
            return math.nan
    return math.nan


def number_to_json(value: object) -> float | str | None:
    """Convert a number to a form that JSON can hold and `number_from_json` restores; None if it is undefined.

    >>> number_to_json(0.5), number_to_json(math.nan), number_to_json(-math.inf)
    (0.5, None, '-inf')
    """
    number = as_number(value)
    return str(number) if math.isinf(number) else number_or_none(number)


def number_from_json(value: float | str | None) -> float:
    """Return the number that `number_to_json` wrote.

    >>> number_from_json("-inf"), number_from_json(None)
    (-inf, nan)

    Raises:
        TypeError: The value is neither a number, nor None, nor the text of an infinity.
    """
    if isinstance(value, bool) or (isinstance(value, str) and value not in _INFINITE):
        raise TypeError(f"{value!r:.40} is not a number")
    return math.nan if value is None else float(value)


def values_in(text: str) -> Iterator[Any]:
    r"""Yield the values of consecutive JSON texts, with or without line breaks between them.

    >>> [*values_in('{"a": 1}\n{\n "a": 2}')]
    [{'a': 1}, {'a': 2}]

    Raises:
        ValueError: A text is not JSON, or is nested too deeply.
    """
    decoder, place, end = json.JSONDecoder(), 0, len(text.rstrip())
    while place < end:
        while text[place].isspace():
            place += 1
        try:
            value, place = decoder.raw_decode(text, place)
        except RecursionError:
            raise ValueError("it is nested too deeply") from None
        yield well_formed(value) if _SURROGATE_ESCAPE.search(text) else value


def cut_document(text: str) -> Any:
    """Return the value of a JSON document whose end is missing, without the document's last item; None if nothing can be read.

    >>> cut_document('{"runs": [{"id": 1}, {"id": 2, "na')
    {'runs': [{'id': 1}, {'id': 2}]}
    """
    closing: list[str] = []
    place, missing = 0, ""
    for match in _STRUCTURE.finditer(text):
        if match[0] in _CLOSED_BY:
            closing.append(_CLOSED_BY[match[0]])
        elif match[0] in "}]":
            del closing[-1:]
        elif match[0] == ",":
            place, missing = match.start(), "".join(reversed(closing))
    try:
        return load_json(text[:place] + missing) if missing else None
    except ValueError:
        return None


def _array_item(decoder: json.JSONDecoder, text: str, place: int, *, is_cut: bool) -> tuple[Any, int] | None:
    """Return the array item at a position in the text, and its end; None if the item may be incomplete."""
    try:
        value, end = decoder.raw_decode(text, place)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    except ValueError:
        if is_cut:
            return None
        raise
    following = _NOT_BLANK.search(text, end)
    if is_cut and (following is None or following[0] not in ",]"):
        return None  # the rest of a number may follow
    return well_formed(value) if _SURROGATE_ESCAPE.search(text, place, end) else value, end


def array_items(chunks: Iterable[str]) -> Iterator[Any]:
    r"""Yield the items of a JSON array whose text arrives in pieces.

    >>> [*array_items(['[{"a": 1}, {"a"', ': 2}', ']'])]
    [{'a': 1}, {'a': 2}]

    Raises:
        ValueError: The text is not a JSON array, or is nested too deeply.
    """
    decoder, text, before, enough = json.JSONDecoder(), "", "", 0
    for chunk in chain(chunks, [""]):
        text += chunk
        if chunk and len(text) < enough:
            continue
        place = 0
        while (start := _NOT_BLANK.search(text, place)) is not None:
            place = start.start()
            if start[0] in _MAY_FOLLOW[before]:
                before, place = start[0], place + 1
                continue
            if before not in ("[", ","):
                raise ValueError(f"{text[place : place + 20]!r} does not belong to an array")
            item = _array_item(decoder, text, place, is_cut=bool(chunk))
            if item is None:
                break
            before, (value, place) = "item", item
            yield value
        text = text[place:]
        enough = 2 * len(text)  # try again only with twice the text, so that a long item is not parsed with each piece
    if before != "]":
        raise ValueError("it ends within an array")


def number_or_none(value: float) -> float | None:
    """Return a number, or None if it is undefined, as in JSON and tables.

    >>> number_or_none(0.5), number_or_none(math.nan)
    (0.5, None)
    """
    return None if math.isnan(value) else float(value)


def refuse_constant(text: str) -> float:
    """Raise for a constant that JSON does not have, such as NaN; use as `parse_constant` of `json.loads`."""
    raise ValueError(f"{text} is not a JSON number")


FIELD = "sha256"


def sealed_text(data: dict[str, Any]) -> str:
    """Return data as an indented JSON text with the hash of its content in the field `sha256`.

    >>> was_edited(json.loads(sealed_text({"alpha": 0.05}))), was_edited({"alpha": 0.01, FIELD: _hash({"alpha": 0.05})})
    (False, True)
    """
    plain = json.loads(json.dumps(data, allow_nan=False))
    return json.dumps({**plain, FIELD: _hash(plain)}, indent=2, allow_nan=False, ensure_ascii=False) + "\n"


def was_edited(data: Any) -> bool:
    """Return True if a file has a hash that its content does not match; False without a hash, as in files of older releases."""
    return isinstance(data, dict) and FIELD in data and data[FIELD] != _hash(unsealed(data))


def unsealed(data: Any) -> Any:
    """Return the content of a file without its hash."""
    return {name: value for name, value in data.items() if name != FIELD} if isinstance(data, dict) else data


def _hash(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


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
        TypeError: A value does not have the type of its field.
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
