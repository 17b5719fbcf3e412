"""Rows that are not rounds: failed calls, whose answer is missing or cut off, and calls that were logged twice."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import Any, Literal

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.columns.grid import whole_number
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, places_of, with_column
from suffice.importers.shapes.shape import ANY, Shape, changed_by
from suffice.importers.words.choices import Choices, of_each, of_options, of_rows
from suffice.importers.words.names import last_name
from suffice.recordings.runs import MODEL_NAMES

_FAILED = re.compile(
    r"(?:err(?:or)?|fail(?:ed|ure)?|exception|time(?:d[_ ]?)?out|cancel?led|aborted|[45]\d\d)", re.IGNORECASE
)
"""Values of a column such as `level` or `status` in the rows of calls that failed."""

_HTTP = re.compile(r"[1-5]\d\d")
"""Values of a column of the status of HTTP, of which those from 400 on say that a call failed, whatever text there is."""

_RETRIES = frozenset({"retry", "is_retry", "retried", "was_retried", "retries", "retry_count", "n_retries"})
_MESSAGES = frozenset({"error", "error_message", "error_msg", "exception"})
"""Names of columns that are filled where a call failed."""

_TRUE = frozenset({"true", "yes", *map(str, range(1, 10))})
ALL_ROWS = of_options("all rows of a question are rounds, in their order", columns={"round": ""})
"""The option that reads all rows as rounds."""

_NEARLY_ALL, _HARDLY_ANY = 0.9, 0.1
_MOST, _OFFERED = 8, 3
_MARK = 2
"""The most words of an id, or of a time."""


def refuse_failed_calls(
    table: TableColumns,
    answer: str,
    used: Sequence[str],
    *,
    others: Choices = ALL_ROWS,
) -> None:
    """Raise if a column marks failed calls, or calls that repeat another one.

    Failed calls are recognised by missing or incomplete answers, where other rows have complete ones.

    Args:
        table: The rows; nothing but their order numbers them.
        answer: The column of answers.
        used: Columns whose meaning is known.
        others: The options that keep failed calls as rounds.
    """
    _refuse_failed(table, answer, used, others)
    _refuse_retries(table, answer, used)


def _refuse_failed(table: TableColumns, answer: str, used: Sequence[str], all_rows: Choices) -> None:
    is_cut = [not _is_whole(value) for value in table.column(answer)]
    for name in [name for name in table.names if name not in used and name != answer]:
        values = [value if isinstance(value, str) else f"{value}" for value in table.column(name)]
        if is_message := last_name(name) in _MESSAGES:
            values = ["" if value in ("", "None") else "error" for value in values]
        counts, cuts = Counter(values), Counter(value for value, cut in zip(values, is_cut, strict=True) if cut)
        if "status" in last_name(name) and "200" in counts and all(map(_HTTP.fullmatch, counts)):
            cuts = Counter({value: n for value, n in counts.items() if _FAILED.fullmatch(value)})
        failed = [value for value in counts if _FAILED.fullmatch(value) and cuts[value] >= _NEARLY_ALL * counts[value]]
        others = [value for value, _ in counts.most_common() if value not in failed]
        is_told = failed and others and len(counts) <= _MOST
        if is_told and all(cuts[value] <= _HARDLY_ANY * counts[value] for value in others):
            column, kept = (answer, [ANY]) if is_message else (name, others[:_OFFERED])
            choices = of_each(column, kept, f"rounds are rows whose {column!r} is {'filled' if is_message else '{!r}'}")
            texts = zip(values, table.column(answer), strict=True)
            has_text = any(value in failed and text not in (None, "") for value, text in texts)  # no first answer
            kept_rows = {
                option: own for option, own in all_rows.items() if not (has_text and option == "--repeated first")
            }
            raise UnsettledError(
                f"{name!r} is {'filled' if is_message else repr(failed[0])} in {counted(sum(counts[value] for value in failed), 'row')} that "
                "have no answer, or only its beginning: these calls may have failed, and be no rounds",
                "options",
                {**choices, **kept_rows},
            )


def _refuse_retries(table: TableColumns, answer: str, used: Sequence[str]) -> None:
    """Raise if a column marks a minority of rows as repeated calls, which are not rounds of their own."""
    for name in [name for name in table.names if name not in used and name != answer and last_name(name) in _RETRIES]:
        values = Counter("1" if str(value).lower() in _TRUE else "0" for value in table.column(name))
        first = next((str(value) for value in table.column(name) if str(value).lower() not in _TRUE), "")
        if 0 < values["1"] < values["0"] and first:
            raise UnsettledError(
                f"{name!r} marks {counted(values['1'], 'row')} that may repeat a call: they are no rounds of their own",
                "options",
                {**of_rows(name, first, "rows that repeat no call are rounds"), **ALL_ROWS},
            )


def models_that_answer(shape: Shape, columns: Mapping[str, str]) -> Shape:
    """Give rows without an answer the model that answers their question in other rows.

    A failed call may name no model, or another model than the call that replaced it.  It still belongs to the same loop.
    Models that have an answer in any row are not replaced.
    """
    key, answer = (columns.get(name, "") for name in ("question_id", "answer"))
    said = [row for row in shape.rows if row.values.get(answer) not in (None, "")] if key else []
    for name in [name for name in column_names(said) if last_name(name) in MODEL_NAMES and name not in (key, answer)]:
        known = {row.values.get(name) for row in said}
        if not all(row.values.get(name) in known for row in shape.rows):
            shape = changed_by(shape, partial(_with_models, name=name, key=key, known=known))
    return shape


def _with_models(rows: Sequence[Record], *, name: str, key: str, known: Collection[Any]) -> list[Record]:
    """Replace models that are not in `known`.

    Each is replaced by the known model of its question, if the question has exactly one.
    """
    models: dict[str, set[Any]] = {}
    for row in rows:
        models.setdefault(str(row.values.get(key)), set()).update({row.values.get(name)} & {*known})
    only = {own: next(iter(values)) for own, values in models.items() if len(values) == 1}
    own = [row.values.get(name) for row in rows]
    keys = [str(row.values.get(key)) for row in rows]
    return with_column(rows, name, [v if v in known else only.get(k, v) for k, v in zip(keys, own, strict=True)])


def _is_whole(value: Any) -> bool:
    """Return whether an answer is complete: not empty, with all brackets and code blocks closed."""
    if not isinstance(value, str):
        return value is not None
    return bool(value.strip()) and value.count("{") <= value.count("}") and value.count("```") % 2 == 0


def contents(rows: Sequence[Record]) -> list[tuple[str, ...]]:
    """Return the contents of each row, by which copies of a row are recognised.

    Contents are all columns but those that mark rows, such as ids, counters or dates.  The values of a marking column are all
    different, short, and not fractional: sentences and latencies do not mark rows.
    """
    kept = []
    for name in column_names(rows):
        values = [row.values.get(name) for row in rows]
        texts = [*map(str, values)]
        may_mark = all(len(own.split()) <= _MARK for own in texts) and not any(isinstance(own, float) for own in values)
        if not may_mark or len({*texts}) < len(texts):
            kept.append(texts)
    return [*zip(*kept, strict=True)] if kept else [()] * len(rows)


def _are_unmarked(rows: Sequence[Record]) -> bool:
    """Return whether the second of some rows is in another file than the first row, or has the same values.

    In both cases, the whole file or run may have been read twice.
    """
    return any(row.file != rows[0].file or row.values == rows[0].values for row in rows[1:2])


def without_repeated_calls(
    rows: Sequence[Record], columns: Mapping[str, str], which: Literal["first", "last"] | None = None
) -> list[Record]:
    """Leave out repeated rows of a round: rows without an answer if another row has one, and copies.

    If some round still has several different answers, as where a question has several runs, all rows are kept.  With `which`, the
    first or last answer of each round counts.
    """
    key, number, answer = (columns.get(name, "") for name in ("question_id", "round", "answer"))
    keys: list[tuple[str, Any]] = []
    for row in rows if answer else ():
        text = str(row.values.get(number))
        counted_as = whole_number(text)
        keys.append((str(row.values.get(key)), text if counted_as is None else counted_as))
    dropped: set[int] = set()
    held: list[tuple[str, ...]] = []
    for own in [own for own in places_of(keys).values() if len(own) > 1]:
        said = [place for place in own if rows[place].values.get(answer) not in (None, "")]
        if which is not None:
            dropped.update({*own} - {(said or own)[0 if which == "first" else -1]})
            continue
        held = held or contents(rows) if len(said) > 1 else held
        if len({held[place] for place in said if held}) > 1 or _are_unmarked([rows[place] for place in said]):
            return [*rows]
        dropped.update({*own} - {*(said[:1] or own[-1:])})
    return [row for place, row in enumerate(rows) if place not in dropped]
