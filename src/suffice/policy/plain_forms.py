"""Write texts in one form: dashes, quotes, blanks and full-width signs, times of day, ranges of numbers, and amounts of money.

In the texts, the currency of an amount is a sign, a code or a name, before or after the number.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

_FULL_WIDTH = range(0xFF01, 0xFF5F)
"""The signs and letters of ASCII in the width of a Chinese character."""

_PLAIN = str.maketrans(
    {
        **{chr(code): chr(code - 0xFEE0) for code in _FULL_WIDTH},
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212\ufe58\ufe63", "-"),
        **dict.fromkeys("\u2018\u2019\u201a\u201b\u02bc\u2032\u00b4\u1ffd", "'"),
        **dict.fromkeys("\u201c\u201d\u201e\u201f\u00ab\u00bb\u2033", '"'),
        **dict.fromkeys(
            "\u00a0\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000", " "
        ),
        **dict.fromkeys("\u00ad\u200b\u200e\u200f\u2060\ufeff", ""),
        "\u2026": "...",
    }
)

_NOON = 12
_TIME = re.compile(r"(?<![\w:.,])(1[0-2]|0?[1-9])(?:[:.]([0-5]\d))?\s?([ap])(?:m\b|\.\s?m\.)", re.IGNORECASE)
_END = r"(\d{1,2}:\d\d|(?:0|[1-9]\d{0,2}(?:,\d{3})+|[1-9]\d*)(?:\.\d+)?)"
_RANGE = re.compile(rf"(?<![\w.,:$€£¥-]){_END}\s*(?:-|\bto\b)\s*{_END}(?!\d|[.,:-]\d)")


def plain_text(text: str) -> str:
    r"""Replace typographic hyphens, quotes, blanks, digits and letters in a text by their plain forms.

    >>> plain_text("12\u201317 days, \u201cRubik\u2019s Cube\u201d, \uff15\u00a0km")
    '12-17 days, "Rubik\'s Cube", 5 km'
    """
    return text if text.isascii() else unicodedata.normalize("NFC", text.translate(_PLAIN))


def in_one_spelling(text: str) -> str:
    """Rewrite times of day in a text as 24-hour times, and ranges of numbers with "to".

    Text that may be a difference, an id or a date stays unchanged.

    >>> in_one_spelling("3 pm"), in_one_spelling("12-17 days"), in_one_spelling("9.30 a.m. - 12 p.m.")
    ('15:00', '12 to 17 days', '9:30 to 12:00')
    >>> in_one_spelling("9-4"), in_one_spelling("555-12-99"), in_one_spelling("2021-05"), in_one_spelling("I am 5")
    ('9-4', '555-12-99', '2021-05', 'I am 5')
    """
    return _RANGE.sub(_as_range, _TIME.sub(_in_24_hours, text))


def _in_24_hours(found: re.Match[str]) -> str:
    hour = int(found[1]) % _NOON + (_NOON if found[3] in "pP" else 0)
    return f"{hour}:{found[2] or '00'}"


def _as_range(found: re.Match[str]) -> str:
    first, last = found[1], found[2]
    are_times = ":" in first and ":" in last
    low, high = (float(text.partition(":")[0].replace(",", "")) for text in (first, last))
    return f"{first} to {last}" if are_times or low < high else found[0]


_OF_SIGNS = {"$": "USD", "€": "EUR", "£": "GBP", "¥": "¥", "₹": "INR", "₩": "KRW"}
"""Currencies by sign; ¥ alone may be the yen or the yuan, and stays what it is."""

_OF_PREFIXES = {
    **dict.fromkeys(["US$", "U.S.$", "U.S. $"], "USD"),
    **dict.fromkeys(["A$", "AU$"], "AUD"),
    **dict.fromkeys(["C$", "CA$"], "CAD"),
    "HK$": "HKD",
    "NZ$": "NZD",
    "S$": "SGD",
    "JP¥": "JPY",
    "CN¥": "CNY",
}
_DOLLARS = ("USD", "AUD", "CAD", "HKD", "NZD", "SGD", "MXN")
_CODES = (
    *(*_DOLLARS, "JPY", "CNY", "EUR", "GBP", "INR", "KRW", "CHF"),
    *("SEK", "NOK", "DKK", "PLN", "CZK", "HUF", "BRL", "ZAR", "ILS", "THB"),
)
_OF_NAMES = {
    **{code: code for code in _CODES},
    **dict.fromkeys(["RMB", "YUAN"], "CNY"),
    **dict.fromkeys(["EURO", "EUROS"], "EUR"),
    **dict.fromkeys(["DOLLARS", "US DOLLARS", "U.S. DOLLARS"], "USD"),
    "POUNDS STERLING": "GBP",
    "YEN": "JPY",
}
_CURRENCIES = {**_OF_SIGNS, **_OF_PREFIXES, **_OF_NAMES}
_SHARED = {"USD": frozenset(_DOLLARS), "¥": frozenset({"JPY", "CNY"})}
"""Currencies whose sign is that of another one, or of none in particular, as in CAD $5."""

_SCALES = {"k": "thousand", "m": "million", "mn": "million", "b": "billion", "bn": "billion"}


def _one_of(names: Iterable[str]) -> str:
    return "|".join(sorted(map(re.escape, names), key=len, reverse=True))


_SCALE = "thousand|[mb]illion|trillion"
_SIGNS = "".join(_OF_SIGNS)
_NAMED = re.compile(rf"[{_SIGNS}]|{_one_of(_OF_NAMES)}", re.IGNORECASE)
_AMOUNT = re.compile(
    rf"""(?<![\w.,/{_SIGNS}-])(?<!\d:)(?P<sign>[-+])?
    (?:(?P<before>(?-i:{_one_of(_OF_PREFIXES)})|{_one_of([*_CODES, "RMB"])})\s*)?
    (?:(?P<first>[{_SIGNS}])\s*)?(?P<inner>[-+])?
    (?P<digits>\d{{1,3}}(?:[ ']\d{{3}})+(?:\.\d+)?(?![.,']?\d)|\d(?:[\d.,]*\d)?|\.\d+)
    (?:\s*(?P<scale>{_SCALE})\b|\s?(?P<short>k|mn?|bn?)\b)?
    (?:\s*(?P<last>[{_SIGNS}])|\s*(?P<after>{_one_of(_OF_NAMES)})\b)?
    (?!\w|[.,]?\d|\s*[-/]\s*[{_SIGNS}]?\d)""",
    re.VERBOSE | re.IGNORECASE,
)


_CODE = _one_of([*_CODES, "¥"])
CURRENCY = rf"(?:(?:{_SCALE})\s)?(?:{_CODE})(?!\w)"
"""The pattern of what follows the number of an amount in one form, but for dollars."""

_OF_CURRENCY = re.compile(rf"(\d(?:\s(?:{_SCALE}))?)\s({_CODE})(?!\w)|(\$)(?=\.?\d)")


def in_one_form(text: str) -> str:
    """Rewrite amounts of money as a number and a currency code, such as 42.50 EUR; dollars are written as $5.

    Ranges, formulas, and amounts with no currency or two currencies stay unchanged.

    >>> in_one_form("€42.50 or EUR 42.50"), in_one_form("-€1.5k a night"), in_one_form("73 500 US dollars")
    ('42.50 EUR or 42.50 EUR', '-1.5 thousand EUR a night', '$73500')
    >>> in_one_form("€5 or CAD $5 or ¥5"), in_one_form("€5-10"), in_one_form("$5$"), in_one_form("€5 USD")
    ('5 EUR or 5 CAD or 5 ¥', '€5-10', '$5$', '€5 USD')
    """
    return _AMOUNT.sub(_written, text) if _NAMED.search(text) else text


def without_currency(text: str) -> str:
    """Remove the currencies from the amounts of money in a text.

    >>> without_currency("€42.50"), without_currency("5k USD a night"), without_currency("5 km")
    ('42.50', '5 thousand a night', '5 km')
    """
    read = in_one_form(plain_text(text))
    bare = _OF_CURRENCY.sub(r"\1", read)
    return text if bare == read else bare


def currencies_in(text: str) -> set[str]:
    """Return the codes of the currencies in a text; the code of dollars is "$".

    >>> sorted(currencies_in("€5 or 5 dollars")), currencies_in("5 km")
    (['$', 'EUR'], set())
    """
    return {found[2] or found[3] for found in _OF_CURRENCY.finditer(in_one_form(plain_text(text)))}


def _written(found: re.Match[str]) -> str:
    named = [found[part] for part in ("before", "first", "last", "after") if found[part]]
    currencies = {_CURRENCIES[name.upper()] for name in named}
    if len(currencies) > 1:
        currencies -= {own for own in currencies if _SHARED.get(own, frozenset()) & (currencies - {own})}
    is_formula = found["last"] == "$" and found.string.count("$") > 1
    if len(currencies) != 1 or is_formula:
        return found[0]
    currency = currencies.pop()
    number = re.sub("[ ']", "", found["digits"])
    scale = (found["scale"] or _SCALES.get((found["short"] or "").lower(), "")).lower()
    sign = "-" if ((found["sign"] or "") + (found["inner"] or "")).count("-") % 2 else ""
    amount = f"{number} {scale}".rstrip()
    return f"{sign}${amount}" if currency == "USD" else f"{sign}{amount} {currency}"
