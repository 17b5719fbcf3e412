"""Ask what a column means that may count rounds or tell loops apart, where the rows of a question are its rounds in file order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from typing import Any

from suffice.common.files import quoted
from suffice.errors import UnsettledError
from suffice.importers.answer_or_gold import is_step_name
from suffice.importers.names import RUNS, last_name
from suffice.importers.table_columns import TableColumns
from suffice.recordings.runs import LOOP_NAMES

_ENOUGH = 10
"""The least number of questions with several rows."""

_NEARLY_ALL = 0.98
_MOST_LOOPS = 8
_TOLD_APART = LOOP_NAMES | {*RUNS}
"""Names of columns that tell runs apart without a question."""


def ask_about_factors(table: TableColumns, key: str, used: Collection[str]) -> None:
    """Raise if a column counts a question's rows in another order, or has the same few values in every question.

    Args:
        table: The rows, which nothing counts.
        key: The column of questions.
        used: Columns whose meaning is known.

    Raises:
        UnsettledError: A column has one of these forms.
    """
    places: dict[str, list[int]] = {}
    for place, value in enumerate(table.column(key)):
        places.setdefault(str(value), []).append(place)
    several = [rows for rows in places.values() if len(rows) > 1]
    if len(several) < _ENOUGH:
        return
    for name in [name for name in table.names if name not in used and table.filled(name)]:
        if _counts_otherwise(table, name, several):
            raise UnsettledError(
                f"{name!r} counts the rows of every question, in another order than that of the file",
                "columns",
                {
                    f"--column {quoted(f'round={name}')}": ({"round": name}, f"{name!r} is the number of the round"),
                    "--column round=": (
                        {"round": ""},
                        "the rows of a question are its rounds in the order of the file",
                    ),
                },
            )
    for name, values in _of_loops(table, several, used):
        raise UnsettledError(
            f"every question has rows of the same {len(values)} values of {name!r} ({', '.join(values[:4])}): they may be other loops",
            "columns",
            {
                f"--column {quoted(f'run={name}')}": ({"run": name}, f"each value of {name!r} is a loop of its own"),
                "--column round=": (
                    {"round": ""},
                    "all rows of a question are the rounds of one loop, in the order of the file",
                ),
            },
        )


def _counts_otherwise(table: TableColumns, name: str, several: Sequence[Sequence[int]]) -> bool:
    """Return whether a column numbers the rows of each question from 0 or 1 without gaps, in another order than the file's."""
    if not table.counts(name):
        return False
    values = [int(float(value)) for value in table.column(name)]
    numbers = [[values[place] for place in rows] for rows in several]
    is_counter = all(sorted(own) == [*range(min(own), min(own) + len(own))] and min(own) <= 1 for own in numbers)
    return is_counter and any(own != sorted(own) for own in numbers)


def _of_loops(
    table: TableColumns, several: Sequence[Sequence[int]], used: Collection[str]
) -> Iterator[tuple[str, list[str]]]:
    """Yield the columns of labels that every question has in the same number, with their values."""
    for name in table.names:
        values: list[Any] = table.column(name)
        known = dict.fromkeys(value for value in values if isinstance(value, str) and value)
        is_label = 1 < len(known) <= _MOST_LOOPS and all(isinstance(value, str) and value for value in values)
        if name in used or not is_label or is_step_name(name) or last_name(name) in _TOLD_APART:
            continue
        sets = Counter(tuple(sorted(Counter(values[place] for place in rows).items())) for rows in several)
        (usual, n), *_ = sets.most_common(1)
        if len(usual) > 1 and n >= _NEARLY_ALL * len(several):
            yield name, [*known]
