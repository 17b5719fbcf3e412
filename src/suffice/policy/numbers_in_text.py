"""Numbers as people and models write them in answers: signs, thousands, fractions, powers of ten, currencies and units.

A sign and a decimal point always count. Text that can be read in two ways is not read as a number: "1.234,5" (which
sign is the decimal point?), "9 - 4" (two numbers or a difference?), "9^9".
"""

from __future__ import annotations

import re
import unicodedata
from fractions import Fraction
from functools import lru_cache

LONGEST = 1000
"""Most characters of a text that can be a number."""

_PLAIN = str.maketrans(
    {
        **dict.fromkeys("\u2010\u2011\u2012\u2013\u2212\uff0d", "-"),
        **{c: " " + unicodedata.normalize("NFKC", c).replace("\u2044", "/") for c in "¼½¾⅓⅔⅕⅖⅗⅘⅙⅚⅛⅜⅝⅞"},
    }
)
_REWRITTEN = (
    (re.compile(r"(?i)\b(?:minus|negative)\s+(?=[$€£¥.\d])"), "-"),
    (re.compile(r"\{,\}"), ","),
    (re.compile(r"\\([$%#])|\^\{?\\circ\}?"), r"\1"),
    (re.compile(r"\\(?:boxed|fbox|text|mathrm|mbox)\b|\\[,;! ()\[\]]"), " "),
)
_SCALES = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
_SHORT = {"k": 10**3, "m": 10**6, "mn": 10**6, "b": 10**9, "bn": 10**9}
"""Scales of amounts of money."""

_UNITS = (
    r"[kcm]m|[km]g|ml|lbs?|oz|ft|mph|km/h|hrs?|mins?|secs?|ms|[kmgt]b|(?<=\s)[lhgwv]"
    r"|[kmgt\u00b5\u03bc](?:[wvj])|[kmgt\u00b5\u03bc]?(?:wh|hz|pa|ev)"
)
"""Units after a number; a letter by itself only after a blank, since 4j is an imaginary number and 2v or 3h a name."""
_RUN = r"(?:\d[\d.,_']*\d|\d)"
_NUMBER = re.compile(
    rf"""(?:(?:^\s*|(?<=[:=]\s)|(?<![\w)\]}}.%,]))(?P<sign>(?<=[:=]\s)[-+]\s*|^\s*[-+]\s*|[-+])?)
    (?P<money>[$€£¥]\s*)?(?P<inner>[-+])?(?<![\w.])
    (?:(?P<whole>\d{{1,9}})\s+(?=\d+\s*/\s*\d))?
    (?P<digits>\.{_RUN}|{_RUN}\.?(?!\d))(?P<power>[eE][-+]?\d{{1,3}}(?!\w))?
    (?:\s*(?:[x\u00d7*·]|\\times|\\cdot)\s*10\s*(?:\^|\*\*)\s*\{{?(?P<ten>[-+]?\d{{1,3}})\}}?(?!\w))?
    (?:\s*/\s*(?P<bottom>\d+)(?![\d.,]*\d))?
    (?:\s*(?P<scale>dozen|hundred|thousand|[mbt]r?illion)s?\b|(?:{_UNITS})\b
        |\s?(?P<short>[kmb]|bn|mn)\b(?(money)|(?=\s*(?:USD|EUR|GBP|dollars?|euros?)\b)))?(?!\w)""",
    re.VERBOSE | re.IGNORECASE,
)
_VALID = re.compile(r"(?:\d{1,3}(?:,\d{3})+|\d+)?(?:\.\d+)?")
_HOLE = "\0"
"""Stands for a number in the rest of its text."""

