"""Refuse tables of averages, with one row for each system or setting: such rows are not rounds of a question."""

from __future__ import annotations

import math
from collections.abc import Mapping

from suffice.common.tables import cut_list
from suffice.errors import DataError
from suffice.importers.answers.answer_or_gold import is_model_text
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.words.names import IDS, OUTCOME_NAMES, QUESTIONS, last_name, words
from suffice.policy.metrics import METRICS
from suffice.recordings.runs import MODEL_NAMES

_MEAN = frozenset({"mean", "avg", "average", "macro", "micro", "median", "overall"})
_SPREAD = frozenset({"std", "stdev", "stddev", "stderr", "sem", "variance"})
_COUNT = frozenset({"n", "num", "count", "support"})
_COUNTED = frozenset({"questions", "samples", "examples", "items", "trials", "seeds", "instances", "problems"})
_MEASURED = frozenset(
    (*OUTCOME_NAMES, *METRICS, "acc", "tokens", "cost", "latency", "calls", "rounds", "match", "rate")
)
_SYSTEMS = MODEL_NAMES | {*words("system method group config setting policy approach dataset benchmark task")}
"""Names of what averages are taken over, and words of the names of averages."""

_RATES = frozenset({"accuracy", "acc", "em", "f1", "exact"})
"""Words of what only several questions have a mean of; several judges may score one answer."""

_ENOUGH, _IDS = 2, 10
"""Signs that together leave no doubt, and the most values of a column that repeats and names no questions."""


def refuse_averages(table: TableColumns, columns: Mapping[str, str]) -> None:
    """Raise if rows seem to be averages over questions: they have no text of the model, and several signs of averages.

    The signs are columns named like the mean or the spread of a measurement, a column that counts questions, a share of right
    answers that is often a fraction, and rows that are identified by a system and not by a question id.

    Args:
        table: The columns of all rows.
        columns: The columns that are read, by this library's names.
    """
    if "answer" in columns or any(_is_said(table, name) for name in table.names):
        return
    words = {name: last_name(name).split("_") for name in table.names if table.numbers(name) is not None}
    has_id = any(last_name(name) in (*IDS, *QUESTIONS) and last_name(name) != "task" for name in table.names)
    measured = _RATES if has_id else _MEASURED
    means = [n for n, own in words.items() if _MEAN & {*own} and measured & {*own}]
    spreads = [n for n, own in words.items() if _SPREAD & {*own} and (len(own) == 1 or measured & {*own})]
    counts = [n for n, own in words.items() if own[0] in _COUNT and {*own[1:]} <= _COUNTED and _counts(table, n)]
    shares = [n for n in words if last_name(n) in (*OUTCOME_NAMES, *METRICS) and _is_share(table, n)]
    systems = [] if has_id else [name for name in table.names if last_name(name) in _SYSTEMS]
    may_be_ids = any(_may_name_questions(table, name) for name in table.names if name not in systems)
    is_weak = not (means or spreads or counts)
    shares = [] if has_id or (is_weak and may_be_ids) else shares
    signs = [*means, *spreads, *counts, *shares[:1], *systems[:1]]
    if len(signs) >= _ENOUGH and (means or shares):
        raise DataError(
            f"the rows are averages ({cut_list(map(repr, signs))}), such as one for each system, and no rounds of a question: nothing can be "
            "decided from them. Import the rows from which they were computed, one for each question and round"
        )


def _is_said(table: TableColumns, name: str) -> bool:
    """Return whether more than half of a column's rows have a text that the model may have written, or a question."""
    texts = [value for value in table.column(name) if isinstance(value, str)]
    is_named = last_name(name) in _SYSTEMS or table.numbers(name) is not None
    return bool(texts) and not is_named and is_model_text(name) and 2 * len(texts) > len(table.rows)


def _may_name_questions(table: TableColumns, name: str) -> bool:
    values = [str(value) for value in table.column(name) if isinstance(value, str | int)]
    return _IDS < len({*values}) < len(values)


def _counts(table: TableColumns, name: str) -> bool:
    values = table.numbers(name) or []
    return bool(values) and min(values) > 1 and all(value % 1 == 0 for value in values)


def _is_share(table: TableColumns, name: str) -> bool:
    """Return whether all numbers of a column are from 0 to 100, and most of them are fractions."""
    values = [value for value in table.numbers(name) or [] if not math.isnan(value)]
    inside = sum(value % 1 != 0 for value in values)
    return 2 * inside > len(values) > 0 and all(0 <= value <= 100 for value in values)  # noqa: PLR2004
