"""Ask what a column means that may count rounds or tell loops apart, where the rows of a question are its rounds in file order."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from suffice.common.files import quoted
from suffice.errors import UnsettledError
from suffice.importers.answer_or_gold import is_step_name
from suffice.importers.names import RUNS, last_name
from suffice.importers.row_times import order_by_time
from suffice.importers.shapes import ROUNDS
from suffice.importers.stages import doubtful_stages
from suffice.importers.table_columns import TableColumns
from suffice.recordings.runs import LOOP_NAMES

_ENOUGH = 10
"""The least number of questions with several rows."""

_NEARLY_ALL = 0.98
_MOST_LOOPS = 8
_AGAIN, _TOGETHER = 2, 1.5
"""The fewest questions that begin again, and the least mean number of rows between other questions' if a loop ran again."""

_SHOWN = 4
_SETTING = re.compile(
    r"(?:top|max|min)(?:_?\w+)?|[knp]|(?:\w+_)?(?:size|length|limit|budget|shots?|docs|documents|passages|chunks|contexts?|beams?"
    r"|width|window|threshold|alpha|beta|temp)|(?:\w+_)?(?:checkpoints?|ckpt|shard|fold)"
)
"""Names of the settings of a loop, such as the number of passages: other values are other loops, not attempts in an order."""

_COUNTS_DOWN = re.compile(r"(?:^|_)(?:left|remaining|remain|countdown)(?:_|$)")
_NUMBER = re.compile(r"-?\d+(\.\d+)?")
_ONE_LOOP = "the rows of a question are the rounds of one loop, in the order of the file"
_Several = Sequence[Sequence[int]]
"""The places of the rows of each question."""

_TOLD_APART = LOOP_NAMES | {*RUNS}
"""Names of columns that tell runs apart without a question."""


def ask_about_factors(table: TableColumns, key: str, used: Collection[str], lead: str = "") -> None:
    """Raise if a column counts a question's rows in another order, or has the same few values in every question.

    Args:
        table: The rows, which nothing counts but their order.
        key: The column of questions.
        used: Columns whose meaning is known.
        lead: The field whose lists have the rows as their items; only settings raise doubts about them.  "" for rows of a file.

    Raises:
        UnsettledError: A column has one of these forms.
    """
    places: dict[str, list[int]] = {}
    for place, value in enumerate(table.column(key)):
        places.setdefault(str(value), []).append(place)
    several = [rows for rows in places.values() if len(rows) > 1]
    if len(several) < _ENOUGH:
        return
    free = [name for name in table.names if name not in used and table.filled(name)]
    counting = [name for name in free if not lead and _counts_otherwise(table, name, several)]
    choices: dict[str, tuple[dict[str, Any], str]] = {}
    doubt = ""
    timed = bool(lead) or bool(order_by_time(table.rows, [(str(value),) for value in table.column(key)], asks=False)[0])
    words = [name for name in free if not lead and last_name(name) not in _TOLD_APART]
    stages = [own for name in words if (own := doubtful_stages(table, name, several, is_timed=timed))]
    for name, values, is_even in [*_of_loops(table, several, free, counting, are_items=bool(lead))][:1]:
        doubt = f"every question has rows of the same {len(values)} values of {name!r} ({', '.join(values[:_SHOWN])}): they may be other loops"
        choices |= _columns(
            "run", name, f"the rows of each {name!r} are a loop of their own, with its own rounds and verdict"
        )
        choices |= _of_samples(name) if is_even and not timed and max(map(len, several)) > len(values) else {}
        for value in [] if is_even else values[:_SHOWN]:
            choices[f"--where {quoted(f'{name}={value}')}"] = (
                {"where": {name: value}},
                f"rows with {value!r} are rounds",
            )
    for text, orders, is_told in stages[:1]:  # words that say nothing of an order are other loops as likely
        doubt, choices = doubt or text, {**orders, **choices} if is_told else {**choices, **orders}
    down = [name for name in free if not lead and _COUNTS_DOWN.search(last_name(name)) and table.counts(name)]
    for name in [] if doubt else down[:1]:
        numbers = sorted({int(float(value)) for value in table.column(name)}, reverse=True)
        if len(numbers) <= _MOST_LOOPS:
            doubt, counting = f"{name!r} may count down, so that its lowest value is the last round", []
            choices |= _columns("round", f"{name}:{','.join(map(str, numbers))}", f"{name!r} counts down")
    for name in counting[:1]:
        doubt = doubt or f"{name!r} counts the rows of every question, in another order than that of the file"
        choices |= _columns("round", name, f"{name!r} is the number of the round")
    if doubt:
        raise UnsettledError(doubt, "options", {**choices, **_columns(ROUNDS if lead else "round", lead, _ONE_LOOP)})


def refuse_passes(blocks: Sequence[Hashable], n_rows: int, key: str) -> None:
    """Raise if a file has several rows of each question together, and then further ones, as if a loop ran again.

    It does not if each row is apart from the next one of its question, round by round, or questions begin again all the time,
    since several were asked at once.  `blocks` has the question and run of each group of consecutive rows.
    """
    seen: set[Hashable] = set()
    passes = 1
    for own in blocks:
        if own in seen:
            passes, seen = passes + 1, set()
        seen.add(own)
    again = sum(n > 1 for n in Counter(blocks).values())
    if again >= _AGAIN and passes <= _MOST_LOOPS and n_rows >= _TOGETHER * len(blocks):
        doubt = f"the rows of {again:,} questions, which nothing counts, are in several places of the log: the loop may have run again"
        run = _columns("run", key, f"where the rows of one {key!r} begin again, another run begins")
        raise UnsettledError(doubt, "options", {**run, **_columns("round", "", _ONE_LOOP)})


def _columns(ours: str, theirs: str, meaning: str) -> dict[str, tuple[dict[str, Any], str]]:
    return {f"--column {quoted(f'{ours}={theirs}')}": ({"columns": {ours: theirs}}, meaning)}


def _of_samples(name: str) -> dict[str, tuple[dict[str, Any], str]]:
    """Return the option for repeated calls of several loops."""
    meaning = f"the rows of each {name!r} are a loop of their own, whose rows are independent samples"
    return {f"--column {quoted(f'run={name}')} --samples": ({"columns": {"run": name}, "samples": True}, meaning)}


def _counts_otherwise(table: TableColumns, name: str, several: _Several) -> bool:
    """Return whether a column numbers the rows of each question from 0 or 1 without gaps, in another order than the file's."""
    if not table.counts(name):
        return False
    values = [int(float(value)) for value in table.column(name)]
    numbers = [[values[place] for place in rows] for rows in several]
    is_counter = all(sorted(own) == [*range(min(own), min(own) + len(own))] and min(own) <= 1 for own in numbers)
    return is_counter and any(own != sorted(own) for own in numbers)


def _of_loops(
    table: TableColumns, several: _Several, free: Sequence[str], counting: Collection[str], *, are_items: bool
) -> Iterator[tuple[str, list[str], bool]]:
    """Yield the columns of labels and settings that every question has in the same number, with their values, and if all are as many."""
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
    """Return whether numbers grow by the same step from each row of a question to the next: they count what a loop did."""
    steps = {float(values[after]) - float(values[before]) for rows in several for before, after in pairwise(rows)}
    return len(steps) == 1 and min(steps) > 0
