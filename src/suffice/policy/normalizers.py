"""Normalizers, which decide whether two answers count as the same.

A vote among independent answers depends on this comparison. The usual normalizer of question answering is made for
names and phrases; it confuses "-5" with "5" and "3.5" with "35".
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from suffice.common.provided import registration
from suffice.common.syntax import literal_of
from suffice.errors import NotFoundError, did_you_mean
from suffice.policy.metrics import answer_key, normalize_answer
from suffice.policy.numbers_in_text import (
    LONGEST as _LONGEST,
    in_base_units,
    is_number_alone,
    only_number,
    without_numbers,
)
from suffice.policy.plain_forms import in_one_form, in_one_spelling, plain_text

Normalizer = Callable[[str], str | None]
"""Returns the key by which an answer is compared; None for an answer that cannot be read, which casts no vote."""


class Grouping(ABC):
    """A normalizer that groups the answers to a question by comparing them with each other.

    A key cannot be computed from one answer alone. So a call with one answer returns its text, and only equal texts have
    equal keys.
    """

    @abstractmethod
    def ids(self, answers: Sequence[str | None]) -> list[float]:
        """Number the distinct answers by first appearance; return each answer's number, or NaN if it casts no vote.

        The number of an answer depends only on the answers before it, so that a live vote equals its replay.

        Args:
            answers: The answers to one question, in the order of the requests; None where missing.
        """

    def ids_of(self, answers: npt.NDArray[np.object_]) -> npt.NDArray[np.float64]:
        """Return the `ids` along the last axis, shape of `answers`; values that are not texts count as missing."""
        rows = answers.reshape(-1, answers.shape[-1]).tolist()
        ids = [self.ids([text if isinstance(text, str) else None for text in row]) for row in rows]
        return np.array(ids, dtype=np.float64).reshape(answers.shape)

    def __call__(self, answer: str) -> str | None:
        """Return the text without white space around it."""
        return answer.strip() or None


_Normalizer = TypeVar("_Normalizer", bound=Normalizer)

ANSWER_ID = "answer_id"
"""The signal that tells answers apart by the policy's normalizer."""

MATCH = "match"
"""The metric that compares answers with gold answers by the recording's normalizer, if that is not the default."""

SCORE = "score"
"""A metric that compares answers with gold answers, in the words of first screens."""

_TITLES = {"em": "score (EM)", "f1": "score (F1)", MATCH: "right answers"}

DEFAULT_NORMALIZER = "qa"
"""The normalizer of question answering, which TASR and the metrics EM and F1 use."""

_ALL_NORMALIZERS: dict[str, Normalizer] = {}

NORMALIZERS: Mapping[str, Normalizer] = MappingProxyType(_ALL_NORMALIZERS)
"""All normalizers by name, built in and registered."""

_NO_LITERAL = object()
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_MISSING = frozenset({"nan", "null", "none", "na", "n/a", "#n/a", "<na>"})
_TRUTH = {"true": "true", "yes": "true", "false": "false", "no": "false"}
_TRUTH_FIRST = re.compile(r"[\W_]*((?a:true|yes|false|no))(?:[\W_]*|[.,:;!][\s\S]*)", re.IGNORECASE)
_OPTION = re.compile(r"[\W_]*([A-Za-z])(?:[\W_]*|[).:\]][\s\S]*)")
_OPTIONS = re.compile(
    r"(?s)[\W_]*(?:[A-Z](?:[\W_]+(?:(?:and|or)\b[\W_]+)?[A-Z])+|[a-z](?:[\W_]+(?:(?:and|or)\b[\W_]+)?[a-z])+)[\W_]*"
    r"|[\W_]*[A-Za-z]([)\]:])\s.*(?:[,;]|\band)\s*[(\[]?[A-Za-z]\1\s.*"
)
"""Letters of several options, or several options with their texts."""

