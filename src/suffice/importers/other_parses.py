"""Ask which answers are meant where a log has the same replies several times, each time parsed in another way."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from suffice.common.tables import cut_list
from suffice.errors import UnsettledError
from suffice.importers.choices import of_each
from suffice.importers.names import last_name
from suffice.importers.table_columns import TableColumns

_NEARLY_ALL = 0.95
_MOST = 8
"""With more values, a column does not say how answers were parsed."""


def refuse_other_parses(
    table: TableColumns, columns: Mapping[str, str], used: Collection[str], *, has_replies: bool
) -> None:
    """Raise if the records of a question differ in a label, while their replies are the same, as with the filters of lm-eval.

    Args:
        table: The rows, each with the number of its record.
        columns: The table's column for each of our names.
        used: Columns whose meaning is known.
        has_replies: Whether answers are read inside replies, which are then in the column of answers.
    """
    reply = columns.get("text") or (columns.get("answer") if has_replies else None)
    if reply is None or not {"question", "answer"} <= columns.keys():
        return
    replies: dict[int, list[str]] = {}
    questions: dict[int, str] = {}
    texts = (table.column(name) for name in (columns["question"], reply))
    for row, question, text in zip(table.rows, *texts, strict=True):
        replies.setdefault(row.number, []).append(str(text))
        questions[row.number] = str(question)
    for name in [name for name in table.names if name not in used and not last_name(name).endswith("id")]:
        values = table.column(name)
        known = [*dict.fromkeys(value for value in values if isinstance(value, str))]
        if not 1 < len(known) <= _MOST:
            continue
        labels: dict[tuple[str, tuple[str, ...]], set[str]] = {}
        for row, value in zip(table.rows, values, strict=True):
            labels.setdefault((questions[row.number], tuple(replies[row.number])), set()).add(str(value))
        if sum(len(own) == len(known) for own in labels.values()) >= _NEARLY_ALL * len(labels):
            raise UnsettledError(
                f"each reply is in the log with {len(known)} values of {name!r} ({cut_list(known)}), which may be ways to parse an answer "
                "from it: which answers are meant?",
                "options",
                of_each(name, known, "those with {!r} alone"),
            )
