"""The error that asks the user to choose the normalizer that compares answers; it explains each normalizer offered."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Sequence

from suffice.errors import UnsettledError
from suffice.policy.normalizers import DEFAULT_NORMALIZER, NORMALIZERS
from suffice.policy.plain_forms import currencies_in, without_currency

FEW = 0.01
"""Two normalizers differ if they do for more than this share of the pairs."""

LONG = 8
"""The fewest words of a sentence of prose."""

_MEANINGS = {
    "number": "as numbers, by value: 007 is 7, 3.10 is 3.1, '5' is 5, and units do not count",
    "percent": "as numbers, and a percent sign counts: 39 % is 0.39",
    "decimal_comma": "as numbers with a decimal comma: 3,5 is 3.5, and 1.234 is 1234; other texts as words",
    "exact": "as they are written",
    "literal": "as code: '5' and [5] are not 5",
    "unordered": "as lists whose items may be in any order",
    "letter": "as letters of options: a is A",
    "date": "as dates, the month first: 03/04/2021 is in March",
    "date_day_first": "as dates, the day first: 03/04/2021 is in April",
    "mixed": "as numbers and the words beside them: 5 km is 5,000 m, not 5 m, nor 5",
    "mixed_comma": "as numbers with a decimal comma and the words beside them: 2,5 km is 2.500 m, not 2,5 m",
    DEFAULT_NORMALIZER: "as words, without case and punctuation: 3,5 is 35",
}

_CODE = re.compile(r"A9[A9./ -]*")
"""The form of a code, its letters and digits each as one: they come in this order, as in no number with a unit."""

_ENDED = re.compile(r"[A9][A9./ -]*")
_LAST_LETTERS = re.compile(r"(?<=[\d ])[A-Z]+$")
"""The form of a code that may begin with digits, and the letters after them."""

_NUMBERED = re.compile(r"\W*([^\W\d_]{2}[^\d]*)\d")
"""A name and its number, and what stands before the number."""

_FORMS, _NEARLY_ALL, _MANY = 4, 0.95, 0.1
"""The most forms of codes of one kind, the least share of them among texts, and more letters than units have."""

Pairs = Collection[tuple[str, str]]
"""Answers of one question that are compared: with its gold answer, and with the answer before."""


def unsettled(message: str, names: Sequence[str], confirmed: str = "") -> UnsettledError:
    """Return the error that asks the user to choose the normalizer that compares answers.

    Args:
        message: The reason to ask.
        names: The normalizers that may be meant.
        confirmed: The normalizer that the texts clearly suggest; "" if they suggest none clearly.
    """
    return UnsettledError(
        f"{message}: how are answers compared?",
        "normalizer",
        {f"--set normalizer={name}": (name, _MEANINGS[name]) for name in names},
        confirmed and f"--set normalizer={confirmed}",
    )


def with_exact(error: UnsettledError) -> UnsettledError:
    """Return a copy of the error that offers `exact` as its first choice; `exact` compares answers as they are written."""
    meaning = "as they are written: a code with another digit or letter is another one"
    choices = {"--set normalizer=exact": ("exact", meaning), **error.choices}
    return UnsettledError(error.question, error.parameter, choices, error.confirmed)


def are_codes(texts: Collection[str]) -> bool:
    """Return True if nearly all texts are codes: letters and digits in a few forms, or numbers with leading zeros.

    Letters after digits are taken as units, unless the texts have many different letters there.

    >>> are_codes(["H04L 9/32", "G06F 3/01"]), are_codes(["007", "118"]), are_codes(["5 km", "12 kg"]), are_codes(["EUR42", "EUR9"])
    (True, True, False, False)
    >>> are_codes([f"{n}.5 D{letter}" for n, letter in enumerate("ABCDEFGH")])
    True
    """
    own = [text.strip() for text in texts]
    if all(map(str.isdecimal, own)):
        return any(text[0] == "0" < text for text in own)
    forms = Counter(re.sub(r"\d+", "9", re.sub(r"[A-Z]+", "A", text)) for text in own)
    ends = {match[0] for text in own if (match := _LAST_LETTERS.search(text))}
    code = _CODE if len(ends) <= max(_FORMS, _MANY * len(own)) else _ENDED
    codes = {form: n for form, n in forms.items() if code.fullmatch(form)}
    are_many = len(codes) <= _FORMS and sum(codes.values()) >= _NEARLY_ALL * len(own)
    return are_many and sum(bool(currencies_in(text)) for text in own) <= FEW * len(own)


def are_prose(texts: Collection[str]) -> bool:
    """Return True if the texts are sentences of at least eight words on average."""
    return sum(len(text.split()) for text in texts) >= LONG * len(texts) > 0


def say_more_than_numbers(texts: Collection[str], pairs: Pairs) -> bool:
    """Return True if gold answers that contain a number mean more than the number: names such as Terminal 2, or prose.

    Gold answers count as prose only if the model's answers are prose, too.
    """
    return (are_prose(texts) and are_prose([own for own, _ in pairs])) or _are_numbered_names(texts, pairs)


def _are_numbered_names(texts: Collection[str], pairs: Pairs) -> bool:
    """Return True if gold answers are names with a number, such as Terminal 2, and should be compared as names.

    The names are compared as names if two conditions hold. More than a few of the model's answers cannot be read as a
    number, and only a few pairs that differ as names would be equal as numbers.
    """
    named = [match[1].lower() for text in texts if (match := _NUMBERED.match(without_currency(text)))]
    if 2 * len(named) <= len(texts) or len({*named}) < _FORMS:
        return False
    key_of, number = NORMALIZERS[DEFAULT_NORMALIZER], NORMALIZERS["number"]
    unread = sum(number(own) is None for own, _ in pairs)
    gained = sum(number(own) == number(other) is not None and key_of(own) != key_of(other) for own, other in pairs)
    return unread > FEW * len(pairs) >= gained


def differ(name: str, other: str, first: str, second: str) -> bool:
    """Return True if both normalizers read both answers, and exactly one of them treats the answers as equal."""
    if first == second:  # most pairs of a good loop: no need to read them
        return False
    keys = []
    for key_of in (NORMALIZERS[name], NORMALIZERS[other]):
        pair = key_of(first), key_of(second)
        if None in pair:
            return False
        keys.append(pair[0] == pair[1])
    return keys[0] != keys[1]
