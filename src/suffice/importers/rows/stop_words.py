"""Reasons for the end of a loop in usual words, such as converged or max_iterations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from suffice.common.tables import cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.columns.grid import END_NAMES
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names
from suffice.importers.shapes.shape import Shape, with_derived
from suffice.importers.words.choices import Choices, of_columns
from suffice.importers.words.names import last_name

_NAME = re.compile(
    r"(?:\w+_)?(?:stop|stopping|stopped|end|ended|exit|finished|termination|halt|halting)_(?:reason|cause|condition)|termination|(?:stopped|ended|terminated)_by"
    r"|(?:closed|stopped|ended|finished|exited)_because|why_(?:closed|stopped|ended|finished)"
)
_SHORT_NAME = re.compile(
    r"(?:(?:loop|run|final|agent)_)?(?:exit|finish|finished|stop|stopped|ended|ending|end_state|terminated)(?:_(?:status|state|type))?"
)
_OUTCOME = re.compile(r"(?:(?:loop|run|final|agent)_)?(?:status|state|outcome|result|reason|cause)")
"""Names that have reasons as often as other things: their words tell."""

_OF_WORDS = re.compile(r"(?P<name>.+) \(end: (?P<pairs>.*)\)")
"""The name of the column with the ends that the user gives for the words of another one; no file has it."""

_MOST = 6
"""The most words of a column that says why loops ended."""

_MEANINGS = {
    "rule": "the loop stopped by itself",
    "max_rounds": "the loop reached its cap",
    "exhausted": "there was no more evidence",
    "failed": "the loop failed",
}

_WORDS = {
    "rule": "rule converged convergence early_stop early_stopped early_stopping stopped stable no_change unchanged agreement consensus "
    "confident confidence approved accepted accept satisfied threshold good_enough",
    "max_rounds": "max_rounds max_iterations max_iters max_iter max_steps max_turns max_attempts max_hops iteration_limit round_limit "
    "step_limit turn_limit limit cap budget budget_exhausted length max_round max_depth",
    "exhausted": "exhausted no_more_results no_more_evidence no_results",
    "failed": "failed error exception timeout crashed aborted",
}
_ENDS = {word: end for end, words in _WORDS.items() for word in words.split()}


def is_stop_name(name: str) -> bool:
    """Return whether a column's name says that it has reasons for the end of a loop.

    >>> [is_stop_name(name) for name in ("stop_reason", "run.terminatedBy", "exit", "reason", "exit_code")]
    [True, True, True, False, False]
    """
    plain = last_name(name)
    return _NAME.fullmatch(plain) is not None or _SHORT_NAME.fullmatch(plain) is not None


def end_in_words(value: Any) -> str | None:
    """Return our name of a reason; None if its word is unknown.

    >>> end_in_words("Converged"), end_in_words("max-iterations"), end_in_words("tired")
    ('rule', 'max_rounds', None)
    """
    return _ENDS.get(re.sub(r"[\s\-]+", "_", str(value).strip().lower()))


def end_of_row(row: Record, name: str) -> str | None:
    """Return our name of the reason in a column of a row."""
    return end_in_words(row.values.get(name))


def ends_in_words(table: TableColumns, ids: Sequence[Any], unread: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield the column with the reasons for the ends of loops, and their meaning, if all are usual words, known of each question."""
    for name in unread:
        plain = last_name(name)
        if not is_stop_name(name) and _OUTCOME.fullmatch(plain) is None:
            continue
        values = table.column(name)
        ends = {value: end_in_words(value) for value in values if isinstance(value, str) and value}
        is_told = len(ends) > 1 or ({*ends.values()} == {"rule"} and "stopped" not in map(str.lower, ends))
        if _NAME.fullmatch(plain) is None:  # a status may be that of a call
            is_told = {*ends.values()} >= {"rule", "max_rounds"}
        if is_told and None not in ends.values() and _is_one_word_each(values, ids):
            yield name, f"{name} ({', '.join(f'{word} = {end}' for word, end in ends.items())})"
            return


