"""Find the answer in a generated text as character positions."""

from __future__ import annotations

import json
import re
from functools import lru_cache

from suffice.policy.signals.text import CONFIDENCE_LABEL

Span = tuple[int, int]

# No group has a possessive quantifier: before Python 3.11.4, a repetition that failed could still consume a character.
_LEAD = re.compile(r"(?:\s++|```[A-Za-z]*+\n|\*{2,}+|_{2,}+(?=\s)|[*_`•-](?=\s))*")
_LINE_END = re.compile(r"[\r\n]|<\|[^|<>\s]{1,40}\|>|</s>|<eos>|<end_of_turn>|<turn\|>")
_WRAPPERS = {'"': '"', "'": "'", "“": "”", "‘": "’", "«": "»", "`": "`", "*": "*", "_": "_", "<": ">"}  # noqa: RUF001
_BEFORE_CONFIDENCE = " \t,;|([*_-\u2013\u2014"


@lru_cache(maxsize=64)
def _loose(marker: str) -> re.Pattern[str]:
    stem = marker.strip().rstrip(":").rstrip()
    colon = r"[*_`\s]{0,4}[:\uff1a]" if marker.rstrip().endswith(":") else ""
    return re.compile(rf"(?<!\w){re.escape(stem)}{colon}", re.IGNORECASE)


def after_marker(text: str, marker: str, start: int) -> int:
    """Return the position right after the first `marker` at or after `start`; -1 if there is none.

    If the exact marker is missing, the search ignores case and allows markdown before the colon.
    """
    position = text.find(marker, start)
    if position >= 0:
        return position + len(marker)
    loose = _loose(marker).search(text, start)
    return loose.end() if loose else -1


def answer_line(text: str, start: int, marker: str) -> Span | None:
    """Return the span of the answer that begins at `start`: one line, without markdown, quotes and confidence.

    White space, markdown and repetitions of the marker are skipped first.
    """
    loose = _loose(marker)
    while True:
        begin = _LEAD.match(text, start).end()  # type: ignore[union-attr]  # matches the empty string
        again = loose.match(text, begin)
        if again is None:
            break
        start = again.end()
    line_end = _LINE_END.search(text, begin)
    end = line_end.start() if line_end else len(text)
    label = CONFIDENCE_LABEL.search(text, begin, end)
    if label:
        end = begin + len(text[begin : label.start()].rstrip(_BEFORE_CONFIDENCE))
    return _clean(text, begin, end)


def _clean(text: str, start: int, end: int) -> Span | None:
    """Return the span without surrounding white space, quotes and markdown; None if nothing is left.

    It works on indices, because copying the text for each of many layers would take quadratic time in a long reply.
    """
    while True:
        while start < end and text[start].isspace():
            start += 1
        while start < end and text[end - 1].isspace():
            end -= 1
        if start >= end:
            return None
        inner = _unwrap(text, start, end)
        if inner == (start, end):
            return inner
        start, end = inner


def _unwrap(text: str, start: int, end: int) -> Span:
    """Return the part of a span inside one layer of quotes or markdown; without such a layer, the whole span."""
    stop = end
    while stop > start and text[stop - 1] in ".,;":
        stop -= 1
    if text.endswith("**", start, stop):
        return (start + 2 if text.startswith("**", start, end) else start), stop - 2
    opening, closing = text[start], _WRAPPERS.get(text[start])
    if closing is None:
        return start, end
    close = text.find(closing, start + 1, end)
    if close > start and close == stop - 1:
        return start + 1, close
    if close < 0 and opening in '"“':  # the generation ended inside the quotation
        return start + 1, end
    return start, end


_STRING = re.compile(r'"([^"\\]*+(?:\\.[^"\\]*+)*)"', re.DOTALL)
_PART = re.compile(r'["{}\[\]]')
_PLAIN = re.compile(r"-?[0-9][0-9.eE+-]*+|true\b|false\b")
_COLON = re.compile(r"\s*+:\s*+")
_JSON_BLANK = re.compile(r"(?:\s|\\[nrtbf])*")


def json_value(text: str, field: str, start: int) -> tuple[str, int, int] | None:
    """Return the value of the first key `field` in JSON from `start` on, with its span.

    If there is no such key and `field` contains points, it is a path of keys: ``a.b`` is the value of `b` in the object
    `a`. Text around the JSON is skipped, and the JSON may be cut off after the value. Only strings, numbers and
    booleans count as values; null, arrays, objects and unterminated strings do not.
    """
    place = _value_of(text, field, text.find("{", start), anywhere=True)
    if place >= 0:
        return _json_value(text, place)
    first, *path = field.split(".")
    place = _value_of(text, first, text.find("{", start), anywhere=True) if path else -1
    for key in path:
        place = _value_of(text, key, place, anywhere=False) if text.startswith("{", place) else -1
    return _json_value(text, place) if place >= 0 else None


def _value_of(text: str, key: str, position: int, *, anywhere: bool) -> int:
    """Return the position where a key's value begins in JSON after `position`, or -1 if the key is missing.

    The key must lie directly in the next object, or with `anywhere` at any place after the position.
    """
    depth = 0
    part = _PART.search(text, position) if position >= 0 else None
    while part is not None:
        if part[0] == '"':
            string = _STRING.match(text, part.start())
            if string is None:
                return -1
            colon = _COLON.match(text, string.end())
            if colon and (anywhere or depth == 1) and _decode(string[0]) == key:
                return colon.end()
            position = string.end()
        else:
            depth += 1 if part[0] in "{[" else -1
            position = part.end()
        if not (depth or anywhere):
            return -1
        part = _PART.search(text, position)
    return -1


def _json_value(text: str, start: int) -> tuple[str, int, int] | None:
    plain = _PLAIN.match(text, start)
    if plain:
        return plain[0], plain.start(), plain.end()
    string = _STRING.match(text, start)
    if string is None:
        return None
    answer = (_decode(string[0]) or "").strip()
    begin = _JSON_BLANK.match(text, string.start(1)).end()  # type: ignore[union-attr]  # matches the empty string
    end = begin + len(text[begin : string.end(1)].rstrip())
    return (answer, begin, end) if answer and begin < end else None


def _decode(literal: str) -> str | None:
    try:
        value = json.loads(literal, strict=False)
    except ValueError:
        return None
    # Half a surrogate pair is valid JSON but not valid UTF-8, so it could not be stored.
    return str(value).encode("utf-8", "replace").decode("utf-8")
