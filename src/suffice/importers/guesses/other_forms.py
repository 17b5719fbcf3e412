"""Find answers and gold answers that write numbers or dates in different forms, and ask for the form that makes them equal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from suffice.errors import UnsettledError
from suffice.importers.answers.reply_answers import HARDLY_EVER, OFTEN, SAMPLE
from suffice.importers.words.choices import of_options
from suffice.policy.normalizers import NORMALIZERS, with_decimal_point
from suffice.policy.plain_forms import currencies_in, without_currency
from suffice.policy.signals.position import (
    DAY_FIRST,
    DECIMAL_COMMA,
    MONTH_FIRST,
    NO_CURRENCY,
    THOUSANDS,
    without_separators,
)

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("answer", "golds")
"""The columns of a recording that are looked at."""

_ENOUGH, _GAIN, _FEW = 8, 0.1, 0.01
"""The fewest answers, and by how much more of them another form, or one without currencies, must make equal to a gold answer."""

_ASKED = ("normalizer", "answer_position")
"""Options by which the user has said how answers are compared."""

_DECIMALS = re.compile(r"\d,(?:\d{1,2}|\d{4,})(?!\d)|\b0,\d|\d\.\d{3},\d")
"""A comma that separates no thousands."""

_MADE = re.compile(r"\)$| in '| \.\.\. ")
"""What descriptions of computed columns have, and names of those that are read in a form."""

Key = Callable[[str], str | None]

_NUMBER, _PERCENT, _DATE, _DAY, _MIXED = (
    NORMALIZERS[name] for name in ("number", "percent", "date", "date_day_first", "mixed")
)
_ALIKE = ("number", "percent", "decimal_comma", "mixed", "date", "date_day_first")
"""Normalizers that read answers and gold answers in the same way, and are chosen elsewhere."""


def _with_comma(key_of: Key) -> Key:
    return lambda text: key_of(with_decimal_point(text))


def _without_gaps(key_of: Key) -> Key:
    return lambda text: key_of(without_separators(text))


def _of_any_currency(text: str) -> str | None:
    return _MIXED(without_currency(text))


def _of_none(text: str) -> str | None:
    return None if currencies_in(text) else _MIXED(text)


_COMMAS, _GAPS = _with_comma(_NUMBER), _without_gaps(_NUMBER)

_OTHERS: tuple[tuple[Mapping[str, str], Key, Key], ...] = (
    ({"answer": DECIMAL_COMMA}, _COMMAS, _NUMBER),
    ({"answer": DECIMAL_COMMA}, _with_comma(_PERCENT), _PERCENT),
    ({"golds": DECIMAL_COMMA}, _NUMBER, _COMMAS),
    ({"golds": DECIMAL_COMMA}, _PERCENT, _with_comma(_PERCENT)),
    ({"answer": DECIMAL_COMMA}, _with_comma(_MIXED), _MIXED),
    ({"golds": DECIMAL_COMMA}, _MIXED, _with_comma(_MIXED)),
    ({"answer": THOUSANDS}, _GAPS, _NUMBER),
    ({"golds": THOUSANDS}, _NUMBER, _GAPS),
    ({"answer": DECIMAL_COMMA, "golds": THOUSANDS}, _COMMAS, _GAPS),
    ({"answer": THOUSANDS, "golds": DECIMAL_COMMA}, _GAPS, _COMMAS),
    ({"answer": MONTH_FIRST}, _DATE, _DAY),
    ({"answer": DAY_FIRST}, _DAY, _DATE),
    ({"answer": NO_CURRENCY}, _of_any_currency, _of_none),
    ({"golds": NO_CURRENCY}, _of_none, _of_any_currency),
)
"""Readings of columns in other forms, by our names, and what compares answers and gold answers then."""

_MEANINGS = {
    DECIMAL_COMMA: "the comma is the decimal point",
    THOUSANDS: "blanks, commas and apostrophes separate thousands",
    MONTH_FIRST: "the month is first in dates",
    DAY_FIRST: "the day is first in dates",
    NO_CURRENCY: "the currencies of amounts are left out",
}


def refuse_other_forms(parts: Iterable[pa.Table], options: Mapping[str, Any], columns: Mapping[str, str]) -> None:
    """Raise if clearly more answers equal gold answers once the numbers or dates of a column are read in a different form.

    Args:
        parts: The recording's tables, with at least the columns in `COLUMNS`.
        options: The user's options for the import.
        columns: The log's columns by this library's names.

    Raises:
        UnsettledError: Such a form exists; the error offers to use it.  This choice is confirmed if hardly any answer is right otherwise.
    """
    known = {ours: columns[ours] for ours in COLUMNS if ours in columns and not _MADE.search(columns[ours])}
    # the rest is computed, joined, or already read in a form
    others = [other for other in _OTHERS if other[0].keys() <= known.keys()]
    if not others or len(known) < len(columns.keys() & {*COLUMNS}) or any(name in options for name in _ASKED):
        return
    pairs = _pairs(parts)
    if len(pairs) < _ENOUGH:
        return
    texts = [said for said, _ in pairs], [gold for _, right in pairs for gold in right]
    has_comma = [any(map(_DECIMALS.search, own)) for own in texts]
    sure = {ours for ours, has in zip(COLUMNS, has_comma, strict=True) if has}
    others = [
        other for other in others if all(form != DECIMAL_COMMA or ours in sure for ours, form in other[0].items())
    ]
    if not others:
        return
    # if only answers have commas, this does not show that a comma in gold answers is the decimal point
    alike = [name for name in _ALIKE if name != "decimal_comma" or has_comma != [True, False]]
    counted = _Agreement(pairs)
    usual = {name: counted(NORMALIZERS[name], NORMALIZERS[name]) for name in alike}
    best = max(others, key=lambda other: counted(*other[1:]))
    before, agreed = max(usual.values()), counted(*best[1:])
    forms, of_answers, of_golds = best
    of_money = NO_CURRENCY in forms.values()
    if agreed - before < (_FEW if of_money else _GAIN) * len(pairs):
        return
    of_dates = not {MONTH_FIRST, DAY_FIRST}.isdisjoint(forms.values())
    rivals = ["mixed"] if of_money else [own for own in alike if own.startswith("date") == of_dates]
    name = max(rivals, key=lambda own: usual[own])
    said, right = next(
        pair
        for pair in pairs
        if _Agreement([pair])(of_answers, of_golds) > _Agreement([pair])(NORMALIZERS[name], NORMALIZERS[name])
    )
    meaning = " and ".join(f"in {known[ours]!r} {_MEANINGS[form]}" for ours, form in forms.items())
    question = (
        f"answers and gold answers write numbers or dates in different ways, such as {said!r:.40} and {right[0]!r:.40}: {agreed:,} of "
        f"{len(pairs):,} answers equal a gold answer if {meaning}, else {before:,}"
    )
    choices = of_options(meaning, columns={ours: f"{known[ours]}:{form}" for ours, form in forms.items()})
    one_currency = of_money and len(set().union(*(currencies_in(text) for own in texts for text in own))) == 1
    if one_currency or (before <= HARDLY_EVER * len(pairs) and agreed >= OFTEN * len(pairs)):
        raise UnsettledError(question, "options", choices, next(iter(choices)))
    choices |= {f"--set normalizer={name}": ({"normalizer": name}, "both are written in the same way")}
    raise UnsettledError(question, "options", choices)


class _Agreement:
    """Counts the answers that equal a gold answer if one function reads the answers and another the gold answers.

    Each function reads each text only once.

    Args:
        pairs: Answers with their gold answers.
    """

    def __init__(self, pairs: Sequence[tuple[str, list[str]]]) -> None:
        self._pairs = pairs
        self._keys: dict[tuple[Key, str], str | None] = {}

    def __call__(self, of_answers: Key, of_golds: Key) -> int:
        return sum(
            own is not None and any(own == self._key(of_golds, gold) for gold in right)
            for own, right in ((self._key(of_answers, said), right) for said, right in self._pairs)
        )

    def _key(self, key_of: Key, text: str) -> str | None:
        found = (key_of, text)
        if found not in self._keys:
            self._keys[found] = key_of(text)
        return self._keys[found]


def _pairs(parts: Iterable[pa.Table]) -> list[tuple[str, list[str]]]:
    """Return the first answers that have gold answers, each with its gold answers."""
    pairs: list[tuple[str, list[str]]] = []
    for part in parts:
        answers, golds = (part.column(name).to_pylist() for name in COLUMNS)
        pairs += [(said, right) for said, right in zip(answers, golds, strict=True) if said and right]
        if len(pairs) >= SAMPLE:
            break
    return pairs[:SAMPLE]
