"""Spellings of one text: dashes, quotes, blanks and full-width signs, times of day, and ranges of numbers."""

from __future__ import annotations

import re
import unicodedata

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
