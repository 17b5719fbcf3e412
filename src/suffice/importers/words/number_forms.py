"""Numbers as written by people and spreadsheets: with thousands separators, decimal commas or currency signs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from suffice.importers.words.names import CURRENCIES, words_in
from suffice.policy.signals.position import ANSWER_FORMS

EACH, CENTS = "each", "cents"
"""Ends of ``COLUMN:FORM`` in an option: that dollars or cents (`spend`) are those of each round."""
UNITS = {
    CENTS: 100,
    "millidollars": 10**3,
    "microdollars": 10**6,
    "nanodollars": 10**9,
    "millicents": 10**5,
    "microcents": 10**8,
    "nanocents": 10**11,
}
"""Parts of a dollar in which amounts are logged, and how many of them a dollar has."""

TOTALS = {f"{unit}-total": per for unit, per in UNITS.items()}
"""Forms of running totals in these parts; one in dollars has no form."""

FORMS = (*ANSWER_FORMS, EACH, *UNITS, *TOTALS)

_PARTS = {
    **dict.fromkeys(("milli", "mill", "e3", "1e3"), "milli"),
    **dict.fromkeys(("micro", "\u00b5", "\u03bc", "e6", "1e6"), "micro"),
    **dict.fromkeys(("nano", "e9", "1e9"), "nano"),
}
_UNIT = re.compile(
    rf"(?P<part>{'|'.join(sorted(_PARTS, key=len, reverse=True))})?s?(?P<base>dollars?|usd|cents?|cts?)?"
)
"""Words of names that say a part of a dollar, or of a cent."""


_CODES = {"$": "USD", "€": "EUR", "£": "GBP"}
_CURRENCY = re.compile(r"\s*(?:[$€£¥]|USD|EUR|GBP)\s*")
_IN_NAME = re.compile(rf"(?:^|[\W_])({'|'.join(CURRENCIES)}|[$€£¥])(?=$|[\W_])", re.IGNORECASE)
_UNDECIDED = re.compile(r"-?[1-9]\d{0,2},\d{3}")
_COMMAS = re.compile(r"-?[1-9]\d{0,2}(?:(?:,\d{3})+\.\d+|(?:,\d{3}){2,})")
_DOTS = re.compile(r"-?[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,})")
_GAPS = re.compile(r"-?[1-9]\d{0,2}(?:[ \u00a0\u202f'\u2019]\d{3})+(?:[.,]\d+)?")
_POINTED = re.compile(r"-?[1-9]\d{0,2}\.\d{3}")
_DECIMAL = re.compile(r"-?\d+\.\d+")
_COMMA = re.compile(r"-?\d+,\d+")


def written_number(text: str, *, whole: bool = False) -> float | None:
    """Parse a number with separators or a currency sign; None for other texts, and for an ambiguous comma as in `1,234`.

    Args:
        text: The text.
        whole: True if only whole numbers make sense, so that the comma in `1,234` separates thousands.

    >>> [written_number(text) for text in ("$1,234.50", "0,05 €", "1.234,5", "12 345", "1,234,567")]
    [1234.5, 0.05, 1234.5, 12345.0, 1234567.0]
    >>> written_number("1,234"), written_number("1,234", whole=True), written_number("about 5")
    (None, 1234.0, None)
    """
    bare = _CURRENCY.sub("", text, count=1).strip()
    if _COMMAS.fullmatch(bare) or (whole and _UNDECIDED.fullmatch(bare)):
        return float(bare.replace(",", ""))
    if _DOTS.fullmatch(bare):
        return float(bare.replace(".", "").replace(",", "."))
    if _GAPS.fullmatch(bare):
        return float(re.sub(r"[^\d.,-]", "", bare).replace(",", "."))
    if _COMMA.fullmatch(bare) and not _UNDECIDED.fullmatch(bare):
        return float(bare.replace(",", "."))
    return float(bare) if re.fullmatch(r"-?\d+(?:\.\d+)?", bare) else None


def money_unit(name: str) -> str:
    """Return the unit of the amounts in a column by its name, such as cents or microdollars; "" for dollars.

    >>> [money_unit(name) for name in ("cost_cents", "costCt", "cost_micros_usd", "usd_e9", "millicents", "percent_cost")]
    ['cents', 'cents', 'microdollars', 'nanodollars', 'millicents', '']
    """
    parts = [match for match in map(_UNIT.fullmatch, words_in(name)) if match is not None]
    part = next((_PARTS[match["part"]] for match in parts if match["part"]), "")
    is_cents = any((match["base"] or "").startswith("c") for match in parts)
    return f"{part}{'cents' if is_cents else 'dollars' if part else ''}"


def points_separate(values: Sequence[object], *, whole: bool) -> str:
    """Return the first text such as `1.234`, if points separate thousands in this column; else "".

    They do if only whole numbers make sense, or if other texts have decimal commas or several points; but not if some
    texts have decimal points, such as `0.5`.

    Args:
        values: The values of a column.
        whole: True if only whole numbers make sense, as for tokens.

    >>> points_separate(["812", "1.234"], whole=True), points_separate(["4,5", "1.234"], whole=False)
    ('1.234', '1.234')
    >>> points_separate(["0.5", "1.234"], whole=True), points_separate(["812", "1.234"], whole=False)
    ('', '')
    """
    texts = [_CURRENCY.sub("", value, count=1).strip() for value in values if isinstance(value, str)]
    pointed = [text for text in texts if _POINTED.fullmatch(text)]
    has_decimals = any(_DECIMAL.fullmatch(text) and not _POINTED.fullmatch(text) for text in texts)
    shows = any(_DOTS.fullmatch(text) or (_COMMA.fullmatch(text) and not _UNDECIDED.fullmatch(text)) for text in texts)
    return pointed[0] if pointed and not has_decimals and (whole or shows) else ""


def is_undecided(text: object) -> bool:
    """Return whether a text is a number whose comma may separate thousands or decimals.

    >>> is_undecided("1,234"), is_undecided("$1,234"), is_undecided("0,234")
    (True, True, False)
    """
    return isinstance(text, str) and _UNDECIDED.fullmatch(_CURRENCY.sub("", text, count=1).strip()) is not None


def currency_codes(signs: Iterable[str]) -> list[str]:
    """Return the codes of currency signs.

    The sign ¥ has two codes, so it stays as it is, but is dropped if one of them, JPY or CNY, occurs as well.

    >>> currency_codes(["$", "USD"]), currency_codes(["€", "EUR", "£"]), currency_codes(["¥", "JPY"])
    (['USD'], ['EUR', 'GBP'], ['JPY'])
    """
    codes = [*dict.fromkeys(_CODES.get(sign, sign) for sign in signs)]
    return [code for code in codes if code != "¥" or not {"JPY", "CNY"} & {*codes}]


def currencies(values: Sequence[object], name: str = "") -> list[str]:
    """Return the currency signs in a column's name and texts, in the order of first use.

    >>> currencies(["$0.10", "0,05 €", 3]), currencies([0.1], "Kosten (EUR)"), currencies([0.1], "costUSD")
    (['$', '€'], ['EUR'], ['USD'])
    """
    found = [match[1].upper() for match in _IN_NAME.finditer(re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name))]
    found += [match[0].strip() for value in values if isinstance(value, str) and (match := _CURRENCY.search(value))]
    return [*dict.fromkeys(found)]
