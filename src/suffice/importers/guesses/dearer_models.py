"""Find models that differ between the rounds of a question and have different costs."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping

from suffice.importers.columns.grid import number_or_nan
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.words.names import MODELS

_TIMES = 2
"""How many times as much as a call of one model that of another one costs at least, if calls are not equal."""


def dearer_text(table: TableColumns, columns: Mapping[str, str], money: str) -> str:
    """Return a phrase that compares what a call costs with the dearest and with the cheapest model; "" unless the costs differ clearly."""
    ids = table.column(columns.get("question_id", ""))
    model = next((name for name in table.by_name(MODELS) if table.changing_in(name, ids)), "")
    means = mean_costs(table, model, money)
    least, most = min(means, key=means.__getitem__, default=""), max(means, key=means.__getitem__, default="")
    if not model or not 0 < _TIMES * means[least] <= means[most]:
        return ""
    return f", although one call of {most!r:.40} costs {means[most] / means[least]:.0f} times one of {least!r:.40}"


def mean_costs(table: TableColumns, model: str, money: str) -> dict[str, float]:
    """Return the average cost of a call by model, from a column of money; models without any amount are left out."""
    amounts: dict[str, list[float]] = defaultdict(list)
    for own, value in zip(table.column(model), table.column(money), strict=True):
        if own is not None and not math.isnan(amount := number_or_nan(value, money)):
            amounts[str(own)].append(amount)
    return {own: sum(values) / len(values) for own, values in amounts.items()}
