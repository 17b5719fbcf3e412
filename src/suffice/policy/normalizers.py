"""Normalizers, which decide whether two answers count as the same.

A vote among independent answers depends on this comparison.  The normalizer of question answering, made for names and
phrases, confuses "-5" with "5" and "3.5" with "35".
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from types import MappingProxyType
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from suffice.common.registry import registration
from suffice.common.syntax import literal_of
from suffice.errors import NotFoundError, did_you_mean
from suffice.policy.metrics import answer_key

Normalizer = Callable[[str], str | None]
"""Returns the key by which an answer is compared; None for an answer that cannot be read, which casts no vote."""


class Grouping(ABC):
    """A normalizer that compares all answers so far, for answers that have no key of their own.

    Called with a single answer, it returns a key under which only equal texts are the same.
    """

    @abstractmethod
    def ids(self, answers: Sequence[str | None]) -> list[float]:
        """Number the distinct answers by first appearance; return each answer's number, NaN for one without a vote.

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

DEFAULT_NORMALIZER = "qa"
"""The normalizer of question answering, which TASR and the metrics EM and F1 use."""

_ALL_NORMALIZERS: dict[str, Normalizer] = {}

NORMALIZERS: Mapping[str, Normalizer] = MappingProxyType(_ALL_NORMALIZERS)
"""All normalizers by name, built in and registered."""

_NO_LITERAL = object()
_LONGEST = 1000
"""Most characters of a text that can be a number, a letter or a date."""

_NUMBER = re.compile(
    r"(?<![\w.])[-+]?(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+|(?<=\d)\.)?(?:[eE][-+]?\d{1,3})?(?:\s*/\s*\d+)?(?!\w)"
)
_CONSTANTS = {"true": "True", "false": "False", "null": "None"}
_MINUS = str.maketrans({"\u2212": "-", "\u2013": "-"})
_OPTION = re.compile(r"[\W_]*([A-Za-z])(?:[\W_]*|[).:\]][\s\S]*)")
_BARE_NUMBER = re.compile(rf"\s*[-+]?[$€£]?\s*(?:{_NUMBER.pattern})(?<=[\d.])\s*%?\s*")
_CLOSING = {"[": "]", "{": "}", "(": ")", "'": "'", '"': '"'}
_PROGRAM = re.compile(
    r"(?m)^\s*(?:def \w+\(|class \w+|import \w+|from [\w.]+ import |function \w*\(|#include\b|```|SELECT\s)"
)
_MOST = 0.95
"""Least share of the texts that must be code (or, without gold answers, numbers) to guess that normalizer."""

_DATES = ("%m/%d/%Y", "%Y-%m-%d", "%B %d, %Y", "%b %d, %Y", "%d %B %Y", "%d %b %Y", "%m-%d-%Y", "%Y/%m/%d")


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
    """Return the only number in the text, or after its last "=", as the key: 1,200.0 is 1200, and .5 is 1/2."""
    if len(answer) > _LONGEST:
        return None
    values = {_fraction(match.group()) for match in _NUMBER.finditer(answer.translate(_MINUS).rpartition("=")[2])}
    values.discard(None)
    return str(values.pop()) if len(values) == 1 else None


def _fraction(text: str) -> Fraction | None:
    top, _, bottom = text.replace(",", "").partition("/")
    try:
        return Fraction(top.strip()) / (Fraction(bottom.strip()) if bottom else 1)
    except (ValueError, ZeroDivisionError):  # a lone sign or point, or a division by zero
        return None


@register_normalizer("letter")
def _letter_key(answer: str) -> str | None:
    """Return the letter of an option as the key: "b", "(B)" and "B) Paris" have the key B."""
    match = _OPTION.fullmatch(answer[:_LONGEST].strip())
    return match[1].upper() if match else None


@register_normalizer("literal")
def _literal_key(answer: str) -> str | None:
    """Return the value of a Python or JSON literal as the key, whatever its spaces and quotes; else the text."""
    text = answer.strip()
    if not text:
        return None
    return repr(_evaluated(text, text))


def _evaluated(text: str, default: object) -> object:
    """Return the value of a literal, or `default` if the text is not one."""
    try:
        return literal_of(_CONSTANTS.get(text, text)) if len(text) <= _LONGEST else default
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return default


@register_normalizer("math")
def _math_key(answer: str) -> str | None:
    r"""Return the value of a mathematical expression as the key: \frac{1}{2} equals 0.5; it needs the extra `math`."""
    from suffice.policy.expressions import expression_key

    return expression_key(answer)


