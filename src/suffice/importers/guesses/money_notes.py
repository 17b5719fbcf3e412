"""Note columns of money that a loop may have paid: dollars of each row, or running totals."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise

import numpy as np

from suffice.importers.columns.cost_names import INPUT_COLUMNS, OUTPUT_COLUMNS
from suffice.importers.columns.grid import number_or_nan
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import places_of
from suffice.importers.guesses.dearer_models import dearer_text, mean_costs
from suffice.importers.words.choices import column_options
from suffice.importers.words.names import (
    CURRENCIES,
    MONEY,
    TOTAL_TOKENS,
    counts_tokens,
    last_name,
    plain_name,
    words,
    words_in,
)
from suffice.importers.words.number_forms import EACH, currencies, is_undecided, money_unit
from suffice.policy.signals.position import DECIMAL_COMMA, THOUSANDS

_CODES = "|".join(CURRENCIES)
_MONEY = re.compile(
    rf"(?:^|_)(?:cents?|{_CODES}|spend)(?:$|_)|cost.*[¢$€£]|^(?:costs?|price)_\w*(?:cents?|{_CODES})$"
    r"|(?:milli|micro|nano|[\u00b5\u03bc])_?(?:dollars?|cents?|usd)|^(?:costs?|price|spend)_\w*(?:(?:mill|milli|micro|nano)s|cts?|dollars)$"
)
_OF_TOKENS = re.compile(r"(?:^|_)per(?:$|_)")
"""A price of many tokens, which is not what a row costs."""

_COSTS = frozenset(words("cost costs spend spent fee fees billed charge charged charges expense expenses"))
_NO_THING = frozenset(
    words(
        "milli micro nano mill mills millis micros nanos ct cts in total cum cumulative running sum so far call calls api llm model request token "
        "tokens usage"
    )
)
"""Words that name no thing with a price, as payout does."""

_TOTAL = frozenset({"cum", "cumulative", "running", "total"})
_TOKENS = frozenset((*INPUT_COLUMNS, *OUTPUT_COLUMNS, *TOTAL_TOKENS))
_UNIT = re.compile(rf"(?:milli|micro|nano|[\u00b5\u03bc])?(?:dollars?|cents?|euros?|pounds?|{_CODES})")

_FEW, _AS_MUCH, _ALIKE = 10, 0.5, 0.5
"""The fewest steps within questions in which a running total never falls, what it adds as a share of its first value, and the least
correlation of costs with tokens."""


def loop_money(table: TableColumns, names: Collection[str]) -> Iterator[str]:
    """Yield the columns of money that a loop may have paid.

    Their names say so or, unlike payouts, they rise with the number of tokens.
    """
    for name in names:
        plain = "_".join(map(plain_name, re.split(r"[_\W]+(?=\w)", last_name(name))))  # each word in English
        if plain not in MONEY and (not _MONEY.search(plain) or _OF_TOKENS.search(plain)):
            continue
        own = {word for word in words_in(plain) if not _UNIT.fullmatch(word)}
        is_named = own <= _NO_THING or not own.isdisjoint(_COSTS)
        counts = [other for other in table.names if last_name(other) in _TOKENS or counts_tokens(other, ())]
        is_price = "price" in own and own <= {*_NO_THING, "price"} and not counts
        if is_named or is_price or _varies_with(table, name, counts):
            yield name


def model_costs(table: TableColumns, model: str) -> dict[str, float]:
    """Return the average cost of a call by model, from the first column of money that a loop may have paid; empty without such a column."""
    return mean_costs(table, model, next(loop_money(table, table.names), ""))


def _varies_with(table: TableColumns, name: str, counts: Collection[str]) -> bool:
    """Return whether a column correlates clearly with at least one of the columns `counts`."""
    amounts = _floats(table, name)
    for other in counts:
        tokens = _floats(table, other)
        both = ~np.isnan(amounts) & ~np.isnan(tokens)
        pair = amounts[both], tokens[both]
        if both.sum() > 2 and min(map(np.ptp, pair)) > 0 and np.corrcoef(*pair)[0, 1] >= _ALIKE:  # noqa: PLR2004
            return True
    return False


def _floats(table: TableColumns, name: str) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return np.array([number_or_nan(value, name) for value in table.column(name)], dtype=np.float64)


def money_note(table: TableColumns, columns: Mapping[str, str], name: str) -> str:
    """Return the note on a column of money, with the option that reads the column as a cost."""
    fault = table.not_a_number(name)
    prices = "else prices of tokens say what is paid (suffice decide --prices)"
    if fault is not None and (money_unit(name) or not is_undecided(fault)):
        return f"{name!r} is not read as money: it has {fault!r:.40}, which is no amount"
    signs = [sign for sign in currencies(table.column(name), name) if sign not in ("$", "USD")]
    unit = money_unit(name)
    amounts = unit or ("amounts" if signs else "dollars")
    amounts += f" ({', '.join(signs)})" if signs else ""
    forms = [unit] if unit else [EACH] if fault is None else [THOUSANDS, DECIMAL_COMMA]
    options = [column_options({"spend": f"{name}:{form}"}) for form in forms]
    how = f"{options[0]} if its comma separates thousands, {options[1]} if decimals" if options[1:] else options[0]
    dearer = dearer_text(table, columns, name)
    may_be_total = not dearer or not _TOTAL.isdisjoint(words_in(last_name(name)))  # dearer models cost more, too
    if forms in ([EACH], [unit]) and may_be_total and (growth := _growth(table, columns, name)):
        total = f"{name}:{unit}-total" if unit else name
        ways = [
            f"{column_options({'spend': total})} if it is a running total",
            f"{how} if each row has its own {amounts}",
        ]
        listed = ", ".join(ways if growth >= _AS_MUCH else ways[::-1])
        return f"{name!r} is not counted, and never falls within a question: {listed}; {prices}"
    return f"{name!r} is not counted{dearer}: if each row has its own {amounts}, {how}; {prices}"


def _growth(table: TableColumns, columns: Mapping[str, str], name: str) -> float:
    """Return the average increase from row to row of a question, divided by the average first value.

    Return 0 if the value falls in any question, or if there are too few increases.
    """
    key, counter = columns.get("question_id", ""), columns.get("round", "")
    ids = [*map(str, table.column(key))] if key in table.names else [row.number for row in table.rows]
    amounts = _floats(table, name)
    numbers = _floats(table, counter) if counter in table.names else np.arange(len(ids), dtype=np.float64)
    steps, firsts = [], []
    for places in places_of(ids).values():
        ordered = sorted(places, key=numbers.__getitem__)
        own = [float(amounts[place]) for place in ordered if not math.isnan(amounts[place])]
        firsts += own[:1]
        steps += [after - before for before, after in pairwise(own)]
    if len(steps) < _FEW or min(steps) < 0 or not sum(firsts):
        return 0.0
    return sum(steps) / len(steps) / (sum(firsts) / len(firsts))
