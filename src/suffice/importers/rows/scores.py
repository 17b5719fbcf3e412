"""Scores with unusual names.

A score may belong to each round, may be known once per question, or may belong to a whole run.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from suffice.common.files import quoted
from suffice.errors import DataError, UnsettledError
from suffice.importers.answers.answer_or_gold import varies
from suffice.importers.checks.judging import ONCE, metric_option, scales_with
from suffice.importers.columns.grid import cell_number
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.rounds.round_columns import RoundColumns
from suffice.importers.shapes.shape import Shape
from suffice.importers.words.choices import Choices, in_options, of_columns
from suffice.importers.words.word_scales import order_of_words
from suffice.policy.normalizers import DEFAULT_NORMALIZER, normalizer_of

_MARKS = 6
"""The most texts that are marks."""

_ROWS = 5
"""The fewest rows that show the scale of a score."""


def refuse_parts_of_scores(metrics: Mapping[str, str], shape: Shape) -> None:
    """Raise if the user names the score of a single round as a metric, although the scores of all rounds are read as one column.

    An example is `score_2` of the columns `score_1`, `score_2` and so on.
    """
    for ours, theirs in metrics.items():
        for name, shown in shape.columns.items():
            if theirs in shown.split(" ... ") and theirs != name:
                raise DataError(
                    f"{theirs!r} is the score of a single round, and {shown!r} are read together as {name!r}: --metric-column "
                    f"{quoted(f'{ours}={name}')}"
                )


def refuse_single_score(theirs: str) -> NoReturn:
    """Raise an error about a metric with one value per question, which would give all answers the same score."""
    raise DataError(
        f"{theirs!r} {ONCE}: as a metric it would be the score of every answer, and no earlier stop would ever lose anything. Name a "
        "score of each round; or give it as the outcome of each run, in a file (--outcomes FILE); or leave --metric-column out"
    )


def refuse_unscaled(table: TableColumns, name: str) -> None:
    """Raise if a column is named like one of this library's metrics, but has words or values outside [0, 1].

    The user must give its scale.
    """
    values, numbers = {str(value) for value in table.column(name) if value is not None}, table.numbers(name)
    known = [number for number in numbers or [] if number]
    outside = [number for number in known if not 0 <= number <= 1]
    if len(table.rows) < _ROWS or not values or (numbers is not None and 2 * len(outside) <= len(known)):
        return  # a few others are errors of their rows
    ways = [f":{order}"] if numbers is None and (order := order_of_words(name, values)) else []
    ways += [f":{worst}..{best}" for worst, best in scales_with(min(numbers), max(numbers))] if numbers else []
    choices: Choices = {}
    for way in dict.fromkeys([*ways[:1], *ways[-1:]]):
        meaning = f"its scale is from {way[1:].replace('..', ' to ')}" if ".." in way else "its words are in this order"
        choices[metric_option(name, way)] = {"metrics": {name: f"{name}{way}"}}, meaning
    example = f"{max(outside, key=abs):g}" if outside else repr(table.not_a_number(name))
    raise UnsettledError(
        f"{name!r} has {example:.40}, and a metric lies in [0, 1]: what is its scale?",
        "options",
        choices | in_options(of_columns({name: ""}, "it is no score of answers")),
    )


def are_marks(values: Sequence[Any]) -> bool:
    """Return whether values are grades: numbers, or a few texts that repeat.

    Thumbs up and down are grades; critiques are not.
    """
    texts = [value for value in values if value is not None]
    are_numbers = bool(texts) and all(isinstance(value, int | float) for value in texts)
    return are_numbers or len({*map(str, texts)}) <= _MARKS < len(texts) / 2


LAST_ROUND = " (last round)"
"""The end of the description of such a score's column."""

_CHANGING, _GOOD = 10, 5
"""The fewest questions whose answers change, and of those with more than the lowest score, that show what a score is said of."""


def is_of_runs(table: TableColumns, name: str, ids: Sequence[Any], answer: str) -> bool:
    """Return whether a score belongs to whole runs: it is constant in each question, although answers change.

    The same holds if answers are constant because the run's result is copied to all rows.
    """
    key_of = normalizer_of(DEFAULT_NORMALIZER)
    said: dict[str, set[object]] = {}
    scores: dict[str, set[float]] = {}
    n_known = Counter[str]()
    for own, text, value in zip(map(str, ids), table.column(answer), table.column(name), strict=True):
        said.setdefault(own, set()).add(text if text is None else key_of(str(text)) or str(text))
        try:
            score = cell_number(value, name, "")
        except DataError:
            return False
        if not math.isnan(score):
            scores.setdefault(own, set()).add(score)
            n_known[own] += 1
    values = {score for own in scores.values() for score in own}
    if len(values) < len(("lowest", "highest")) or any(len(own) > 1 for own in scores.values()):
        return False
    changing = [own for own in scores if n_known[own] > 1 and (len(said[own]) > 1 or not answer)]
    good = sum(scores[own] != {min(values)} for own in changing)
    several = [own for own in scores if n_known[own] > 1]
    is_silent = bool(answer and several) and all(
        None in said[own] for own in several
    )  # a row without an answer has no score
    if is_silent or (len(changing) >= _CHANGING and good >= _GOOD):
        return True
    if not answer or len(several) < _CHANGING or any(len(said[own]) > 1 for own in several):
        return False
    # if the answer never changes but another text does, the answer and the score are the run's result, copied to its rows
    return any(varies(table, own, ids, len(several)) for own in table.names if own not in (answer, name))


def keep_at_ends(columns: RoundColumns, names: Collection[str]) -> None:
    """Make scores of whole runs unknown in all rounds but the last.

    Raises:
        UnsettledError: A score differs between the rounds of a question, so that it does not belong to a run.
    """
    is_last = np.zeros(len(columns), dtype=bool)
    is_last[columns.starts + columns.lengths - 1] = True
    for name in names:
        values = columns.metrics[name]
        pairs = values[1:], values[:-1]
        if (np.not_equal(*pairs) & ~np.isnan(pairs).any(axis=0) & (columns.place[1:] > 0)).any():
            option = f"--metric-column {quoted(f'{name}={name}')}"
            raise UnsettledError(
                f"{name!r} is the same in all rounds of the first questions, and differs in later ones: is it said of each round?",
                "options",
                {option: ({"metrics": {name: name}}, "it is that of each round")},
            )
        columns.metrics[name] = np.where(is_last, values, math.nan)


def run_note(name: str, theirs: str, *, has_answers: bool) -> str:
    """Return the note on a score that is read as the score of a run."""
    if not has_answers:
        return (
            f"{theirs!r} is the same in all rounds of a question, so it is known of the last round alone: what a loop that stops earlier would have "
            "got is unknown, and no cap can be judged by it. Log what would be submitted after each round, and whether it passes"
        )
    return (
        f"{theirs!r} is the same in all rounds of a question, whatever the answers, so it counts for the last round alone "
        f"(--metric-column {quoted(f'{name}={theirs}')}: for each)"
    )