@register_normalizer("date")
def _date_key(answer: str) -> str | None:
    """Return a date as YYYY-MM-DD; of two numbers before a year, the first is taken as the month."""
    text = " ".join(answer[:_LONGEST].split()).strip(" .")
    for pattern in _DATES:
        try:
            return datetime.strptime(text, pattern).date().isoformat()  # noqa: DTZ007 - a date has no time zone
        except ValueError:
            continue
    return None


def normalizer_of(name: str) -> Normalizer:
    """Return the normalizer of a name.

    Raises:
        NotFoundError: There is no normalizer of that name.
    """
    if name not in _ALL_NORMALIZERS:
        raise NotFoundError(
            f"there is no normalizer {name!r}.{did_you_mean(name, _ALL_NORMALIZERS)} There are: {', '.join(_ALL_NORMALIZERS)}; add your own "
            "with register_normalizer"
        )
    return _ALL_NORMALIZERS[name]


def match(answer: str | None, golds: Iterable[str], normalizer: str) -> float:
    """Return 1.0 if an answer equals a gold answer by a normalizer, else 0.0; NaN without gold answers.

    >>> match("18.0", ["18"], "number"), match(None, ["18"], "number"), match("18", [], "number")
    (1.0, 0.0, nan)
    """
    key_of = normalizer_of(normalizer)
    if isinstance(key_of, Grouping):
        pairs = [key_of.ids([gold, answer]) for gold in golds]
        return float(any(first == second for first, second in pairs)) if pairs else math.nan  # a NaN equals nothing
    keys, key = [*map(key_of, golds)], None if answer is None else key_of(answer)
    return float(key is not None and key in keys) if keys else math.nan


def guess_normalizer(golds: Iterable[str], answers: Iterable[str] = ()) -> str:
    r"""Return the name of the normalizer that fits these gold answers: the most specific one that can read all of them.

    >>> guess_normalizer(["18.0", "1,200"]), guess_normalizer(["A", "(C)"]), guess_normalizer(["05/01/2021"])
    ('number', 'letter', 'date')
    >>> guess_normalizer(["Oslo", "7"]), guess_normalizer(["True", "False"]), guess_normalizer([])
    ('qa', 'qa', 'qa')
    >>> guess_normalizer(["[1, 2]", "'-'"]), guess_normalizer(["def f(x):\n    return -x"])
    ('literal', 'literal')
    >>> guess_normalizer([], answers=["-5", "5.0", "$1,200"])
    'number'

    LaTeX expressions need the normalizer `math`, if the extra of that name is installed.

    Args:
        golds: The gold answers.
        answers: The model's answers, used without gold answers: they decide if mostly plain numbers, or mostly code.
    """
    from suffice.policy.expressions import expression_key, is_available, looks_mathematical

    texts = golds if isinstance(golds, Collection) else list(golds)
    if not any(True for _ in texts):
        return _guess_by_answers(answers)
    if (
        any(map(looks_mathematical, texts))
        and is_available()
        and all(expression_key(text) is not None for text in texts)
    ):
        return "math"
    for name in ("date", "letter", "number"):
        if all(_ALL_NORMALIZERS[name](text) is not None for text in texts):
            return name
    return _literal_or_default(texts)


def _guess_by_answers(answers: Iterable[str]) -> str:
    """Guess the normalizer from answers, without gold answers; a number within prose does not count as one."""
    texts = answers if isinstance(answers, Collection) else list(answers)
    if _share(lambda text: _BARE_NUMBER.fullmatch(text.translate(_MINUS)) is not None, texts) >= _MOST:
        return "number"
    return _literal_or_default(texts)


def _literal_or_default(texts: Collection[str]) -> str:
    is_code = _share(_is_code, texts) >= _MOST and any(map(_is_structured, texts))
    return "literal" if is_code else DEFAULT_NORMALIZER


def _share(holds: Callable[[str], bool], texts: Iterable[str]) -> float:
    """Return the share of texts for which `holds` is true; 0 without texts."""
    n = true = 0
    for text in texts:
        n += 1
        true += holds(text)
    return true / n if n else 0.0


def _is_code(text: str) -> bool:
    """Return whether a text is a literal of Python or JSON, a number or a program."""
    return _evaluated(text.strip(), _NO_LITERAL) is not _NO_LITERAL or _is_structured(text)


def _is_structured(text: str) -> bool:
    """Return whether a text is a program, or has the brackets or quotes of a literal."""
    text = text.strip()
    is_enclosed = len(text) > 1 and _CLOSING.get(text[0]) == text[-1]
    return _PROGRAM.search(text[:_LONGEST]) is not None or (
        is_enclosed and _evaluated(text, _NO_LITERAL) is not _NO_LITERAL
    )
