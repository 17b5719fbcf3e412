"""Usual words for the reason why a loop ended, such as converged or max_iterations."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
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

_FLAG = re.compile(
    r"(?:(?:is|has|should|did|loop|early|agent)_)*(?:stop|stopped|done|converged|finished|terminated|halted)"
)
"""Names of columns that are true in the round after which a loop stopped by itself."""

_TRUE, _FALSE = frozenset({"true", "1", "1.0"}), frozenset({"false", "0", "0.0"})

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
    "rule": "rule true converged convergence early_stop early_stopped early_stopping stopped stable no_change unchanged agreement consensus "
    "confident confidence approved accepted accept confirmed confirm done satisfied threshold good_enough",
    "max_rounds": "max_rounds max_iterations max_iters max_iter max_steps max_turns max_attempts max_hops iteration_limit round_limit "
    "step_limit turn_limit limit at_limit at_the_limit limit_reached cap capped cap_reached budget budget_exhausted length max_round max_depth "
    "max_passes max_retries max_tries attempts_exhausted rounds_exhausted passes_exhausted turns_exhausted steps_exhausted "
    "iterations_exhausted retries_exhausted tries_exhausted",
    "exhausted": "exhausted no_more_results no_more_evidence no_results",
    "failed": "failed error exception timeout crashed aborted",
}
_CAP_OR = "max_rounds-or-"
"""What precedes the end before the cap in what the user says of a word that loops have at their cap, too."""

_ENDS = {word: end for end, words in _WORDS.items() for word in words.split()}


def is_stop_name(name: str) -> bool:
    """Return whether a column's name suggests reasons for the end of a loop.

    >>> [is_stop_name(name) for name in ("stop_reason", "run.terminatedBy", "exit", "reason", "exit_code")]
    [True, True, True, False, False]
    """
    plain = last_name(name)
    return _NAME.fullmatch(plain) is not None or _SHORT_NAME.fullmatch(plain) is not None


def end_in_words(value: Any, *, at_cap: bool = False) -> str | None:
    """Convert a word to this library's name of an end reason; None if the word is unknown.

    Some words have another meaning for loops at their cap (`at_cap`).

    >>> end_in_words("Converged"), end_in_words("at the limit"), end_in_words("tired")
    ('rule', 'max_rounds', None)
    >>> end_in_words("max_rounds-or-failed"), end_in_words("max_rounds-or-failed", at_cap=True)
    ('failed', 'max_rounds')
    """
    text = str(value).strip().lower()
    if text.startswith(_CAP_OR):
        return "max_rounds" if at_cap else end_in_words(text.removeprefix(_CAP_OR))
    return _ENDS.get(re.sub(r"[\s\-]+", "_", text))


def is_not_stopped(word: str) -> bool:
    """Return whether a flag says that the loop did not stop by itself.

    If such a loop has as many rounds as its cap, it reached the cap.

    >>> is_not_stopped("False"), is_not_stopped("failed")
    (True, False)
    """
    return word.lower() in _FALSE


def _end_of_row(row: Record, name: str) -> str | None:
    """Return this library's name of the end reason in a row's column."""
    return end_in_words(row.values.get(name))


def _end_of_flag(row: Record, name: str) -> str | None:
    """Return `rule` if a flag is true, since the loop then stopped by itself; else None."""
    return "rule" if _is_true(row.values.get(name)) else None


def _is_true(value: Any) -> bool | None:
    """Return the value of a flag; None if it is unknown or not a flag."""
    text = str(value).strip().lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _flags(table: TableColumns, ids: Sequence[Any], rounds: str, unread: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Yield each column of flags that is true only where a loop stopped by itself.

    Each column comes with True if every loop that is shorter than the longest one has a true flag, else with False.
    """
    names = [name for name in unread if _FLAG.fullmatch(last_name(name))]
    loops = _in_order(table, ids, rounds) if names else []
    for name in names:
        values = [*map(_is_true, table.column(name))]
        flags = [[values[place] for place in own] for own in loops]
        if {*values} != {True, False}:
            continue
        longest = max(map(len, flags))
        if all(not any(own[:-1]) for own in flags) or all(len({*own}) == 1 for own in flags):
            yield name, all(own[-1] for own in flags if len(own) < longest)


def _in_order(table: TableColumns, ids: Sequence[Any], rounds: str) -> list[list[int]]:
    """Return the places of each question's rows, sorted by round if a column numbers them."""
    loops: dict[str, list[int]] = {}
    for place, own in enumerate(map(str, ids)):
        loops.setdefault(own, []).append(place)
    if not (rounds and table.counts(rounds)):
        return [*loops.values()]
    numbers = table.whole_numbers(rounds)
    return [sorted(places, key=lambda place: numbers[place]) for places in loops.values()]


