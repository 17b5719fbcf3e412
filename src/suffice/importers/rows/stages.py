"""Order rows by words, such as draft and final, or by the numbers in their ids."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from suffice.common.tables import cut_list
from suffice.errors import DataError, UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.row_times import ASCENDING, BY_TIME, DAY_FIRST, MONTH_FIRST, NEWEST_FIRST, times_as_said
from suffice.importers.shapes.shape import Shape, changed_by, with_derived
from suffice.importers.words.choices import Choices, column_options, of_options
from suffice.importers.words.names import (
    ANSWERS,
    IDS,
    QUESTIONS,
    SPEAKERS,
    TIMES,
    WEAK_REPLIES,
    is_round_name,
    last_name,
)
from suffice.importers.words.numbered_ids import numbered_ids

MOST = 8
"""With more values, a column tells no stages apart."""

NUMBERED = " (number)"
"""The end of the name of the column with the numbers of words whose order the user gives; no file has it."""

_NEARLY_ALL, _OFFERED = 0.95, 3
_SEVERAL, _FEW = 2, 3
_BEGINS = re.compile(
    r"(?:^|[_\W])(?:initial|first|draft|original|zero|base|baseline|closed|start|raw|before|pre)(?:$|[_\W])"
)
_ENDS = re.compile(r"(?:^|[_\W])(?:final|last|end|after|post|done|finished)(?:$|[_\W])")
_LONGEST, _LONG = 24, 60
"""The most characters of a word, and of all words together if several orders are offered."""


def ordered_stages(shape: Shape, columns: dict[str, str]) -> Shape:
    """Number the rows by a column of words whose order the user gives, as in ``round=stage:draft,final``.

    `columns["round"]` is set to the column of these numbers.  With ``round=time:day-first``, a column of times is made sortable
    instead.

    Raises:
        DataError: A row has no word, or one that is not in the order.
        UnsettledError: The user names a column of words without an order.
    """
    theirs = columns.get("round", "")
    names = column_names(shape.rows)
    name, _, words = theirs.rpartition(":")
    if theirs in names:
        _ask_for_an_order(shape, theirs)
    if theirs in names or name not in names:
        return shape
    if words in (DAY_FIRST, MONTH_FIRST, ASCENDING, NEWEST_FIRST, BY_TIME):
        return _timed(shape, columns, name, words)
    places = {word.strip(): place for place, word in enumerate(words.split(","), start=1)}
    columns["round"] = number = f"{name}{NUMBERED}"

    def place(row: Record) -> int:
        word = _word(row.values.get(name))
        if word not in places:
            raise DataError(f"{row.where}: {name} is {word!r:.40}, and the order has only {cut_list(places)}")
        return places[word]

    return with_derived(shape, name, number, place, f"{name} as {words}")


def _timed(shape: Shape, columns: dict[str, str], name: str, how: str) -> Shape:
    """Make the times of a column sortable, and delete "round" from `columns`, so that times order the rows."""
    del columns["round"]
    own = f"{name}.time" if how == ASCENDING and last_name(name) not in TIMES else name  # the numbers may be costs, too
    return changed_by(shape, lambda rows: with_column(rows, own, times_as_said(rows, name, how)))


def with_numbers_of_ids(shape: Shape, said: Sequence[str]) -> tuple[Shape, list[str]]:
    """Split the ids of rows into the question's id and a column with the number at the end; also return a note.

    Rows are unchanged if a column numbers rounds, or if the user names the column of ids or of rounds.
    """
    table = TableColumns(shape.rows)
    counts = any(is_round_name(last_name(name)) and table.counts(name) for name in table.names)
    name = next((name for name in table.by_name(IDS) if not table.repeats(name)), None)
    numbers = None if name is None or counts or shape.how else numbered_ids(table.column(name), _said(table))
    if name is None or numbers is None or not {"question_id", "round"}.isdisjoint(said) or numbers.word in table.names:
        return shape, []
    if numbers.is_bare and _are_told(table, [numbers.parts(value)[1] for value in table.column(name)]):
        return shape, []

    def split(rows: Sequence[Record]) -> list[Record]:
        result = []
        for row in rows:
            question, number = numbers.parts(row.values.get(name))
            result.append(row.having({name: question, numbers.word: number}))
        return result

    note = numbers.note(name, f"--column question_id={name} --column round=")
    return changed_by(shape, split), [note]


def _are_told(table: TableColumns, numbers: Sequence[int]) -> bool:
    """Return whether a column has one value for each number at the end of ids, as a column of prompts or models has."""
    n = len({*numbers})
    texts = ([*map(str, table.column(name))] for name in table.names)
    return any(len({*own}) == len({*zip(own, numbers, strict=True)}) == n for own in texts)


def _said(table: TableColumns) -> Sequence[Any]:
    """Return the answers of rows, which help to interpret ids that end in a bare number.

    Empty if answers are unknown, or if another column identifies questions.
    """
    asked = [name for name in table.by_name((*IDS, *QUESTIONS)) if table.repeats(name)]
    names = [name for name in table.by_name((*ANSWERS, *WEAK_REPLIES)) if table.is_text(name)]
    is_named = any(len({*map(str, table.column(name))}) > 1 for name in asked)
    return table.column(names[0]) if names and not is_named else ()


def _ask_for_an_order(shape: Shape, name: str) -> None:
    words = [*dict.fromkeys(_word(row.values.get(name)) for row in shape.rows)]
    if 1 < len(words) <= MOST and all(re.search(r"[^\W\d_]", word) for word in words) and not _truths(words):
        raise UnsettledError(
            f"{name!r} counts rounds in words ({cut_list(words)}): in which order?", "options", _orders(name, words)
        )


def doubtful_stages(
    table: TableColumns, name: str, several: Sequence[Sequence[int]], *, is_timed: bool
) -> tuple[str, Choices, bool] | None:
    """Return a question about the order of rows that each have a word, such as draft and final.

    Returns:
        The question, the options that settle it, and True if the words suggest an order.  None if the words do not distinguish
        the rows of nearly every question, or if their order is known.
    """
    words = [*map(_word, table.column(name))]
    orders = Counter(tuple(words[place] for place in rows) for rows in several)
    sets = Counter({frozenset(order): 0 for order in orders})
    for order, n in orders.items():
        sets[frozenset(order)] += n if len({*order}) == len(order) else 0
    (usual, n), *_ = sets.most_common(1)
    is_of_stages = _SEVERAL <= len(usual) <= MOST and n >= _NEARLY_ALL * len(several) and len({*words}) <= MOST
    is_of_stages = is_of_stages and all(0 < len(word) <= _LONGEST and "," not in word for word in usual)
    if not is_of_stages or (last_name(name) in SPEAKERS and not _is_told(usual)):
        return None
    truths, first = _truths(usual), next(order for order in orders if frozenset(order) == usual)
    numeric = not any(re.search(r"[^\W\d_]", word) for word in usual)
    natural = ["false", "true"] if truths else _natural(first)
    is_even = len([order for order in orders if frozenset(order) == usual]) == 1
    is_natural = is_even and [*map(str.lower, first)] == [*map(str.lower, natural)] and (truths or _is_told(first))
    is_written = (
        not _is_told(first)
        and is_even
        and [*first] not in (sorted(first), sorted(first, reverse=True))
        and len(first) >= _FEW
    )
    if numeric or is_timed or is_natural or is_written:
        return None
    doubt = f"every question has a row for each {name!r} ({cut_list(natural)}), and nothing says in which order they are rounds"
    if truths:
        other = {"columns": {"round": name}, "first_round": 0}
        option = f"{column_options({'round': name})} --first-round 0"
        return doubt, {option: (other, "false is round 0, without evidence: closed book; true is round 1")}, True
    return doubt, _orders(name, [*first]), _is_told(first)


def _orders(name: str, words: Sequence[str]) -> Choices:
    """Return the options that read a column of words in some order, the likeliest order first."""
    orders = dict.fromkeys(map(tuple, (_natural(words), words, sorted(words), words[::-1])))
    result: Choices = {}
    is_long = len(",".join(words)) > _LONG
    for order in [*orders][: 1 if is_long else _OFFERED]:
        column = f"{name}:{','.join(order)}"
        meaning = (
            "these words in the order of the rounds; any other order can be written"
            if is_long
            else ", then ".join(order)
        )
        result |= of_options(meaning, columns={"round": column})
    return result


def _natural(words: Sequence[str]) -> list[str]:
    """Sort words in their usual order.

    Words with numbers are sorted by number.  Otherwise words for a beginning come first, and words for an end last.

    >>> _natural(["final", "initial", "revised"]), _natural(["pass 2", "pass 10", "pass 1"])
    (['initial', 'revised', 'final'], ['pass 1', 'pass 2', 'pass 10'])
    """

    def place(word: str) -> tuple[int, int]:
        found, low = re.search(r"\d+", word), word.lower()
        return bool(_ENDS.search(low)) - bool(_BEGINS.search(low)), int(found[0]) if found else 0

    return sorted(words, key=place)


def _is_told(words: Iterable[str]) -> bool:
    """Return whether words suggest which of them comes first or last."""
    return any(pattern.search(word.lower()) for word in words for pattern in (_BEGINS, _ENDS, re.compile(r"\d")))


def _truths(words: Sequence[str] | frozenset[str]) -> bool:
    return {word.lower() for word in words} == {"false", "true"}


def _word(value: Any) -> str:
    return "" if value is None else str(value).strip()
