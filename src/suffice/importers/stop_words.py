"""Reasons for the end of a loop in usual words, such as converged or max_iterations."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from suffice.common.tables import cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.choices import Choices, of_columns
from suffice.importers.grid import END_NAMES
from suffice.importers.names import last_name
from suffice.importers.records import Record, column_names
from suffice.importers.shape import Shape, with_derived
from suffice.importers.table_columns import TableColumns

_NAME = re.compile(
    r"(?:\w+_)?(?:stop|stopping|stopped|end|ended|exit|finished|termination|halt|halting)_(?:reason|cause|condition)|termination|(?:stopped|ended|terminated)_by"
    r"|(?:closed|stopped|ended|finished|exited)_because|why_(?:closed|stopped|ended|finished)"
)
_SHORT_NAME = re.compile(
    r"(?:(?:loop|run|final|agent)_)?(?:exit|finish|finished|stop|stopped|ended|ending|end_state|terminated)(?:_(?:status|state|type))?"
)
_OUTCOME = re.compile(r"(?:(?:loop|run|final|agent)_)?(?:status|state|outcome|result)")
"""Names that have reasons as often as other things: their words tell."""

OF_WORDS = " (end)"
"""The end of the name of the column with the ends that the user gives for its words; no file has it."""

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
        ends = {value: end_in_words(value) for value in values if isinstance(value, str)}
        is_told = len(ends) > 1 or ({*ends.values()} == {"rule"} and "stopped" not in map(str.lower, ends))
        if _NAME.fullmatch(plain) is None:  # a status may be that of a call
            is_told = {*ends.values()} >= {"rule", "max_rounds"}
        if is_told and None not in values and None not in ends.values() and table.constant_in(name, ids):
            yield name, f"{name} ({', '.join(f'{word} = {end}' for word, end in ends.items())})"
            return


def may_end(table: TableColumns, ids: Sequence[Any], unread: Sequence[str]) -> str:
    """Return the column that may say why loops ended, by its name and its few words, one for each question; "" without one."""
    for name in [name for name in unread if is_stop_name(name) or _OUTCOME.fullmatch(last_name(name))]:
        words = {*table.column(name)}
        are_words = all(isinstance(word, str) and word for word in words) and table.numbers(name) is None
        if are_words and 1 < len(words) <= _MOST and table.constant_in(name, ids):
            return name
    return ""


def said_ends(shape: Shape, columns: dict[str, str]) -> Shape:
    """Return rows with the ends that the user gives for the words of a column, as in ``end=outcome:submitted=rule``.

    The column of ends in `columns` becomes that of these ends.  Words that the user does not give keep their usual meaning.
    """
    theirs, names = columns.get("end", ""), column_names(shape.rows)
    name, _, pairs = theirs.rpartition(":")
    if theirs in names or name not in names:
        return shape
    ends = {word.strip(): end.strip() for word, _, end in (pair.partition("=") for pair in pairs.split(","))}
    columns["end"] = own = f"{name}{OF_WORDS}"

    def end(row: Record) -> Any:
        value = row.values.get(name)
        return ends.get(str(value).strip(), value)

    return with_derived(shape, name, own, end, f"{name} as {pairs}")


def unknown_end(where: str, column: str, values: Iterable[Any]) -> DataError:
    """Return the error about words that are no usual reasons for the end of a loop, with the options that say what they mean."""
    unknown = [
        *dict.fromkeys(
            str(value) for value in values if value and end_in_words(value) is None and value not in _MEANINGS
        )
    ]
    doubt = f"{where}: end is {unknown[0]!r:.80}; allowed are {', '.join(END_NAMES)}"
    choices: Choices = {}
    if len(unknown) <= _MOST and not any(mark in word for word in unknown for mark in ",=:") and OF_WORDS not in column:
        for end, meaning in _MEANINGS.items():
            said = ",".join(f"{word}={end}" for word in unknown)
            choices |= of_columns({"end": f"{column}:{said}"}, f"where it is {cut_list(map(repr, unknown))}, {meaning}")
    return UnsettledError(doubt, "columns", choices) if choices else DataError(doubt)
