"""The options of a log in which a question has a round twice: kinds of rows, rows in their order, or several runs."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from suffice.common.files import quoted
from suffice.errors import UnsettledError
from suffice.importers.failed_calls import ALL_ROWS, refuse_failed_calls
from suffice.importers.left_out import CALL_KINDS
from suffice.importers.names import MOST_SPEAKERS, last_name
from suffice.importers.records import Record
from suffice.importers.reply_alarms import of_each
from suffice.importers.table_columns import TableColumns

_OFFERED = 6
_ANSWERING = re.compile("answer|generat|respon|final")
"""What is in the names of calls that answer."""

RETRIES = ("attempt", "retry", "retries", "retry_count", "try", "attempt_number", "try_number")
"""Names of columns that count how often a call was repeated as often as rounds."""


def refuse_other_calls(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise if the rows of a round, or rows that count retries, are calls of several kinds, or some of the latter failed."""
    table, used = TableColumns(rows), {*columns.values()}
    counts_retries = last_name(columns["round"]) in RETRIES
    ids = [*map(str, table.column(columns["question_id"]))]
    if not counts_retries:
        ids = [f"{own}@{number}" for own, number in zip(ids, table.column(columns["round"]), strict=True)]
    for name, kinds in _kinds_of(table, used):
        if not table.constant_in(name, ids):
            shown = sorted(kinds, key=lambda kind: (not _ANSWERING.search(kind.lower()), kind))
            choices = of_each(name, shown[:_OFFERED], f"those with {name} {{!r}}")
            if not counts_retries:
                own = {"columns": {"run": name}}
                choices[f"--column {quoted(f'run={name}')}"] = (own, f"all: each {name!r} is a loop of its own")
            raise UnsettledError(
                f"the rows are calls of several kinds, by {name!r}: which of them have the answers?", "options", choices
            )
    if "answer" in columns:
        refuse_failed_calls(table, columns["answer"], [*used], others=ALL_ROWS if counts_retries else of_repeats())


def of_repeats() -> dict[str, tuple[dict[str, Any], str]]:
    """Return the options that choose one of the rows of a round that a question has several times."""
    return {
        f"--repeated {own}": ({"repeated": own}, f"calls were repeated, and the {own} answer of a round counts")
        for own in ("last", "first")
    }


def _kinds_of(table: TableColumns, used: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield the columns that say what a call was for, with their values."""
    for name in [name for name in table.names if last_name(name) in CALL_KINDS and name not in used]:
        values: list[Any] = table.column(name)
        if all(isinstance(value, str) and value for value in values) and 1 < len({*values}) <= MOST_SPEAKERS:
            yield name, {*values}


def in_order_of_rows(number: str) -> dict[str, tuple[dict[str, str], str]]:
    """Return the option that counts the rows of each question, if a column may count retries."""
    if last_name(number) not in RETRIES:
        return {}
    return {
        "--column round=": (
            {"round": ""},
            f"{number!r} counts retries, and the rows of a question are its rounds in their order",
        )
    }


def begins_again(questions: Iterable[int], numbers: Iterable[float]) -> bool:
    """Return whether each question's numbers count up without gaps, and then again from the same lowest one.

    >>> begins_again([0, 0, 0, 0], [1, 2, 1, 2]), begins_again([0, 0, 0, 0], [1, 1, 2, 2])
    (True, False)
    """
    first: dict[int, float] = {}
    last: dict[int, float] = {}
    for question, number in zip(questions, numbers, strict=True):
        if number not in (first.setdefault(question, number), last.get(question, number) + 1):
            return False
        last[question] = number
    return True