_IN_NUMBER = re.compile(r"[.,](?=\d)")
_COMMA_FOR_POINT = str.maketrans(",.", ".,")
_PERCENT = re.compile(r"\d\s*\\?%")
_BLANK_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u2009\u202f]\d{3})+(?!\w)")
"""Thousands with a blank between them: a common one, a narrow one, or one that does not break."""

_CLOSING = {"[": "]", "{": "}", "(": ")", "'": "'", '"': '"'}
_PROGRAM = re.compile(
    r"(?m)^\s*(?:def \w+\(|class \w+|import \w+|from [\w.]+ import |function \w*\(|#include\b|```|(?i:SELECT)\s.*\s(?i:FROM)\s"
    r"|return\b.*[\w)]$|(?:public|private|static) \w+|(?:int|void|char) \w+\(|(?:const|let|var) \w+ =|(?:for|while|if)\b.*[:{]$)"
)
_SIGNS = re.compile(
    r"[=<>{}\[\]^\\|]|\w_\w|\w\(|[\0)]\s*[-+*/]+\s*[\0\w(]|[\0\w]\s*[+*]+\s*[\0\w(]|\w\s*[/%]\s*[\0(]|\b\w\s*-\s*(?:\w\b|\0)|\w(?:\+\+|#)"
)
r"""Signs of code and formulas, with \0 for numbers, in which nothing may be left out."""

_COMMAS = re.compile(r",(?!\d)|(?<!\d),")
"""Commas but for those within a number."""

_WRITTEN_DATE = re.compile(r"\b([A-Z][a-z]{2,8}\.? \d{1,2}), (?=[12]\d{3}\b)")
_LONGEST_RECORD = 300
"""The most characters of a text that is looked at."""

_LEAST_FIELDS = 3
"""The fewest fields of a record."""

_BETWEEN = re.compile(r"[,;\n]")
_POWER = re.compile(r"(?<=[\w)}])\*\*(?=[\w({])")
_UNCLEAR = re.compile(r"(?<![\d.,])\d{1,3}(?:\.\d{3})+,\d|\d[eE][-+]?\d{4}")
"""A decimal comma after points, and a power of ten that is too large."""

_WEEKDAY = re.compile(r"^(?:Mon|Tues?|Wed(?:nes)?|Thu(?:rs)?|Fri|Sat(?:ur)?|Sun)(?:day)?\.?,?\s+", re.IGNORECASE)
_YEAR = re.compile(r"(?<!\d)[12]\d{3}(?!\d)")
_ORDINAL = re.compile(r"(?<=\d)(?:st|nd|rd|th)\b(?: of\b)?", re.IGNORECASE)
_WRITTEN = (
    "%Y-%m-%d",
    "%B %d, %Y",
    "%b %d, %Y",
    "%B %d %Y",
    "%b %d %Y",
    "%d %B %Y",
    "%d %b %Y",
    "%d %B, %Y",
    "%Y/%m/%d",
)
_MONTH_FIRST = ("%m/%d/%Y", "%m-%d-%Y")
_DAY_FIRST = ("%d/%m/%Y", "%d-%m-%Y", "%d.%m.%Y")
_PLACES = {"%Y": r"\d{4}", "%m": r"\d\d?", "%d": r" ?\d\d?", "%B": r"\D+", "%b": r"\D+", " ": r"\s+"}
_SHAPES = {
    pattern: re.compile("".join(_PLACES.get(part) or re.escape(part) for part in re.split(r"(%\w| )", pattern)))
    for pattern in (*_WRITTEN, *_MONTH_FIRST, *_DAY_FIRST)
}
"""What a text has at least, to be a date of a pattern: strptime is slow to find that it is none."""


def register_normalizer(name: str) -> Callable[[_Normalizer], _Normalizer]:
    """Return a decorator that adds your own normalizer, for policies to name.

    >>> @register_normalizer("first_word")
    ... def first_word(answer):
    ...     return answer.split()[0].lower() if answer.split() else None
    >>> NORMALIZERS["first_word"]("Oslo, Norway")
    'oslo,'

    Args:
        name: An ASCII identifier that no other normalizer has.

    Raises:
        DataError: The name is taken, or is not an identifier.
    """
    return registration(_ALL_NORMALIZERS, name, "a normalizer")


