"""Ask about columns that may count rounds or distinguish loops, although the rows of a question are read in file order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from itertools import chain, pairwise
from typing import Any

from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.answers.answer_or_gold import is_step_name
from suffice.importers.columns.table_columns import TableColumns, counts_up
from suffice.importers.files.records import places_of
from suffice.importers.questions.compound_ids import compound_choices, counts_once, of_runs
from suffice.importers.rows.failed_calls import contents
from suffice.importers.rows.parallel_files import of_files
from suffice.importers.rows.repeated_rounds import begins_again
from suffice.importers.rows.round_lists import ROUNDS
from suffice.importers.rows.row_times import ASCENDING, falling_back, order_by_time
from suffice.importers.rows.stages import doubtful_stages
from suffice.importers.words.choices import Choices, of_each, of_options
from suffice.importers.words.id_names import is_run_name
from suffice.importers.words.names import RUNS, last_name
from suffice.recordings.runs import LOOP_NAMES

_ENOUGH = 10
"""The least number of questions with several rows."""

_NEARLY_ALL = 0.98
_MOST_LOOPS = 8
_AGAIN, _TOGETHER = 2, 1.5
"""The fewest questions that begin again, and the least mean number of rows between other questions' if a loop ran again."""

_NEAR, _GAPS = 0.25, 30
"""Independent numbers are seldom all farther apart than this share of their mean distance, and never in so many pairs of neighbours."""

_MOSTLY, _PAIR = 0.9, 2
"""Rows that were shuffled are seldom in one order in more questions, nor do numbers fall by chance in each of several longer ones."""

_FEW_COPIES = 0.1
"""With more, what a column counts may be other answers, such as versions of one."""

_SHOWN = 4
_SETTING = re.compile(
    r"(?:top|max|min)(?:_?\w+)?|[knp]|(?:\w+_)?(?:size|length|limit|budget|shots?|docs|documents|passages|chunks|contexts?|beams?"
    r"|width|window|threshold|alpha|beta|temp)|(?:\w+_)?(?:checkpoints?|ckpt|shard|fold)"
)
"""Names of the settings of a loop, such as the number of passages: other values are other loops, not attempts in an order."""

