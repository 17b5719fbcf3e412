"""Find ids of questions by round numbers: the rows of each id have all numbers from 0 or 1 on, exactly once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import groupby

from suffice.importers.answers.answer_or_gold import is_of_passages, is_step_name
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.questions.compound_ids import counts_once
from suffice.importers.words.choices import Choices
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.likeness import is_by_chance
from suffice.importers.words.names import (
    QUESTIONS,
    RUNS,
    TIMES,
    ends_with_round,
    is_of_person,
    is_round_name,
    last_name,
    words_in,
)
from suffice.recordings.runs import LOOP_NAMES, is_of_judge

ROWS_OF_ONE = 1.5
"""The fewest rows of an id on average."""

_QUESTIONS, _MOST_ROUNDS = 5, 20
"""The fewest ids, and the most rows of one."""

_NUMBERED = re.compile(r"[^\W\d]*[-_.#:]?\d+")

_OF_LOOPS = frozenset({*RUNS, *LOOP_NAMES, "batch", "job", "rep", "session", "worker", "user"})
"""Words of names of columns that tell runs, workers or parts of a file apart, and not questions."""


def counted_id(table: TableColumns, names: Collection[str]) -> tuple[str, str] | None:
    """Return a column named like an id, and the column of rounds that numbers the rows of each id; None if there is no such pair.

    If the rounds number the rows of several such ids, these must divide the rows in the same way.

    Args:
        table: The rows.
        names: The columns that may be ids.
    """
    counters = [name for name in table.names if table.counts(name) and _is_counter_name(name)]
    for counter in counters:
        found = [name for name in names if name != counter and is_id_name(name) and not means_no_question(name)]
        found = [name for name in found if are_counted(table, name, counter)]
        if found and all(table.constant_in(found[0], table.column(name)) for name in found):
            return found[0], counter
    return None


def _is_counter_name(name: str) -> bool:
    return is_round_name(last_name(name)) or ends_with_round(name) or words_in(last_name(name))[0] == "pass"


def are_counted(table: TableColumns, name: str, counter: str) -> bool:
    """Return whether a counter numbers the rows of each value of a column from 0 or 1, without gaps.

    On average, a value must have several rows.
    """
    values = table.column(name)
    if not all(isinstance(value, str | int) and not isinstance(value, bool) for value in values):
        return False
    counts = Counter(map(str, values))
    is_group = _QUESTIONS <= len(counts) <= len(values) / ROWS_OF_ONE and max(counts.values()) <= _MOST_ROUNDS
    return is_group and counts_once(table, [name], counter)


def have_golds(table: TableColumns, golds: str, ids: Sequence[str]) -> bool:
    """Return whether the rows of each id have one gold answer, and chance does not explain this."""
    values = Counter(map(str, filter(None, table.column(golds))))
    return table.constant_in(golds, ids) and not is_by_chance(values, len(ids) - len({*ids}))


def sure_id(table: TableColumns, ids: Sequence[str], counter: str, golds: str) -> str:
    """Return the first of several columns that may be the question id, if it is beyond doubt; else "".

    All of the columns must divide the rows in the same way, and the rows of each value must have all rounds from the first.  Without a
    `counter` of rounds, some column must number the rows of each value, and these rows must have one gold answer.
    """
    own = [*map(str, table.column(ids[0]))] if ids else []
    if counter:
        is_counted = bool(ids) and table.counts_in(counter, ids[0])
    else:
        is_counted = (
            bool(ids) and have_golds(table, golds, own) and any(table.numbers_rows(name, own) for name in table.names)
        )
    if not is_counted or means_no_question(ids[0]):
        return ""
    return ids[0] if all(table.constant_in(ids[0], table.column(name)) for name in ids[1:]) else ""


def sure_among(table: TableColumns, choices: Choices, columns: Mapping[str, str]) -> str:
    """Return the option if there is only one, and if it is beyond doubt; else "".

    The option reads a column as the question id.  Each id in this column must have all rounds and one gold answer, while some
    question text has several gold answers.
    """
    golds, texts = columns.get("golds", ""), table.column(columns["question_id"])
    if len(choices) != 1 or golds not in table.names or table.constant_in(golds, texts):
        return ""
    ((option, (own, _)),) = choices.items()
    ids = [*map(str, table.column(own["question_id"]))]
    return option if table.counts_in(columns["round"], own["question_id"]) and have_golds(table, golds, ids) else ""


def of_judges(choices: Choices) -> str:
    """Return the option that reads the rows of each judge as a run, if judges assess the same answers; "" if there is none."""
    return next((option for option, (own, _) in choices.items() if is_of_judge(f"{own.get('run', '')}.name")), "")


def are_groups(table: TableColumns, name: str, values: Sequence[str]) -> bool:
    """Return whether each value has several rows.

    For a column that looks like ids, several rows on average are enough, if the rows of each value are together in the file.
    """
    counts = Counter(values)
    if min(counts.values()) > 1:
        return True
    are_together = sum(1 for _ in groupby(values)) == len(counts) <= len(values) / ROWS_OF_ONE
    is_id = is_id_name(name) or are_numbered(values)
    is_id = is_id or any(table.numbers_rows(own, values) for own in table.names)
    return are_together and is_id and not means_no_question(name)


def are_numbered(values: Iterable[str]) -> bool:
    """Return whether values look like ids: each is a number, perhaps after a word.

    >>> are_numbered(["q1", "q2"]), are_numbered(["17", "18"]), are_numbered(["north", "south"])
    (True, True, False)
    """
    return all(map(_NUMBERED.fullmatch, values))


def means_no_question(name: str) -> bool:
    """Return whether a column's name means something other than questions, such as runs, times or passages."""
    plain = last_name(name)
    is_known = plain in TIMES or plain in QUESTIONS or not _OF_LOOPS.isdisjoint({plain, *words_in(plain)})
    return is_known or is_of_passages(name) or is_step_name(name) or is_of_person(name)
