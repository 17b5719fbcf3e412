"""Rounds that occur twice in a log.

A question may have several rows of one round, or copies of the last answer after the last round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.columns.grid import Grid
from suffice.importers.columns.table_columns import ColumnMap, TableColumns
from suffice.importers.files.records import Record
from suffice.importers.questions.compound_ids import has_decimals
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.rows.failed_calls import ALL_ROWS, refuse_failed_calls
from suffice.importers.rows.left_out import CALL_KINDS
from suffice.importers.words.choices import Choices, of_columns, of_each, of_options
from suffice.importers.words.names import MOST_SPEAKERS, is_round_name, last_name
from suffice.policy.rounds import Mask

COPIED_ROUNDS = "copied-rounds"
"""The alarm about copies; rounds that may be copies are kept if it is expected."""

_OFFERED = 6
_FEW = 5
"""The fewest questions with copies that show what they are."""

_COUNT = re.compile(
    r"(?:n|num|number_of|total|nb)_?(?:rounds|steps|iterations|iters|turns|attempts|drafts)"
    r"|(?:rounds|iterations|iters|turns|drafts)(?:_(?:used|taken|run|needed|done|count))?|(?:steps|attempts)_(?:used|taken|run)"
)
"""Names of columns with the number of a loop's rounds."""

_ANSWERING = re.compile("answer|generat|respon|final")
"""What is in the names of calls that answer."""

RETRIES = ("attempt", "retry", "retries", "retry_count", "try", "attempt_number", "try_number")
"""Names of columns that count how often a call was repeated as often as rounds."""

_WHOLE_RUNS = 0.9
"""The least share of the runs that a column tells apart which begin with the first round."""


def refuse_other_calls(rows: Sequence[Record], columns: Mapping[str, str]) -> None:
    """Raise if the rows of one round are calls of several kinds, or include failed calls.

    Rows that are counted by a column of retries are checked in the same way.
    """
    table, used = TableColumns(rows), {*columns.values()}
    counts_retries = last_name(columns["round"]) in RETRIES
    ids = [*map(str, table.column(columns["question_id"]))]
    if not counts_retries:
        ids = [f"{own}@{number}" for own, number in zip(ids, table.column(columns["round"]), strict=True)]
    for name, kinds in _kinds_of(table, used):
        if not table.constant_in(name, ids):
            shown = sorted(kinds, key=lambda kind: (not _ANSWERING.search(kind.lower()), kind))
            choices = of_each(name, shown[:_OFFERED], f"those with {name} {{!r}}")
            if counts_retries:
                choices |= ALL_ROWS
            else:
                choices |= of_options(f"all: each {name!r} is a loop of its own", columns={"run": name})
                choices |= _all_as_rounds(table, columns)
            raise UnsettledError(
                f"the rows are calls of several kinds, by {name!r}: which of them have the answers?", "options", choices
            )
    if "answer" in columns:
        refuse_failed_calls(table, columns["answer"], [*used], others=ALL_ROWS if counts_retries else of_repeats())


def _all_as_rounds(table: TableColumns, columns: Mapping[str, str]) -> Choices:
    """Return the option that reads the column of rounds as the run.

    The rounds of each run are then counted by another column, or by the order of their rows.
    """
    number = columns["round"]
    pairs = [*zip(map(str, table.column(columns["question_id"])), map(str, table.column(number)), strict=True)]
    for own in [name for name in table.names if is_round_name(last_name(name)) and name != number]:
        if _counts_in_each({(*pair, str(cell)) for pair, cell in zip(pairs, table.column(own), strict=True)}):
            meaning = f"all: each {number!r} is a run, whose rounds {own!r} counts"
            return of_options(meaning, columns={"run": number, "round": own})
    meaning = f"all: each {number!r} is a run, and its rows are its rounds, in their order"
    return of_options(meaning, columns={"run": number, "round": ""}) if min(Counter(pairs).values()) > 1 else {}


def of_repeats() -> Choices:
    """Return the options that keep one row where a question has several rows of the same round."""
    return {
        f"--repeated {own}": ({"repeated": own}, f"calls were repeated, and the {own} answer of a round counts")
        for own in ("last", "first")
    }


