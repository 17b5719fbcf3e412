"""Scores of critics, judges and other speakers, in rows that a filter leaves out.

Each of these scores belongs to the answer before it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import compress
from typing import NamedTuple

from suffice.common.tables import cut_list
from suffice.importers.checks.judging import may_judge
from suffice.importers.columns.grid import number_or_nan
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.scores import are_marks
from suffice.importers.words.names import ANSWERS, OUTCOME_NAMES, WEAK_REPLIES, is_round_name, last_name
from suffice.importers.words.score_names import APPROVING, is_score_name

_HALF, _NEARLY_ALL = 0.5, 0.95
"""The least share of rows that have an answer, and of scores that have one before them."""

_MARKS, _OFTEN = 2, 0.3
"""The most different values of marks, and the least share of questions in which a row has what is right."""

_Scores = Mapping[int, object]
"""The score of each row, by its place."""


def have_usual_answers(rows: Sequence[Record]) -> bool:
    """Return whether at least half of the rows have a value in some column with a usual name of answers."""
    names = [name for name in column_names(rows) if last_name(name) in (*ANSWERS, *WEAK_REPLIES)]
    return any(sum(row.values.get(name) not in (None, "") for row in rows) >= _HALF * len(rows) for name in names)


class Carried(NamedTuple):
    """Rows to which the scores of left-out rows were copied, the columns of these scores, and notes on them."""

    rows: list[Record]
    names: list[str]
    notes: list[str]


def with_scores(
    rows: Sequence[Record],
    kept: Sequence[bool],
    questions: Sequence[Hashable],
    filtered: str,
    *,
    is_one_loop: bool = True,
) -> Carried:
    """Copy the scores in left-out rows to the answers that they judge.

    Only columns that no kept row fills are copied.

    Args:
        rows: The rows in the order of the file.
        kept: For each row, True if the filter keeps it.
        questions: The question of each row.
        filtered: The filter, as the user typed it.
        is_one_loop: True if the left-out rows belong to the same loop.  If not, scores are not copied, and a note names them.
    """
    result, carried, unclear = [*rows], [], []
    turn = _turn(rows, kept, questions)
    golds = _golds_of_others(rows, kept, questions) if is_one_loop else {}
    for name, of_questions in golds.items():
        cells = [of_questions.get(own, row.values.get(name)) for own, row in zip(questions, rows, strict=True)]
        result = with_column(result, name, cells)
    for name in [name for name in _scores_of_others(rows, kept) if name not in golds]:
        scores = _by_answer(rows, kept, questions, name, turn) if is_one_loop else None
        if scores is None:
            unclear.append(name)
            continue
        cells = [scores.get(place, row.values.get(name)) for place, row in enumerate(rows)]
        result = with_column(result, name, cells)
        carried.append(name)
    notes = []
    if golds:
        notes.append(
            f"{filtered:.80} leaves out the rows with {cut_list(map(repr, golds))}, which have one value for each question: it stands in all "
            "rows of its question"
        )
    if carried:
        whose = f"with the same {turn!r}" if turn else "before it in the question"
        notes.append(
            f"{filtered:.80} leaves out the rows with {cut_list(map(repr, carried))}: each value counts for the answer {whose}"
        )
    if unclear:
        notes.append(
            f"{cut_list(map(repr, unclear))} is only in rows that {filtered:.80} leaves out, and not clearly one value for each answer, so it is not "
            "read: if it judges answers, write it into their rows"
        )
    return Carried(result, carried, notes)


def with_scores_of_dropped(
    rows: Sequence[Record], kept: Sequence[Record], key: str
) -> tuple[list[Record], list[str], int]:
    """Copy the scores of dropped rows to the kept row of the same round.

    Args:
        rows: All rows.
        kept: The rows that are kept.
        key: The column of questions.

    Returns:
        The kept rows, notes, and the number of dropped rows with scores.
    """
    places = {*map(id, kept)}
    are_kept = [id(row) in places for row in rows]
    questions = [str(row.values.get(key)) for row in rows]
    result, names, notes = with_scores(rows, are_kept, questions, "reading one row for each round")
    pairs = [*zip(result, are_kept, strict=True)]
    n = sum(not is_kept and any(row.values.get(name) is not None for name in names) for row, is_kept in pairs)
    return [row for row, is_kept in pairs if is_kept], notes, n


def _golds_of_others(
    rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Hashable]
) -> dict[str, dict[Hashable, object]]:
    """Return gold answers that only left-out rows have, by column and question.

    Such a column has one value for each question.  Many kept rows have this value in some other column, as answers often equal the
    final ruling.  Columns of grades are excluded.
    """
    names = [name for name in column_names(rows) if not any(map(_has(name), compress(rows, kept)))]
    result: dict[str, dict[Hashable, object]] = {}
    for name in names:
        pairs = [(own, row.values[name]) for own, row in zip(questions, rows, strict=True) if _has(name)(row)]
        values = dict(pairs)
        are_plain = all(
            isinstance(value, str | int | float) and not isinstance(value, bool) for value in values.values()
        )
        texts = {str(value) for value in values.values()} if are_plain and len(values) == len({*pairs}) else set()
        if len(texts) <= _MARKS or all(0 <= number_or_nan(text, name) <= 1 for text in texts):
            continue
        alike = Counter(
            other
            for own, row in zip(compress(questions, kept), compress(rows, kept), strict=True)
            for other, value in row.values.items()
            if own in values and isinstance(value, str) and value == str(values[own])
        )
        if alike and alike.most_common(1)[0][1] >= _OFTEN * len(values) and len(values) >= _HALF * len({*questions}):
            result[name] = values
    return result


def _has(name: str) -> Callable[[Record], bool]:
    return lambda row: row.values.get(name) not in (None, "")


def _scores_of_others(rows: Sequence[Record], kept: Sequence[bool]) -> list[str]:
    """Return the columns of scores, by their names, that are filled only in left-out rows.

    They hold numbers, truth values or a few words.
    """
    names = [
        name
        for name in column_names(rows)
        if may_judge(name) or is_score_name(name) or last_name(name) in {*OUTCOME_NAMES, *APPROVING}
    ]
    return [name for name in names if _is_of_others(rows, kept, name)]


def _is_of_others(rows: Sequence[Record], kept: Sequence[bool], name: str) -> bool:
    values = [None if (value := row.values.get(name)) == "" else value for row in rows]
    others = [value for value, is_kept in zip(values, kept, strict=True) if value is not None and not is_kept]
    if not others or any(value is not None for value, is_kept in zip(values, kept, strict=True) if is_kept):
        return False
    if any(isinstance(value, list | dict) for value in others):
        return False
    return all(number_or_nan(value, name) == number_or_nan(value, name) for value in others) or are_marks(others)


def _turn(rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Hashable]) -> str:
    """Return the round column that relates other rows to answers; "" if there is none.

    Each answer of a question has its own number in this column, and the rows about an answer repeat its number.
    """
    for name in [name for name in column_names(rows) if is_round_name(last_name(name))]:
        keys = [(own, str(row.values.get(name))) for own, row in zip(questions, rows, strict=True)]
        answers = [key for key, is_kept in zip(keys, kept, strict=True) if is_kept]
        others = [key for key, is_kept in zip(keys, kept, strict=True) if not is_kept]
        own = {*answers}
        if len(own) == len(answers) and sum(key in own for key in others) >= _NEARLY_ALL * len(others):
            return name
    return ""


def _by_answer(
    rows: Sequence[Record], kept: Sequence[bool], questions: Sequence[Hashable], name: str, turn: str
) -> _Scores | None:
    """Return the score of each answer, from the rows that follow the answer or, with `turn`, share its number.

    None if an answer has contradictory scores, or if many scores belong to no answer.
    """
    answers: dict[Hashable, int] = {}
    scores: dict[int, object] = {}
    lost = 0
    keys = [(own, str(row.values.get(turn))) if turn else own for own, row in zip(questions, rows, strict=True)]
    if turn:
        answers = {key: place for place, key in enumerate(keys) if kept[place]}
    for place, (key, row) in enumerate(zip(keys, rows, strict=True)):
        if kept[place]:
            answers[key] = place
        elif (value := row.values.get(name)) not in (None, ""):
            owner = answers.get(key)
            lost += owner is None
            if owner is not None and scores.setdefault(owner, value) != value:
                return None
    return scores if lost <= (1 - _NEARLY_ALL) * (lost + len(scores)) else None
