"""Ask about two columns with unusual names in a log of replies: the parsed answer and its gold answer."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from suffice.errors import UnsettledError
from suffice.importers.answers.parsed_columns import are_in_replies
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.words.choices import of_columns
from suffice.policy.metrics import normalize_answer

_LONG, _SHORT = 25, 40
"""The least characters of replies on average, and the most of a parsed answer."""

_QUESTIONS, _OFTEN, _BY_CHANCE = 10, 0.15, 1.5
"""The fewest questions, the least share of rows in which both columns are the same, and by what that is above the share between rows of
other questions."""

_NEARLY_ALL, _FEW = 0.98, 2
"""The share of questions whose last answer is a copy if it is the same, and the most values that two columns share by chance."""

_MOST, _ROWS = 16, 2000
"""The most columns of either kind, and the most rows that are looked at."""


def refuse_parsed_pairs(table: TableColumns, ids: Sequence[Any], reply: str, names: Collection[str]) -> None:
    """Raise if a column contains words of the replies, and often equals a second column, which is constant in each question.

    The first column may be the parsed answer, and the second column its gold answer.

    Args:
        table: The rows.
        ids: The question of each row.
        reply: The column that would be read as the answer, although the user did not name it.
        names: Columns without a known meaning.
    """
    replies = table.column(reply)[:_ROWS]
    texts = [text for text in replies if isinstance(text, str)]
    if sum(map(len, texts)) < _LONG * len(replies) or len({*map(str, ids)}) < _QUESTIONS:
        return
    for parsed, gold, share in equal_pairs(table, ids, names):
        said, right = (table.column(name)[:_ROWS] for name in (parsed, gold))
        differ = [
            place for place, (one, other) in enumerate(zip(_keys(said), _keys(right), strict=True)) if one != other
        ]
        of_others = [replies[place] for place in differ]
        if (
            are_in_replies(said, replies)
            and are_in_replies([said[place] for place in differ], of_others)
            and not are_in_replies([right[place] for place in differ], of_others)
        ):
            both = of_columns(
                {"answer": parsed, "golds": gold}, f"{parsed!r} is the answer, and {gold!r} the gold answer"
            )
            whole = of_columns({"answer": reply}, f"the whole {reply!r} is the answer")
            raise UnsettledError(
                f"{reply!r} has whole replies, {parsed!r} words of them, and {gold!r}, the same in all rows of a question, equals "
                f"{parsed!r} in {share:.0%} of the rows: is it what is right?",
                "columns",
                both | of_columns({"answer": parsed}, f"{parsed!r} is the answer, and {gold!r} something else") | whole,
            )


def equal_pairs(table: TableColumns, ids: Sequence[Any], names: Collection[str]) -> Iterator[tuple[str, str, float]]:
    """Yield pairs of columns that are equal more often than by chance, with the share of rows in which they are equal.

    The second column of each pair is constant in each question.
    """
    keys = {name: _keys(table.column(name)[:_ROWS]) for name in names if _is_short(table.column(name)[:_ROWS])}
    keys = {name: own for name, own in keys.items() if len({*own}) > 1}
    for gold in [name for name in keys if table.constant_in(name, ids)][:_MOST]:
        right = keys[gold]
        shift = next((n for n, own in enumerate(ids) if own != ids[0]), 0)
        others = [*right[shift:], *right[:shift]]  # the gold answers of the next question
        for parsed in [name for name in keys if name != gold][:_MOST]:
            same, by_chance = (
                sum(one == other != "" for one, other in zip(keys[parsed], own, strict=True)) / len(right)
                for own in (right, others)
            )
            if _OFTEN <= same < 1 and same >= _BY_CHANCE * by_chance:
                yield parsed, gold, same


def right_beside(table: TableColumns, ids: Sequence[Any], names: Collection[str], least: float) -> dict[str, str]:
    """Return the columns that may be answers, each with the column that may be its gold answer.

    The two columns are equal in at least `least` of the rows.  A pair that is equal in the last row of nearly every question is
    left out, since the last answers are then copies of the gold answers.

    Args:
        table: The rows.
        ids: The question of each row.
        names: Columns without a known meaning.
        least: The smallest share of rows in which both are equal.
    """
    ends = [*{str(own): place for place, own in enumerate(ids[:_ROWS])}.values()]
    result: dict[str, str] = {}
    for said, right, share in equal_pairs(table, ids, names):
        answers, golds = (_keys([table.column(name)[place] for place in ends]) for name in (said, right))
        is_last = sum(one == other for one, other in zip(answers, golds, strict=True)) >= _NEARLY_ALL * len(ends)
        if share >= least and len({*golds}) > _FEW and not is_last:
            result.setdefault(said, right)
    return result


def _is_short(values: Sequence[Any]) -> bool:
    return all(
        value is None or (isinstance(value, str | int | float) and len(str(value)) <= _SHORT) for value in values
    )


def _keys(values: Sequence[Any]) -> list[str]:
    return ["" if value is None else normalize_answer(str(value).removesuffix(".0")) for value in values]