_NOT_ALONE = re.compile(
    r"""\0\s*(?:[-+*/\u00d7·÷:±]|\*\*|[xX])\s*\(?\s*\0  # an operation, a time, or a ratio
    |\0\s*\0|\0\s*[-+*/]\s*(?:\d|[A-Za-z]\b|\()|\0\s*(?:\^|[ap]\.?m\b|pi\b|π|√|±)|^\W*\0!
    |[-+±][\s$€£¥({]*\0|[\^√∛]\s*[({]?\s*\0|^\W*[<>≤≥≠±]\s*[$€£¥]?\0|(?<![\w<])\w\s*[<>≤≥≠]\s*\0""",
    re.VERBOSE,
)
_COMMAND = re.compile(r"\\[A-Za-z]|\d,\d|\d[.,]\d+[.,]\d")
_SEVERAL = re.compile(r"[;\n]|,(?!\d{3})|\b(?:and|or)\b", re.IGNORECASE)
_BARE = re.compile(r"[\s$€£¥%.()*]*\0[\s$€£¥%.()*]*")


def without_numbers(text: str) -> tuple[tuple[str, ...], tuple[Fraction | str, ...]]:
    """Split a text at its numbers; return the pieces around the numbers, and the values of the numbers.

    A number that can be read in two ways is returned as its text.

    >>> rest, values = without_numbers("-2.50 of 1,000 or 1.234,5 km")
    >>> rest, [str(value) for value in values]
    (('', ' of ', ' or ', ' km'), ['-5/2', '1000', '1.234,5'])
    """
    return _short_without_numbers(text) if len(text) <= LONGEST else _without_numbers(text)


def _without_numbers(text: str) -> tuple[tuple[str, ...], tuple[Fraction | str, ...]]:
    text = text.translate(_PLAIN).replace(_HOLE, " ").strip()
    for pattern, replacement in _REWRITTEN:
        text = pattern.sub(replacement, text)
    values: list[Fraction | str] = []

    def keep(match: re.Match[str]) -> str:
        value = _value(match)
        values.append(match.group() if value is None else value)
        return _HOLE

    return tuple(_NUMBER.sub(keep, text).split(_HOLE)), tuple(values)


# Cached, since an import tries several forms of answers on the same texts.
_short_without_numbers = lru_cache(maxsize=4096)(_without_numbers)


def _value(match: re.Match[str]) -> Fraction | None:
    digits = match["digits"].rstrip(".")
    if not _VALID.fullmatch(digits) or max(len(digits), len(match["bottom"] or "")) > LONGEST:
        return None
    value = Fraction(digits.replace(",", ""))
    exponent = int((match["power"] or "e0")[1:]) + int(match["ten"] or 0)
    scale = _SCALES.get((match["scale"] or "").lower(), 1) * _SHORT.get((match["short"] or "").lower(), 1)
    if exponent or scale != 1:  # most numbers have neither, and fractions multiply slowly
        value *= Fraction(10) ** exponent * scale
    if match["bottom"]:
        if not int(match["bottom"]):
            return None
        value /= int(match["bottom"])
    value += int(match["whole"] or 0)
    signs = ((match["sign"] or "") + (match["inner"] or "")).count("-")
    return -value if signs % 2 else value


def only_number(text: str) -> Fraction | None:
    """Return the only number of a text, or of the part after its last "="; None unless there is exactly one.

    >>> [str(only_number(text)) for text in ("-$5", "1 1/2 km", "1.5 million", "5.5kg", "x = 7", "18 dollars, so 18.0")]
    ['-5', '3/2', '1500000', '11/2', '7', '18']
    >>> [str(only_number(text)) for text in ("66M USD", "$1.5bn", "€20k", "5 m", "66M")]
    ['66000000', '1500000000', '20000', '5', 'None']
    >>> [only_number(text) for text in ("1.234,5", "9^9^9", "9 - 4", "5 + 3i", "> 5", "12:30", "x = 1, y = 2", "F-16")]
    [None, None, None, None, None, None, None, None]
    """
    if len(text) > LONGEST:
        return None
    *before, last = text.split("=")
    if before and (before[-1].endswith(("<", ">", "!", "~")) or any(map(_SEVERAL.search, before[1:]))):
        return None
    parts, values = without_numbers(last)
    rest = _HOLE.join(parts)
    if len({*values}) != 1 or _NOT_ALONE.search(rest) or _COMMAND.search(rest):
        return None
    return values[0] if isinstance(values[0], Fraction) else None