def may_end(table: TableColumns, ids: Sequence[Any], unread: Sequence[str]) -> str:
    """Return the column that may say why loops ended, by its name and its few words, one for each question; "" without one."""
    for name in [name for name in unread if is_stop_name(name) or _OUTCOME.fullmatch(last_name(name))]:
        values = table.column(name)
        if _is_one_word_each(values, ids) and 1 < len({*values} - {None, ""}) <= _MOST and table.numbers(name) is None:
            return name
    return ""


def ends_beside(
    rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Any], said: str = ""
) -> Iterator[str]:
    """Yield the columns that only rows which are left out have, and that say, in a word for each question, why its loop ended.

    Args:
        rows: All rows.
        kept: Whether each stays.
        questions: What tells the questions of rows apart.
        said: The column that the user names as the reason, perhaps with meanings of its words.
    """
    names = column_names([row for row, is_kept in zip(rows, kept, strict=True) if not is_kept])
    there = {
        name for row, own in zip(rows, kept, strict=True) if own for name, v in row.values.items() if v is not None
    }
    for name in [name for name in names if name not in there]:
        is_said = name in {said, said.rpartition(":")[0]}
        if not (is_said or is_stop_name(name) or _OUTCOME.fullmatch(last_name(name))):
            continue
        pairs = [(own, row.values.get(name)) for own, row in zip(questions, rows, strict=True)]
        told = [(own, value) for own, value in pairs if value not in (None, "")]
        words = {str(value) for _, value in told}
        is_told = len(words) <= _MOST and (is_stop_name(name) or any(map(end_in_words, words)))
        if (is_said or is_told) and _is_one_word_each([value for _, value in told], [own for own, _ in told]):
            yield name


def _is_one_word_each(values: Sequence[Any], ids: Sequence[Any]) -> bool:
    """Return whether each question has one word, in all of its rows or in some."""
    words: dict[Any, set[str]] = {own: set() for own in ids}
    for own, value in zip(ids, values, strict=True):
        if not isinstance(value, str | None):
            return False
        words[own] |= {value} if value else set()
    return all(len(own) == 1 for own in words.values())


def said_ends(shape: Shape, columns: dict[str, str]) -> Shape:
    """Return rows with the ends that the user gives for the words of a column, as in ``end=outcome:submitted=rule``.

    The column of ends in `columns` becomes that of these ends.  Words that the user does not give keep their usual meaning.
    """
    theirs, names = columns.get("end", ""), column_names(shape.rows)
    name, _, pairs = theirs.rpartition(":")
    if theirs in names or name not in names:
        return shape
    ends = {word.strip(): end.strip() for word, _, end in (pair.partition("=") for pair in pairs.split(","))}
    columns["end"] = own = f"{name} (end: {pairs})"

    def end(row: Record) -> Any:
        value = row.values.get(name)
        return ends.get(str(value).strip(), value)

    return with_derived(shape, name, own, end, f"{name} as {pairs}")


def unknown_end(where: str, column: str, values: Iterable[Any]) -> DataError:
    """Return the error about words that are no usual reasons for the end of a loop, with the options that say what the first one means.

    The next word is asked about where the first one's meaning is known: different words seldom mean the same.
    """
    unknown = [
        *dict.fromkeys(
            str(value) for value in values if value and end_in_words(value) is None and value not in _MEANINGS
        )
    ]
    first, *others = unknown
    match = _OF_WORDS.fullmatch(column)
    name, pairs = (match["name"], [match["pairs"]]) if match else (column, [])
    given = {pair.partition("=")[2].strip() for pair in ",".join(pairs).split(",")}
    doubt = f"{where}: end is {first!r:.80}; allowed are {', '.join(END_NAMES)}"
    choices: Choices = {}
    if len(unknown) <= _MOST and not any(mark in first for mark in ",=:") and first not in given:
        if others:
            doubt += f". {cut_list(map(repr, others))} will be asked about next, or are given in the same option, after commas"
        for end, meaning in _MEANINGS.items():
            choices |= of_columns(
                {"end": f"{name}:{','.join([*pairs, f'{first}={end}'])}"}, f"where it is {first!r}, {meaning}"
            )
    return UnsettledError(doubt, "columns", choices) if choices else DataError(doubt)