@register_normalizer(DEFAULT_NORMALIZER)
def _qa_key(answer: str) -> str | None:
    """Return the key of a name or short phrase: lower case, without punctuation and articles."""
    return answer_key(answer) or None


@register_normalizer("exact")
def _exact_key(answer: str) -> str | None:
    """Return the text itself as the key, without surrounding white space."""
    return answer.strip() or None


@register_normalizer("number")
def _number_key(answer: str) -> str | None:
    """Return the only number of the text, or of the part after its last "=", as the key: 1,200.0 is 1200, and .5 is 1/2.

    Sign and decimal point always count.  Units, currencies and percent signs are ignored, because gold answers often omit
    what the question already says: 5, 5 km, $5 and 5 % are equal.  So 5 % is 5, never 0.05.
    """
    value = only_number(answer)
    return None if value is None else str(value)


@register_normalizer("percent")
def _percent_key(answer: str) -> str | None:
    """Return the key of the normalizer `number`, but with percent signs applied: 39 % is 0.39."""
    value = only_number(answer)
    return None if value is None else str(value / 100 if _PERCENT.search(answer) else value)


def comma_number(answer: str) -> str | None:
    """Return the only number of a text, read with a decimal comma; None if the text has no number, or several.

    >>> comma_number("1.234,5 kg"), comma_number("Ja")
    ('2469/2', None)
    """
    return _number_key(with_decimal_point(answer))


def with_decimal_point(answer: str) -> str:
    """Turn decimal commas into points and points between thousands into commas; remove blanks between thousands.

    Punctuation between words stays unchanged.

    >>> with_decimal_point("1.234,5"), with_decimal_point("1 234,5"), with_decimal_point("2010, 64,91 EUR.")
    ('1,234.5', '1234.5', '2010, 64.91 EUR.')
    """
    text = _BLANK_THOUSANDS.sub(lambda found: "".join(found[0].split()), answer)
    return _IN_NUMBER.sub(lambda found: found[0].translate(_COMMA_FOR_POINT), text)


@register_normalizer("decimal_comma")
def _decimal_comma_key(answer: str) -> str | None:
    """Return the key of the normalizer `number`, but read a comma as the decimal point.

    A point or a blank separates thousands, so the key of 1.234,5 is 2469/2. A text that is not a number, such as a word
    or a date, gets the key of `mixed_comma`.
    """
    return comma_number(answer) or _mixed_comma_key(answer)


@register_normalizer("mixed")
def _mixed_key(answer: str) -> str | None:
    """Return the key of the normalizer `qa`, but compare numbers by value, sign and unit; code and formulas stay as written.

    Different spellings of one value have the same key. This holds for lengths, masses, volumes and times in any unit
    (87 km is 87,000 m), times of day (8:05 and 08:05, 3 pm and 15:00) and ranges (12-17 and 12 to 17). It also holds
    for dates with the name of a month, alone or as a field of a record (Oslo, 3 May 2021, 2 nights), and for amounts of
    money: EUR 5 is €5, but neither $5 nor 5; 5 USD is $5 and also 5. Typography is ignored except in literals and
    programs: any dash is a hyphen, and any quote is a straight one.
    """
    text = answer.strip()
    if not text.isascii() and not is_structured(text):
        text = plain_text(text).strip()
    if _YEAR.search(text):
        if (date := _date(text, _WRITTEN)) is not None:
            return date
        fields = fields_of(text)
        if any(_date(field, _WRITTEN) for field in fields):
            return "; ".join(_mixed_key(field) or "" for field in fields)
    text = in_one_spelling(text)
    if (amounts := in_one_form(text)) != text and not is_structured(text):
        text = amounts
    text = in_base_units(text)
    if text.lower() in _MISSING:
        return None
    rest, values = without_numbers(text)
    if not is_number_alone(text) and (_SIGNS.search("\0".join(rest)) or is_structured(text)):
        return _literal_key(text)
    words = [*map(normalize_answer, rest), ""]
    parts = [part for place, value in enumerate([*values, ""]) for part in (words[place], str(value))]
    return " ".join(filter(None, parts)) or answer_key(text) or None


