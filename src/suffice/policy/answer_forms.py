"""Forms in which answers are written, with a function that reads each form: decimal commas, thousands, dates, currencies."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from types import MappingProxyType

from suffice.policy.normalizers import NORMALIZERS, with_decimal_point
from suffice.policy.plain_forms import without_currency

THOUSANDS, DECIMAL_COMMA = "thousands", "decimal-comma"
DAY_FIRST, MONTH_FIRST = "day-first", "month-first"
NO_CURRENCY = "no-currency"
"""Names of forms: the meaning of a comma, what is first in a date, or that the currencies of amounts are left out."""

_THOUSANDS = re.compile(r"(?<![\w.,])\d{1,3}(?:[ \u00a0\u2009\u202f'\u2019]\d{3})+(?!\w)")


def without_separators(text: str) -> str:
    """Return a text without the commas, blanks and apostrophes that separate the thousands of its numbers.

    >>> without_separators("CHF 1'234.50"), without_separators("1,234 or 12 345")
    ('CHF 1234.50', '1234 or 12345')
    """
    return _THOUSANDS.sub(lambda found: re.sub(r"\D", "", found[0]), text).replace(",", "")


def _with_point(text: str) -> str:
    return re.sub(r"(?<=\d),(?=\d)", "", with_decimal_point(text))


def _as_date(normalizer: str) -> Callable[[str], str]:
    key_of = NORMALIZERS[normalizer]
    return lambda text: key_of(text) or text


ANSWER_FORMS: Mapping[str, Callable[[str], str]] = MappingProxyType(
    {
        THOUSANDS: without_separators,
        DECIMAL_COMMA: _with_point,
        DAY_FIRST: _as_date("date_day_first"),
        MONTH_FIRST: _as_date("date"),
        NO_CURRENCY: without_currency,
    }
)
"""For each form, the function that returns an answer as it is compared and returned; another text stays as it is.

>>> ANSWER_FORMS["decimal-comma"]("1.234,50 EUR"), ANSWER_FORMS["day-first"]("3/4/2021"), ANSWER_FORMS["day-first"]("Oslo")
('1234.50 EUR', '2021-04-03', 'Oslo')
"""