def _kinds_of(table: TableColumns, used: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each column with the purpose of calls, and its values."""
    for name in [name for name in table.names if last_name(name) in CALL_KINDS and name not in used]:
        values: list[Any] = table.column(name)
        if all(isinstance(value, str) and value for value in values) and 1 < len({*values}) <= MOST_SPEAKERS:
            yield name, {*values}


def in_order_of_rows(number: str) -> Choices:
    """Return the option that numbers the rows of each question in file order.

    Empty unless `number` is the name of a column that counts retries.
    """
    if last_name(number) not in RETRIES:
        return {}
    meaning = f"{number!r} counts retries, and the rows of a question are its rounds in their order"
    return of_columns({"round": ""}, meaning)


def begins_again(questions: Iterable[int], numbers: Iterable[float]) -> bool:
    """Return whether each question's numbers count up without gaps, and then count up again from the same lowest number.

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


def without_copies(
    columns: RoundColumns, grid: Grid, plan: ColumnMap, said: Mapping[str, str], least: int = _FEW
) -> tuple[RoundColumns, Grid]:
    """Leave out rounds that only copy the last answer, since the table was filled up after the end of the loop.

    All questions with copies have the largest number of rounds.  If costs are known, copies cost nothing, unlike all other
    rounds.  If costs are unknown, a column with the number of rounds can show the copies.  Since this column may count something
    else, such as the hops of a question, the user is asked.

    Args:
        columns: All rounds of some questions.
        grid: The settings for reading the table; if rounds are left out, shorter trajectories are read as ended by themselves.
        plan: The meaning of the table's columns, to which a note is added.
        said: The columns that the user named.
        least: The smallest number of questions with copies; with fewer, nothing is left out.

    Raises:
        UnsettledError: Only a column with the number of rounds shows copies, and the user does not say that loops ended by
            themselves.
    """
    if "end" in grid.columns:
        return columns, grid
    texts = [*zip(columns.texts["answer"], columns.texts["text"], strict=True)]
    same = np.array([any(own) and own == before for own, before in zip(texts, [None, *texts[:-1]], strict=True)])
    same &= (columns.place > 0) & columns.spread(columns.lengths == columns.lengths.max())
    known = {name: values for name, values in columns.costs.items() if (values > 0).any()}
    free = np.logical_and.reduce([values == 0 for values in known.values()]) if known else np.zeros(len(columns), bool)
    paid = np.logical_or.reduce([values > 0 for values in known.values()]) if known else ~free
    for name, copies in {"": _at_ends(free, columns), **_after_counts(columns, said)}.items():
        n = int(np.logical_or.reduceat(copies, columns.starts).sum())
        is_free = bool(known) and (free == copies).all()
        is_asked = not is_free and bool(name) and not (known and paid[copies].any())
        if n < least or not (is_free or is_asked) or not same[copies].all():
            continue
        if is_asked and grid.ended != "rule":
            raise _unsettled_count(name, int(copies.sum()), n)
        kept = columns.only(~copies)
        ended = (kept.lengths < columns.lengths) & (kept.lengths < kept.lengths.max())
        kept.ends = ["rule" if own else end for own, end in zip(ended.tolist(), kept.ends, strict=True)]
        plan.notes.append(
            f"{counted(int(copies.sum()), 'round')} of {counted(n, 'question')} left out, since they "
            f"{f'come after the number of rounds in {name!r}' if name else 'cost nothing'} and repeat the answer before: the loop had ended "
            f"by itself (--expected {COPIED_ROUNDS} keeps them)"
        )
        return kept, replace(grid, ended=grid.ended or "rule")
    return columns, grid


def _unsettled_count(name: str, n_rounds: int, n: int) -> UnsettledError:
    """Return the error that asks whether a column counts the loop's rounds or something else."""
    return UnsettledError(
        f"{counted(n_rounds, 'round')} of {counted(n, 'question')} come after the number in {name!r:.60} and repeat the answer before, and no cost "
        "says whether they were run: are they copies after the end of the loop, or rounds of it?",
        "options",
        {
            **of_options(f"they are rounds of the loop: {name!r} counts something else", columns={name: ""}),
            "--ended rule": ({"ended": "rule"}, "they are copies, and left out: the loop had ended by itself"),
        },
    )


def _after_counts(columns: RoundColumns, said: Mapping[str, str]) -> dict[str, Mask]:
    """Return masks of the rounds that exceed the number of rounds in a column, for each column that may give this number."""
    result = {}
    for name, cells in columns.extras.items():
        texts = [str(cell).removesuffix(".0") for cell in cells]
        if _COUNT.fullmatch(last_name(name)) and said.get(name) != "" and all(map(str.isdecimal, texts)):
            numbers = np.array([*map(int, texts)])
            is_one = (numbers == columns.spread(numbers[columns.starts])).all()
            if is_one and numbers.min() >= 1 and numbers.min() < numbers.max():
                result[name] = columns.place >= numbers
    return result


def _at_ends(mask: Mask, columns: RoundColumns) -> Mask:
    """Restrict a mask to the unbroken series of rounds at the end of each question.

    Nothing is left of the mask in a question that it covers completely.
    """
    result = mask.copy()
    for _, own in columns.by_question():
        others = np.flatnonzero(~mask[own])
        result[own.start : own.start + (int(others[-1]) + 1 if len(others) else own.stop - own.start)] = False
    return result


def of_one_kind(name: str, rows: Collection[tuple[int, float, str]]) -> Choices:
    """Return the option to keep the rows with one word in the column `name`.

    Empty unless exactly one word occurs once in every round of every question.
    """
    pairs = {(question, number) for question, number, _ in rows}
    counts = Counter(word for _, _, word in rows)
    whole = [word for word, n in counts.items() if n == len(pairs)]
    if len(whole) != 1 or not any(map(str.isalpha, whole[0])):
        return {}
    return of_each(name, whole, f"rounds are rows whose {name!r} is {{!r}}")


def _begins_each(rows: Collection[tuple[int, float, str]]) -> bool:
    """Return whether a column may distinguish runs: nearly all of its runs begin with the first round and have no gap."""
    runs: dict[tuple[int, str], list[float]] = {}
    for question, number, value in rows:
        runs.setdefault((question, value), []).append(number)
    lowest = min(number for _, number, _ in rows)
    whole = sum(min(own) <= max(lowest, 1) and max(own) - min(own) == len(own) - 1 for own in runs.values())
    return whole >= _WHOLE_RUNS * len(runs)


def of_counted_runs(own: str, number: str, rows: Collection[tuple[int, float, str]]) -> Choices:
    """Return the options that read a column as the run, or as the round of runs that another column distinguishes.

    Args:
        own: The column that may be the run or the round.
        number: The column that was read as the round, and may be the run.
        rows: The question, number and value in `own` of each row.
    """
    result: Choices = {}
    if _begins_each(rows) and not has_decimals([value for _, _, value in rows]):
        result |= of_columns({"run": own}, f"each value of {own!r} is another run")
    if _counts_in_each(rows):
        meaning = f"each value of {number!r} is another run, whose rounds {own!r} counts"
        result |= of_columns({"run": number, "round": own}, meaning)
    return result


def _counts_in_each(rows: Collection[tuple[object, object, str]]) -> bool:
    """Return whether a column numbers, from 0 or 1, the rows with the same question and round number.

    If nearly all of these rows are numbered like this, the round number is the number of a run, and the column counts its rounds.
    """
    runs: dict[tuple[object, object], list[str]] = {}
    for question, number, value in rows:
        runs.setdefault((question, number), []).append(value.removesuffix(".0"))
    counted_up = [sorted(map(int, own)) for own in runs.values() if all(map(str.isdecimal, own))]
    whole = sum(own[0] in (0, 1) and own[-1] - own[0] == len(own) - 1 for own in counted_up)
    return whole >= _WHOLE_RUNS * len(runs)