def told_ends(
    table: TableColumns, ids: Sequence[Any], rounds: str, unread: Sequence[str]
) -> Iterator[tuple[str, str, Callable[[Record], str | None]]]:
    """Yield the column with the end reasons, its meaning, and a function that returns the end reason of a row.

    Nothing is yielded unless a column has flags, or usual words of end reasons in every question.
    """
    for name in [name for name, is_known in _flags(table, ids, rounds, unread) if is_known][:1]:
        yield name, f"{name} (true = rule)", partial(_end_of_flag, name=name)
        return
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
            meaning = ", ".join(f"{word} = {end}" for word, end in ends.items())
            yield name, f"{name} ({meaning})", partial(_end_of_row, name=name)
            return


def may_end(table: TableColumns, ids: Sequence[Any], rounds: str, unread: Sequence[str]) -> str:
    """Return a column that may have end reasons; "" if there is none.

    Its name must suggest end reasons.  In addition, it must have flags, one word in each question, or words in last rounds that
    no earlier round has.
    """
    names = [name for name in unread if is_stop_name(name) or _OUTCOME.fullmatch(last_name(name))]
    words = {name: {*map(str, table.column(name))} - {"None", ""} for name in names}
    names = [name for name in names if 1 < len(words[name]) <= _MOST and table.numbers(name) is None]
    each = [name for name in names if _is_one_word_each(table.column(name), ids)]
    lasts = [name for name in names if _are_others_at_ends(table, ids, rounds, name)]
    flags = [name for name, _ in _flags(table, ids, rounds, unread)]
    return next(iter([*each, *lasts, *flags]), "")


def _are_others_at_ends(table: TableColumns, ids: Sequence[Any], rounds: str, name: str) -> bool:
    """Return whether the last rows of questions have texts that no earlier row of any question has."""
    values, loops = table.column(name), _in_order(table, ids, rounds)
    last = {values[places[-1]] for places in loops}
    before = {values[place] for places in loops for place in places[:-1]}
    return all(isinstance(word, str) and word for word in last) and last.isdisjoint(before)


def ends_beside(
    rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Any], said: str = ""
) -> Iterator[str]:
    """Yield the columns with end reasons that only left-out rows fill, with one word for each question.

    Args:
        rows: All rows.
        kept: For each row, True if it is kept.
        questions: A key of each row's question.
        said: The column that the user names as the end reason, perhaps with meanings of its words.
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
    """Return whether each question has only one word, in some or all of its rows."""
    words: dict[Any, set[str]] = {own: set() for own in ids}
    for own, value in zip(ids, values, strict=True):
        if not isinstance(value, str | None):
            return False
        words[own] |= {value} if value else set()
    return all(len(own) == 1 for own in words.values())


def said_ends(shape: Shape, columns: dict[str, str]) -> Shape:
    """Map the words of a column to the end reasons that the user gives, as in ``end=outcome:submitted=rule``.

    `columns["end"]` is set to the new column.  Words that the user does not map keep their usual meaning.  If the words are flags,
    a loop with a false flag and as many rounds as the cap counts as ended at the cap, even if the user maps the flag otherwise.
    """
    theirs, names = columns.get("end", ""), column_names(shape.rows)
    name, _, pairs = theirs.rpartition(":")
    if theirs in names or name not in names:
        return shape
    ends = {word.strip(): end.strip() for word, _, end in (pair.partition("=") for pair in pairs.split(","))}
    columns["end"] = own = f"{name} (end: {pairs})"

    values = [row.values.get(name) for row in shape.rows]
    is_flag = all(value in (None, "") or _is_true(value) is not None for value in values)

    def end(row: Record) -> Any:
        value = row.values.get(name)
        text = str(value).strip()
        said = ends.get(text, ends.get(text.lower(), value) if isinstance(value, bool) else value)
        return f"{_CAP_OR}{said}" if is_flag and is_not_stopped(text) and said in _MEANINGS else said

    return with_derived(shape, name, own, end, f"{name} as {pairs}")


def unknown_end(where: str, column: str, values: Iterable[Any], at_cap: Collection[str]) -> DataError:
    """Return the error about unknown end reasons, with the options that give the meaning of the first one.

    The other words are asked about later, one by one, since different words seldom mean the same.

    Args:
        where: The `Record.where` of the first unknown word.
        column: The column of end reasons.
        values: Its values.
        at_cap: Words that also occur in loops at their cap.  Such a word cannot mean a failure there, but may in shorter loops.
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
            is_both = end == "failed" and first in at_cap
            said, what = (
                (f"{_CAP_OR}{end}", f"{meaning}, or reached its cap if it has all rounds")
                if is_both
                else (end, meaning)
            )
            choices |= of_columns(
                {"end": f"{name}:{','.join([*pairs, f'{first}={said}'])}"}, f"where it is {first!r}, {what}"
            )
    return UnsettledError(doubt, "columns", choices) if choices else DataError(doubt)