_COUNTS_DOWN = re.compile(r"(?:^|_)(?:left|remaining|remain|countdown)(?:_|$)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ONE_LOOP = "the rows of a question are the rounds of one loop, in the order of {}"
_Several = Sequence[Sequence[int]]
"""The places of the rows of each question."""

_TOLD_APART = LOOP_NAMES | {*RUNS}
"""Names of columns that tell runs apart without a question."""


def ask_about_factors(
    table: TableColumns,
    key: str,
    used: Collection[str],
    lead: str = "",
    *,
    costs: Collection[str] = (),
    answer: str = "",
) -> None:
    """Raise if a column may put a question's rows in another order than the file, or may distinguish loops or stages.

    Args:
        table: The rows; nothing but their order numbers them.
        key: The column of questions.
        used: Columns whose meaning is known.
        answer: The column of answers; "" if none is known.
        costs: Columns of costs or signals.  They may be running totals, which rise from round to round.
        lead: The field whose list items are the rows; "" for rows of a file.  For list items, only settings are in doubt.
    """
    several = [rows for rows in places_of(map(str, table.column(key))).values() if len(rows) > 1]
    if len(several) < _ENOUGH:
        return
    free = [name for name in table.names if name not in used and table.filled(name)]
    counting = [name for name in free if not lead and _counts_otherwise(table, name, several)]
    ids = [(str(value),) for value in table.column(key)]
    time, order = ("", ()) if lead else order_by_time(table.rows, ids, asks=False)
    one_loop = _ONE_LOOP.format(repr(time) if time and not falling_back(order, ids) else "the file")
    timed = bool(lead or time)
    words = [name for name in free if not lead and last_name(name) not in _TOLD_APART]
    stages = [own for name in words if (own := doubtful_stages(table, name, several, is_timed=timed))]
    doubt, choices, again = _of_further_runs(table, [] if lead else free, several, order)
    choices = {**_of_compounds(table, used, key, again), **choices}
    telling = _telling_apart(table, free, key, again)
    for name, values, is_even in [*_of_loops(table, several, telling, counting, are_items=bool(lead))][:1]:
        shown = ", ".join(values[:_SHOWN]) + (", ..." if len(values) > _SHOWN else "")
        asked = f"every question has a row for each of {len(values)} values of {name!r} ({shown}): is each value a round of one loop, or a loop of its own?"
        doubt = doubt or asked
        said = {
            str(own)
            for own, text in zip(table.column(name), table.column(answer), strict=True)
            if text not in (None, "")
        }
        if said and not said.issuperset(values):  # a kind of rows without answers is not a loop
            choices |= of_each(name, [own for own in values if own in said][:_SHOWN], "rows with {!r} are rounds")
            continue
        choices |= _of_named_runs(table, key, name)
        own_loop = f"the rows of each {name!r} are a loop of their own"
        choices |= of_options(f"{own_loop}, with its own rounds and verdict", columns={"run": name})
        if is_even and not timed and max(map(len, several)) > len(values):
            meaning = f"{own_loop}, whose rows are independent samples"
            choices |= of_options(meaning, columns={"run": name}, samples=True)
        choices |= of_each(name, [] if is_even else values[:_SHOWN], "rows with {!r} are rounds")
    for text, orders, is_told in stages[:1]:  # words without an implied order are as likely other loops
        doubt, choices = doubt or text, {**orders, **choices} if is_told else {**choices, **orders}
    down = [name for name in free if not lead and _COUNTS_DOWN.search(last_name(name)) and table.counts(name)]
    for name in [] if doubt else down[:1]:
        numbers = sorted({*table.whole_numbers(name)}, reverse=True)
        if len(numbers) <= _MOST_LOOPS:
            doubt, counting = f"{name!r} may count down, so that its lowest value is the last round", []
            choices |= of_options(f"{name!r} counts down", columns={"round": f"{name}:{','.join(map(str, numbers))}"})
    for name in counting[:1]:
        doubt = doubt or f"{name!r} counts the rows of every question, in another order than that of the file"
        choices |= of_options(f"{name!r} is the number of the round", columns={"round": name})
    if doubt:
        as_one = of_options(one_loop, columns={ROUNDS if lead else "round": lead})
        raise UnsettledError(doubt, "options", of_files(table.rows) | choices | as_one)
    _ask_about_copies(table, key, [] if lead else free, several, one_loop)
    _ask_about_totals(table, [] if lead or timed else {*free, *costs}, several)


def _of_named_runs(table: TableColumns, key: str, counter: str) -> Choices:
    """Return the options that read a column as the run, if its name means runs and `counter` counts the rounds of each run."""
    named = [own for own in table.names if is_run_name(own) and own != counter and table.counts(counter)]
    runs = next((own for own in named if counts_once(table, [key, own], counter)), "")
    return of_runs([key, runs], counter) if runs else {}


def _ask_about_copies(table: TableColumns, key: str, free: Sequence[str], several: _Several, one_loop: str) -> None:
    """Raise if a column numbers the rows of each question, apart from copies of rows.

    Copies occur where a message was delivered twice.
    """
    for name in [name for name in free if _counts_but_for_copies(table, name, several)][:1]:
        n = len(table.rows) - len({*zip(map(str, table.column(key)), map(str, table.column(name)), strict=True)})
        meaning = f"{name!r} is the number of the round, and copies are left out"
        choices = of_options(meaning, columns={"round": name})
        raise UnsettledError(
            f"{name!r} counts the rows of every question, and has {counted(n, 'number')} twice, in rows that are equal but for what numbers "
            "or dates all rows, as if they had been delivered again",
            "options",
            choices | of_options(one_loop, columns={"round": ""}),
            next(iter(choices)) if n <= _FEW_COPIES * len(table.rows) else "",
        )


def _ask_about_totals(table: TableColumns, names: Collection[str], several: _Several) -> None:
    """Raise if sorting by a column's numbers would give each question's rows another order than the file."""
    for name in [name for name in table.names if name in names and _rises_otherwise(table, name, several)][:1]:
        raise UnsettledError(
            f"{name!r} rises through the rows of each question, in another order than that of the file, as if these had been shuffled",
            "options",
            of_options("rows with lower numbers come first", columns={"round": f"{name}:{ASCENDING}"})
            | of_options(_ONE_LOOP.format("the file"), columns={"round": ""}),
        )


def refuse_passes(blocks: Sequence[Hashable], n_rows: int, key: str, ids: Choices, compounds: Choices) -> None:
    """Raise if the rows of a question are in several places of a file, as if the loop ran again.

    Does not raise if the rows of questions alternate, as in logs that are written round by round or by concurrent questions.
    If there are options `ids`, it always raises, since another column may distinguish questions with the same text.

    Args:
        blocks: The question and run of each group of consecutive rows.
        n_rows: The total number of rows.
        key: The column of questions.
        ids: The options that read another column as the id of a question.
        compounds: The options that read several columns together as the id.
    """
    seen: set[Hashable] = set()
    passes = 1
    for own in blocks:
        if own in seen:
            passes, seen = passes + 1, set()
        seen.add(own)
    again = sum(n > 1 for n in Counter(blocks).values())
    are_together = n_rows >= _TOGETHER * len(blocks)
    if ids or (again >= _AGAIN and passes <= _MOST_LOOPS and are_together):
        runs = of_options(f"where the rows of one {key!r} begin again, another run begins", columns={"run": key})
        choices = ids | compounds | (runs if again and are_together else {})
        doubt = f"the rows of {counted(again, 'question')}, which nothing counts, are in several places of the log: the loop may have run again"
        if not again:
            doubt = f"the rows with one text in {key!r} may be those of several questions"
        raise UnsettledError(
            doubt, "options", choices | of_options(_ONE_LOOP.format("the file"), columns={"round": ""})
        )


def _counts_otherwise(table: TableColumns, name: str, several: _Several) -> bool:
    """Return whether a column numbers the rows of each question from 0 or 1 without gaps, in another order than the file's."""
    if not table.counts(name):
        return False
    values = table.whole_numbers(name)
    numbers = [[values[place] for place in rows] for rows in several]
    return all(map(counts_up, numbers)) and any(own != sorted(own) for own in numbers)


def _of_further_runs(
    table: TableColumns, names: Sequence[str], several: _Several, order: Sequence[int]
) -> tuple[str, Choices, str]:
    """Find a column that counts rounds and begins again in a further run; return a question about it, options, and its name.

    All three are empty without such a column.  `order` lists the places of rows by time, and is empty if no times order them.
    """
    rank = {place: i for i, place in enumerate(order)}
    for name in [name for name in names if _begins_again(table, name, several, rank)][:1]:
        meaning = f"{name!r} is the number of the round, and another run begins where it begins again"
        doubt = f"{name!r} counts up the rows of each question, and begins again in some: the loop may have run again"
        return doubt, of_options(meaning, columns={"round": name, "run": name}), name
    return "", {}, ""


def _of_compounds(table: TableColumns, used: Collection[str], key: str, again: str) -> Choices:
    """Return the options that read several columns together as the question's id.

    Empty if `again` is ""; else it is a round column whose numbers begin again within a question.
    """
    return compound_choices(table, used, key, again, names_counter=True) if again else {}


def _telling_apart(table: TableColumns, names: Sequence[str], key: str, again: str) -> list[str]:
    """Return the columns that may distinguish loops.

    If `again` is a round column whose numbers begin again within a question, a returned column must separate these passes: its rows
    with one value have each round number once.
    """
    return [name for name in names if not again or counts_once(table, (key, name), again)]


def _begins_again(table: TableColumns, name: str, several: _Several, rank: Mapping[int, int]) -> bool:
    """Return whether a column counts up the rows of each question, and in some questions begins again from the lowest number."""
    if _SETTING.fullmatch(last_name(name)) or not table.counts(name) or _counts_but_for_copies(table, name, several):
        return False
    values = table.whole_numbers(name)
    numbers = [[values[place] for place in sorted(rows, key=lambda place: rank.get(place, place))] for rows in several]
    again = sum(len({*own}) < len(own) for own in numbers)
    ids = [i for i, own in enumerate(numbers) for _ in own]
    is_long = max(map(max, numbers)) - min(map(min, numbers)) > 1
    return (
        again >= _AGAIN and is_long and max(map(min, numbers)) <= 1 and begins_again(ids, chain.from_iterable(numbers))
    )


def _counts_but_for_copies(table: TableColumns, name: str, several: _Several) -> bool:
    """Return whether a column numbers the rows of each question from 0 or 1 without gaps once copies of rows are left out.

    There must be copies.
    """
    if not table.counts(name):
        return False
    values = table.whole_numbers(name)
    sets = [{values[place] for place in rows} for rows in several]
    if (
        not all(counts_up([*own]) for own in sets)
        or sum(map(len, sets)) == sum(map(len, several))
        or max(map(len, sets)) == 1
    ):
        return False
    held = contents(table.rows)
    return all(len({(values[i], held[i]) for i in rows}) == len(own) for rows, own in zip(several, sets, strict=True))


def _rises_otherwise(table: TableColumns, name: str, several: _Several) -> bool:
    """Return whether a column's numbers can order each question's rows as rounds, in another order than the file's.

    They can if nearly all questions have the same numbers.  They also can if the numbers of a question are spread out, as running
    totals are: hardly any neighbouring numbers are closer than `_NEAR` times the mean distance.  Of numbers that are independent of
    each other, about a fifth of the neighbours are closer.
    """
    plain, values = last_name(name), table.numbers(name)
    is_factor = plain in _TOLD_APART or _SETTING.fullmatch(plain) or _COUNTS_DOWN.search(plain)
    if is_factor or values is None or len(values) != len(table.rows):
        return False
    asked = [[values[place] for place in rows] for rows in several]
    orders = Counter(  # all questions that rise in file order count as one order
        () if own == sorted(own) else tuple(sorted(range(len(own)), key=own.__getitem__)) for own in asked
    )
    falls = max(map(len, asked)) > _PAIR and all(own[::-1] == sorted(own) for own in asked)
    if any(len({*own}) < len(own) for own in asked) or (max(orders.values()) > _MOSTLY * len(asked) and not falls):
        return False
    gaps = [after - before for own in asked for before, after in pairwise(sorted(own))]
    near = sum(gap < _NEAR * sum(gaps) / len(gaps) for gap in gaps)
    sets = Counter(tuple(sorted(own)) for own in asked)
    is_apart = len(gaps) >= _GAPS and near <= (1 - _NEARLY_ALL) * len(gaps)
    return is_apart or sets.most_common(1)[0][1] >= _NEARLY_ALL * len(several)


def _of_loops(
    table: TableColumns, several: _Several, free: Sequence[str], counting: Collection[str], *, are_items: bool
) -> Iterator[tuple[str, list[str], bool]]:
    """Yield each column of labels or settings that has the same values in nearly every question.

    Each comes with its values, and with True if all of them are equally frequent.
    """
    for name in free:
        values: list[Any] = table.column(name)
        is_number = all(isinstance(value, str | int | float) and _NUMBER.fullmatch(str(value)) for value in values)
        is_label = is_number or all(isinstance(value, str) and value for value in values)
        is_setting = is_number and _SETTING.fullmatch(last_name(name)) is not None
        is_count = not is_setting and last_name(name).endswith("tokens")
        is_known = is_count or is_step_name(name) or last_name(name) in _TOLD_APART
        if is_known or not is_label or (are_items and not is_setting):
            continue
        known = {*values}
        if not 1 < len(known) <= _MOST_LOOPS or {str(value).lower() for value in known} <= {"true", "false"}:
            continue
        sets = Counter(tuple(sorted(Counter(values[place] for place in rows).items())) for rows in several)
        (usual, n), *_ = sets.most_common(1)
        is_counter = is_number and not is_setting and (name in counting or _grows_evenly(values, several))
        if len(usual) > 1 and n >= _NEARLY_ALL * len(several) and not is_counter:
            listed = sorted(known, key=float) if is_number else dict.fromkeys(values)
            yield name, [*map(str, listed)], len({n for _, n in usual}) == 1


def _grows_evenly(values: Sequence[Any], several: _Several) -> bool:
    """Return whether numbers grow by the same step from row to row of each question, as counters do."""
    steps = {float(values[after]) - float(values[before]) for rows in several for before, after in pairwise(rows)}
    return len(steps) == 1 and min(steps) > 0
