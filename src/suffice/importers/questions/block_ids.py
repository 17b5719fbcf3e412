"""Find ids of questions with unusual names, if the same text is asked again: the rows of each id are together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import groupby
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import ColumnMap, TableColumns
from suffice.importers.files.records import Record, places_of
from suffice.importers.questions.compound_ids import compound_choices
from suffice.importers.questions.counted_ids import have_golds, means_no_question
from suffice.importers.words.choices import Choices, column_options, of_columns, of_options
from suffice.importers.words.id_names import is_id_name

_QUESTIONS, _ROWS_OF_ONE = 5, 1.5
"""The fewest ids, and the fewest rows of one on average."""

_LONGEST, _OFFERED = 60, 2
"""The most characters of an id, and the most columns that are offered."""


def block_id(table: TableColumns, question: str, names: Collection[str]) -> str:
    """Return the column named like an id whose values each belong to one block of rows with the same text.

    Return "" if there is no such column, or if several such columns divide the rows differently.

    Args:
        table: The rows, in the order of the file.
        question: The column of question texts, some of which are asked again.
        names: The columns that may be ids.
    """
    found = [name for name in names if is_id_name(name) and _is_asked_again(table, question)]
    found = [name for name in found if _tells_apart(table, question, name) and _are_blocks(table, name)]
    one = {tuple(map(tuple, places_of(map(str, table.column(name))).values())) for name in found}
    return found[0] if len(one) == 1 else ""


def id_choices(table: TableColumns, plan: ColumnMap, *, golds_differ: bool = False) -> Choices:
    """Return the options that read a column as the question id, if questions were identified by texts, which may be asked again.

    Two of three signs are required: the column is named like an id, the rows of each value are together, and some text is asked
    again after others.  With `golds_differ`, each value must have one gold answer instead.

    Args:
        table: The rows, in the order of the file.
        plan: The meaning of the columns.
        golds_differ: Whether gold answers differ between rows with the same text.
    """
    question, golds = (plan.columns.get(ours, "") for ours in ("question", "golds"))
    key = plan.columns.get("question_id", "")
    if question not in table.names or (key in table.names and key != question):
        return {}
    used = {*plan.columns.values(), *plan.metrics.values(), *plan.labels.values()}
    found = [name for name in table.names if name not in used and _tells_apart(table, question, name)]
    if golds_differ:
        found = [name for name in found if table.constant_in(golds, table.column(name))]
    else:
        is_again = _is_asked_again(table, question)
        found = [name for name in found if is_id_name(name) + _are_blocks(table, name) + is_again > 1]
    result: Choices = {}
    for name in sorted(found, key=lambda name: not is_id_name(name))[:_OFFERED]:
        meaning = f"each {name!r} is a question, and a text may be asked again"
        result |= of_options(meaning, columns={"question_id": name})
    return result


def refuse_ids_of_rows(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise if each row has its own id, as with a primary key, but another column may be the question id.

    The rows of each value of that column (or of several columns together) have each round number once.
    """
    table, number, golds = TableColumns(rows), columns["round"], columns.get("golds", "")
    if table.repeats(columns["question_id"]) or not table.counts(number):
        return
    doubt = f"each row has a {columns['question_id']!r:.60} of its own, while those of one {{}} have all rounds by {number!r:.60}: what names the question?"
    free = [name for name in table.names if name not in {columns["question_id"], number, golds, columns.get("answer")}]
    names = [name for name in free if table.repeats(name) and _has_all_rounds(table, name, number)]
    names = [name for name in names if not golds or table.constant_in(golds, table.column(name))]
    if not names and (parts := compound_choices(table, columns.values(), counter=number)):
        several = [own["columns"]["question_id"] for own, _ in parts.values()]
        raise UnsettledError(doubt.format(" and ".join(map(repr, several[0].split(",")))), "options", parts)
    names.sort(key=lambda name: not is_id_name(name))
    alike = [name for name in names if table.constant_in(names[0], table.column(name))]
    if names:
        is_sure = is_id_name(names[0]) or have_golds(table, golds, [*map(str, table.column(names[0]))])
        choices: Choices = {}
        for name in names[:_OFFERED]:
            choices |= of_columns({"question_id": name}, f"{name!r} names the question of each row")
        raise UnsettledError(
            doubt.format(f"{names[0]!r:.60}"),
            "columns",
            choices,
            column_options({"question_id": names[0]}) if names == alike and is_sure else "",
        )


def _has_all_rounds(table: TableColumns, name: str, number: str) -> bool:
    """Return whether the rows of each value of a column are numbered from 0 or 1, without gaps or copies."""
    pairs = {*zip(map(str, table.column(name)), map(str, table.column(number)), strict=True)}
    return len(pairs) == len(table.rows) and table.counts_in(number, name)


def _is_asked_again(table: TableColumns, question: str) -> bool:
    """Return whether some text is asked again later in the file, after other texts."""
    groups = Counter(text for text, _ in groupby(map(str, table.column(question))))
    return max(groups.values(), default=0) > 1


def _tells_apart(table: TableColumns, question: str, name: str) -> bool:
    """Return whether a column may distinguish questions with the same text.

    Its values are short, and each has one text and, on average, several rows; some text has several values.
    """
    values: list[Any] = table.column(name)
    if name == question or not all(map(_may_be_id, values)) or means_no_question(name):
        return False
    pairs = {*zip(map(str, values), map(str, table.column(question)), strict=True)}
    is_one = len(pairs) == len({own for own, _ in pairs})
    return (
        is_one
        and len({text for _, text in pairs}) < len(pairs)
        and _QUESTIONS <= len(pairs) <= len(values) / _ROWS_OF_ONE
    )


def _may_be_id(value: Any) -> bool:
    is_word = isinstance(value, str) and 0 < len(value) <= _LONGEST
    return is_word or (isinstance(value, int) and not isinstance(value, bool))


def _are_blocks(table: TableColumns, name: str) -> bool:
    """Return whether the rows of each value of a column are together in the file."""
    values = [*map(str, table.column(name))]
    return sum(1 for _ in groupby(values)) == len({*values})