@register_normalizer("mixed_comma")
def _mixed_comma_key(answer: str) -> str | None:
    """Return the key of the normalizer `mixed`, but read a comma as the decimal point: 2,5 km is 2.500 m.

    A point or a blank separates thousands.
    """
    return _mixed_key(with_decimal_point(answer))


@register_normalizer("boolean")
def _boolean_key(answer: str) -> str | None:
    """Return "true" if the answer is yes or true, "false" if it is no or false, alone or before punctuation.

    Any other answer, such as 1 or 0, has no key.
    """
    match = _TRUTH_FIRST.fullmatch(answer[:_LONGEST])
    return _TRUTH[match[1].lower()] if match else None


@register_normalizer("letter")
def _letter_key(answer: str) -> str | None:
    """Return the letter of an option as the key: B for "b", "(B)" and "B) Paris"; None for "(A), (C)", which has two."""
    match = None if _OPTIONS.fullmatch(answer[:_LONGEST].strip()) else _OPTION.fullmatch(answer[:_LONGEST].strip())
    return match[1].upper() if match else None


@register_normalizer("literal")
def _literal_key(answer: str) -> str | None:
    """Return the value of a Python or JSON literal as the key, so that spaces and quotes do not matter.

    The key of a text that is not a literal is the text.
    """
    text = answer.strip()
    return _written(_evaluated(text, text)) if text else None


@register_normalizer("unordered")
def _unordered_key(answer: str) -> str | None:
    """Return the key of the normalizer `literal`, but ignore the order of list items.

    Texts that are divided by commas, semicolons or line breaks count as lists.
    """
    text = answer.strip()
    value = _evaluated(text, text)
    items = listed_items(value) if text and isinstance(value, str) else value
    if isinstance(items, list | tuple):
        return f"[{', '.join(sorted(map(_written, items)))}]"
    return _written(value) if text else None


def listed_items(text: str) -> list[str]:
    """Return the items of a list in words, such as "red, blue"."""
    return [*filter(None, map(str.strip, _BETWEEN.split(text)))] or [text]


def _written(value: object) -> str:
    """Return a value as Python writes it, with the items of sets and objects sorted."""
    if isinstance(value, dict):
        items = sorted(f"{_written(key)}: {_written(item)}" for key, item in value.items())
        return f"{{{', '.join(items)}}}"
    if isinstance(value, list | tuple | set) and value:
        items = [*map(_written, value)]
        ends = {list: "[]", tuple: "()", set: "{}"}[type(value)]
        return f"{ends[0]}{', '.join(sorted(items) if isinstance(value, set) else items)}{ends[1]}"
    return repr(value)


