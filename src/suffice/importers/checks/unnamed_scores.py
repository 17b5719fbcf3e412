"""Note numbers that may be scores, judged by their values and not by their names, if nothing else judges answers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from suffice.importers.checks.judging import may_judge, metric_option, scales_with
from suffice.importers.columns.grid import number_or_nan
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import places_of
from suffice.importers.words.names import is_round_name, last_name
from suffice.importers.words.score_names import says_other
from suffice.policy.rounds import Floats
from suffice.recordings.runs import tells_loops_apart

_GRADES, _FEWEST = 10, 3
"""The highest of grades, which are whole or half numbers, and the fewest different ones."""

_PERCENT, _STEP = 100, 5
"""The highest percentage, and the steps in which people and judges give them: counts have others."""

_SHARE, _VARYING = 0.5, 0.25
"""The least highest share of a score from 0 to 1, and the least share of questions in which a score varies."""

_GROWS = 0.5
"""The correlation with the length of the answer from which on a number may be a count of its parts."""

_ROWS, _SHOWN = 20, 2


def unnamed_score_note(table: TableColumns, columns: Mapping[str, str], unused: Collection[str]) -> Iterator[str]:
    """Yield a note on columns of numbers that vary between rounds and lie on a usual scale of scores.

    There is no note if an unread column is named like a score.
    """
    ids = table.column(columns.get("question_id", ""))
    if any(map(may_judge, unused)) or len(ids) < _ROWS or None in ids:
        return
    lengths = [len(str(value or "")) for value in table.column(columns.get("answer", ""))]
    scales = {name: scale for name in unused if (scale := _scale(table, name, ids, lengths)) is not None}
    options = [
        metric_option(name, "" if scale == (0, 1) else ":{}..{}".format(*scale)) for name, scale in scales.items()
    ]
    spans = [f"{name!r}, from {low} to {high}" for name, (low, high) in scales.items()]
    if options:
        yield (
            f"nothing says which answers are right: if {' or '.join(spans[:_SHOWN])}, says how good the answer of each round is, judge by it with "
            f"{' or '.join(options[:_SHOWN])}"
        )


def _scale(table: TableColumns, name: str, ids: Sequence[Any], lengths: Sequence[int]) -> tuple[int, int] | None:
    """Return the scale of a column of numbers that may be scores; None if their values show that they are not.

    Numbers that only rise (or only fall) within questions, or that grow with the length of answers, are counts.
    """
    last = last_name(name)
    if says_other(name) or is_round_name(last) or tells_loops_apart(name) or last.endswith("id"):
        return None
    if 4 * table.changing_in(name, ids) < len({*map(str, ids)}):
        return None
    if table.numbers(name) is None:
        return None
    numbers = np.array([number_or_nan(value, name) for value in table.column(name)])
    is_known = ~np.isnan(numbers)
    known, sizes = numbers[is_known], np.array(lengths)[is_known]
    if len(known) < _ROWS or len(np.unique(known)) < _FEWEST or _only_rises(numbers, ids):
        return None
    grows = len(np.unique(sizes)) > 1 and float(np.corrcoef(known, sizes)[0, 1]) > _GROWS
    return None if grows else _scale_of(known)


def _only_rises(numbers: Floats, ids: Sequence[Any]) -> bool:
    """Return whether numbers never fall from row to row of a question, or never rise."""
    steps = np.concatenate([np.diff(numbers[places]) for places in places_of(map(str, ids)).values()])
    return bool((steps[~np.isnan(steps)] >= 0).all() or (steps[~np.isnan(steps)] <= 0).all())


def _scale_of(numbers: Floats) -> tuple[int, int] | None:
    """Return the scale of numbers: of shares, of grades up to 10, or of percentages in steps of 5; None for other numbers.

    The highest grade of the scale must occur.
    """
    low, high = float(numbers.min()), float(numbers.max())
    scale = next(iter(scales_with(low, high)), None)
    if scale is None or scale[1] == 1:
        return scale if high >= _SHARE else None
    are_grades = high <= _GRADES and scale[1] == high and not (2 * numbers % 1).any()
    are_percentages = high > _PERCENT / 2 and scale[1] == _PERCENT and not (numbers % _STEP).any()
    return scale if are_grades or are_percentages else None
