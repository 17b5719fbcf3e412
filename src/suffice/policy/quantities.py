"""Numbers with a unit of length, mass, volume or time: 87 km is 87,000 m."""

from __future__ import annotations

import re
from fractions import Fraction

from suffice.policy.numbers_in_text import only_number

_UNITS = (
    ("m", "1/1000", "mm millimetre millimeter"),
    ("m", "1/100", "cm centimetre centimeter"),
    ("m", "1", "m metre meter"),
    ("m", "1000", "km kilometre kilometer"),
    ("g", "1/1000", "mg milligram"),
    ("g", "1", "g gram"),
    ("g", "1000", "kg kilogram kilo"),
    ("g", "1000000", "t ton tonne"),
    ("l", "1/1000", "ml millilitre milliliter"),
    ("l", "1", "l litre liter"),
    ("sec", "1", "sec second"),
    ("sec", "60", "min minute"),
    ("sec", "3600", "h hr hour"),
    ("sec", "86400", "day"),
    ("sec", "604800", "week"),
)
_BASES = {name: (base, Fraction(factor)) for base, factor, names in _UNITS for name in names.split()}
_LETTERS, _LONGER = ("|".join(name for name in _BASES if (len(name) == 1) is single) for single in (True, False))
_QUANTITY = re.compile(
    rf"(?<![\w$€£¥.,/-])([-+]?\d[\d.,]*(?:/\d+)?(?:\s+(?:thousand|million|billion))?)\s*(?:({_LETTERS})|((?i:{_LONGER}))s?)\b"
    r"(?!\s*[/²³^]|\s*(?:USD|EUR|GBP|dollars?|euros?)\b)"
)


def in_base_units(text: str) -> str:
    """Return a text with its quantities in metres, grams, litres or seconds; other units and words as they are.

    >>> in_base_units("about 87,000 m"), in_base_units("87 km"), in_base_units("5 km/h or $5 m")
    ('about 87000 m', '87000 m', '5 km/h or $5 m')
    """

    def base(found: re.Match[str]) -> str:
        value = only_number(found[1])
        unit, factor = _BASES[found[2] or found[3].lower()]
        return found[0] if value is None else f"{value * factor} {unit}"

    return _QUANTITY.sub(base, text)


def is_quantity(text: str) -> bool:
    """Return whether a text is a number with a unit of length, mass, volume or time, and nothing else.

    >>> is_quantity("1.409,0 km"), is_quantity("5 miles"), is_quantity("5 km away")
    (True, False, False)
    """
    return _QUANTITY.fullmatch(text.strip(" .~")) is not None