def _evaluated(text: str, default: object) -> object:
    """Return the value of a literal, or `default` if the text is not a literal."""
    if len(text) > _LONGEST:
        return default
    for read in (literal_of, json.loads):
        with suppress(ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            return read(_CONSTANTS.get(text, text) if read is literal_of else text)
    return default


@register_normalizer("math")
def _math_key(answer: str) -> str | None:
    r"""Return the value of a mathematical expression, in LaTeX or not; `\frac{1}{2}` is 0.5.

    This needs the extra `math`.
    """
    from suffice.policy.expressions import expression_key, is_available

    if answer.strip().lower() in _MISSING or _UNCLEAR.search(answer):
        return None
    value = only_number(answer) if is_available() and is_number_alone(answer) else None
    return expression_key(_POWER.sub("^", answer)) if value is None else str(value)


@register_normalizer("date")
def _date_key(answer: str) -> str | None:
    """Return a date as YYYY-MM-DD; if two numbers precede the year, the first is the month."""
    return _date(answer, (*_WRITTEN, *_MONTH_FIRST))


@register_normalizer("date_day_first")
def _day_first_key(answer: str) -> str | None:
    """Return a date as YYYY-MM-DD; if two numbers precede the year, the first is the day."""
    return _date(answer, (*_WRITTEN, *_DAY_FIRST))


def _date(answer: str, patterns: Sequence[str]) -> str | None:
    text = _WEEKDAY.sub("", " ".join(plain_text(answer[:_LONGEST]).split()).strip(" ."))
    text = _ORDINAL.sub("", text)
    for pattern in patterns:
        if not _SHAPES[pattern].fullmatch(text):
            continue
        try:
            return datetime.strptime(text, pattern).date().isoformat()  # noqa: DTZ007 - a date has no time zone
        except ValueError:
            continue
    return None


def normalizer_of(name: str) -> Normalizer:
    """Return the normalizer with this name."""
    if name not in _ALL_NORMALIZERS:
        raise NotFoundError(
            f"there is no normalizer {name!r}.{did_you_mean(name, _ALL_NORMALIZERS)} There are: {', '.join(_ALL_NORMALIZERS)}; add your own "
            "with register_normalizer"
        )
    return _ALL_NORMALIZERS[name]


def match(answer: str | None, golds: Iterable[str], normalizer: str) -> float:
    """Return 1.0 if an answer equals a gold answer under a normalizer, else 0.0; NaN if there are no gold answers.

    >>> match("18.0", ["18"], "number"), match(None, ["18"], "number"), match("18", [], "number")
    (1.0, 0.0, nan)
    """
    key_of = normalizer_of(normalizer)
    if isinstance(key_of, Grouping):
        pairs = [key_of.ids([gold, answer]) for gold in golds]
        return float(any(first == second for first, second in pairs)) if pairs else math.nan  # a NaN equals nothing
    keys, key = [*map(key_of, golds)], None if answer is None else key_of(answer)
    return float(key is not None and key in keys) if keys else math.nan


def is_code(text: str) -> bool:
    """Return True if a text is a literal of Python or JSON, a number or a program."""
    return _evaluated(text.strip(), _NO_LITERAL) is not _NO_LITERAL or is_structured(text)


def is_structured(text: str) -> bool:
    """Return True if a text is a program, or a literal in brackets or quotes."""
    text = text.strip()
    is_enclosed = len(text) > 1 and _CLOSING.get(text[0]) == text[-1]
    return _PROGRAM.search(text[:_LONGEST]) is not None or (
        is_enclosed and _evaluated(text, _NO_LITERAL) is not _NO_LITERAL
    )


def title(metric: str, others: Collection[str] | None = None) -> str:
    """Return the name of a metric as shown on screens.

    Args:
        metric: The name of the metric's column.
        others: The names of the other columns, for the first screen of a command: it calls F1 and EM "score", unless one
            of these columns has that name. None for all other screens.

    >>> title("f1"), title("f1", ()), title("f1", ["score"]), title("rouge1", ())
    ('score (F1)', 'score', 'score (F1)', 'rouge1')
    """
    is_short = others is not None and metric in ("em", "f1") and SCORE not in others
    return SCORE if is_short else _TITLES.get(metric, metric)


def fields_of(text: str) -> list[str]:
    """Split a text at semicolons, bars or line breaks, else at commas; return no fields if there are fewer than three.

    >>> fields_of("Single, May 23, 2026, 1,200 EUR"), fields_of("Moss, J.; 34; Oslo"), fields_of("Paris, France")
    (['Single', 'May 23 2026', '1,200 EUR'], ['Moss, J.', '34', 'Oslo'], [])
    """
    if len(text) > _LONGEST_RECORD:
        return []
    sign = next((sign for sign in ";|\n" if sign in text), "")
    parts = text.split(sign) if sign else _COMMAS.split(_WRITTEN_DATE.sub(r"\1 ", text))
    fields = [*filter(None, map(str.strip, parts))]
    return fields if len(fields) >= _LEAST_FIELDS else []
