"""Offer readings of a table with unknown names: columns that divide rows into questions, and fields with several items."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby

from suffice.errors import UnsettledError
from suffice.importers.answers.answer_or_gold import (
    ACTIONS,
    THOUGHTS,
    is_model_text,
    is_of_passages,
    other_questions,
)
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from suffice.importers.questions.counted_ids import are_numbered, means_no_question
from suffice.importers.shapes.wide_tables import numbered_families
from suffice.importers.words.choices import Choices, in_options, of_answers, of_columns
from suffice.importers.words.id_names import is_id_name
from suffice.importers.words.names import NO_ANSWERS, last_name, words_in

_QUESTIONS, _SEVERAL, _OFFERED = 5, 1.2, 3
"""The fewest questions of a log, the fewest rows of one on average, and the most choices of a kind."""


def refuse_what_no_name_says(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise to ask for the question id or the rounds; the choices are columns whose values fit, whatever their names.

    This is called if nothing else is known about a log, so that the error contains an option to try.

    Args:
        rows: The rows.
        columns: The table's columns by this library's names; question ids or rounds are missing.
    """
    table = TableColumns(rows)
    if choices := _lists(table, columns) | _families(table, columns) or _ids(table, columns):
        what = "the rounds of a question: if the log has only last answers, there is nothing to stop"
        raise UnsettledError(
            f"no column is called like {what if 'question_id' in columns else f'the id of a question, and no list, and no column, like {what}'}",
            "options",
            choices,
        )


def _lists(table: TableColumns, columns: Mapping[str, str]) -> Choices:
    """Return the choices that read a field as the list of rounds.

    The field must have lists of items of one type, with more than one item on average.
    """
    result: Choices = {}
    for name in [name for name in table.names if name not in columns.values() and _may_be_said(name)]:
        lists = [value for value in table.column(name) if isinstance(value, list)]
        items = [item for value in lists for item in value]
        is_of_each = len(lists) == len(table.rows) and len(items) >= _SEVERAL * len(lists)
        if is_of_each and any(all(isinstance(item, kind) for item in items) for kind in (dict, str | int | float)):
            result |= of_columns({"rounds": name}, f"each item of {name!r} is a round")
    return in_options(dict([*result.items()][:_OFFERED]))


def _families(table: TableColumns, columns: Mapping[str, str]) -> Choices:
    """Return the choices that read numbered columns of texts as rounds, such as `out_1` and `out_2`."""
    free = [name for name in table.names if name not in columns.values() and table.is_text(name)]
    families = [own for stem, own in numbered_families(free).items() if stem and _may_be_said(stem)]
    result: Choices = {}
    for family in families[:_OFFERED]:
        result |= of_answers([*family.values()], {}, "rounds")
    return result


def _may_be_said(name: str) -> bool:
    """Return whether a column of this name may contain answers: it is not an agent's action, thought or input, nor a cost."""
    is_other = last_name(name) in (*ACTIONS, *THOUGHTS) or is_of_passages(name) or not is_model_text(name)
    return not is_other and NO_ANSWERS.isdisjoint(words_in(name))


def _ids(table: TableColumns, columns: Mapping[str, str]) -> Choices:
    """Return the choices that read a column as the question id.

    On average, a value must have several rows.  The rows of a value must be together in the file, or have different round numbers.
    """
    rounds = [*map(str, table.column(columns.get("round", "")))]
    golds = columns.get("golds", "")
    found = []
    for name in table.names:
        values = [*map(str, table.column(name))]
        counts = Counter(values)
        are_apart = columns.get("round", name) != name and len({*zip(values, rounds, strict=True)}) == len(values)
        are_together = sum(1 for _ in groupby(values)) == len(counts)
        is_one = not other_questions(table, values, name)
        is_several = is_one and _QUESTIONS <= len(counts) <= len(values) / _SEVERAL
        is_free = name != golds and (not golds or table.constant_in(golds, values))
        if is_several and is_free and (are_apart or are_together):
            found.append(name)
    found.sort(
        key=lambda name: (means_no_question(name), not is_id_name(name), not are_numbered(map(str, table.column(name))))
    )
    result: Choices = {}
    for name in found[:_OFFERED]:
        result |= of_columns({"question_id": name}, f"{name!r} names the question of each row")
    return in_options(result)