def is_number_alone(text: str) -> bool:
    """Return True if a text is only a number, possibly with a currency or a percent sign.

    >>> [is_number_alone(text) for text in ("-5", "$1,200.50", "12 %", "about 5", "5-6")]
    [True, True, True, False, False]
    """
    if len(text) > LONGEST:
        return False
    parts, values = without_numbers(text)
    return _BARE.fullmatch(_HOLE.join(parts)) is not None and isinstance(values[0], Fraction)


_MEASURES = (
    ("m", "1/1000", "mm millimetre millimeter"),
    ("m", "1/100", "cm centimetre centimeter"),
    ("m", "1", "m metre meter"),
    ("m", "1000", "km kilometre kilometer"),
    ("g", "1/1000", "mg milligram"),
    ("g", "1", "g gram"),
    ("g", "1000", "kg kilogram kilo"),
    ("g", "1000000", "t ton tonne"),
    ("l", "1/1000", "ml millilitre milliliter"),
    ("l", "1", "l L litre liter"),
    ("sec", "1", "sec second"),
    ("sec", "60", "min minute"),
    ("sec", "3600", "h hr hour"),
    ("sec", "86400", "day"),
    ("sec", "604800", "week"),
)
_PREFIXED = ["W", "Wh", "V", "Hz", "J", "Pa", "eV"]
_LARGE = {"k": "1000", "G": "1e9", "T": "1e12"}
_SMALL = {"": "1", "m": "1e-3", "µ": "1e-6", "μ": "1e-6", "n": "1e-9"}
_BASES = {name: (base, Fraction(factor)) for base, factor, names in _MEASURES for name in names.split()}
_AS_WRITTEN = {name: unit for name, unit in _BASES.items() if len(name) == 1} | {
    prefix + name: (base, Fraction(factor))
    for base in _PREFIXED
    for prefix, factor in [*_SMALL.items(), ("M", "1e6")]
    for name in ([base, base.lower()] if prefix == "M" else [base])
}
_AS_WRITTEN |= {"Mm": ("m", Fraction(10**6)), "Mg": ("g", Fraction(10**6))}
"""Units whose case counts: 8 mW is not 8 MW, nor 8 mg 8 Mg."""

_BASES |= {(prefix + base).lower(): (base, Fraction(_LARGE[prefix])) for base in _PREFIXED for prefix in _LARGE}
_BASES |= {"mhz": ("Hz", Fraction(10**6)), **_AS_WRITTEN}
_LETTERS = "|".join(sorted(_AS_WRITTEN, key=len, reverse=True))
_LONGER = "|".join(name for name in _BASES if name not in _AS_WRITTEN)
_QUANTITY = re.compile(
    rf"(?<![\w$€£¥.,/-])([-+]?\d[\d.,]*(?:/\d+)?(?:\s+(?:thousand|million|billion))?)\s*(?:(?:({_LETTERS})|((?i:{_LONGER}))s?)\b)"
    r"(?!\s*[/²³^]|\s*(?:USD|EUR|GBP|dollars?|euros?)\b)"
)


def in_base_units(text: str) -> str:
    """Convert the quantities in a text to base units such as metres, grams, litres, seconds and watts; the rest stays.

    >>> in_base_units("about 87,000 m"), in_base_units("87 km"), in_base_units("5 km/h or $5 m")
    ('about 87000 m', '87000 m', '5 km/h or $5 m')
    >>> in_base_units("8mW"), in_base_units("8 MW"), in_base_units("3L")
    ('1/125 W', '8000000 W', '3 l')
    """

    def base(found: re.Match[str]) -> str:
        value = only_number(found[1])
        unit, factor = _BASES[found[2] or found[3].lower()]
        return found[0] if value is None else f"{value * factor} {unit}"

    return _QUANTITY.sub(base, text)


def is_quantity(text: str) -> bool:
    """Return True if a text is only a number with a unit of length, mass, volume, time, power or the like.

    >>> is_quantity("1.409,0 km"), is_quantity("5 miles"), is_quantity("5 km away")
    (True, False, False)
    """
    return _QUANTITY.fullmatch(text.strip(" .~")) is not None
