"""Answer a question about a reading from the log itself, if the log leaves no doubt, and note the answer.

For example, if only the rows of one kind contain gold answers, the rows of that kind are the answers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from suffice.errors import UnsettledError
from suffice.importers.checks.reading import Reading
from suffice.importers.shapes.shape import ANY

_ENOUGH = 20
"""The least number of questions, and of answers in other rows, about which a share says something."""

_OFTEN, _NEVER = 0.3, 0.01
"""The least share of right answers in rows that are answers, and the most in others."""


class Scored(NamedTuple):
    """The numbers of questions, of answers that were compared with gold answers, and of right answers among these."""

    questions: int
    answers: int
    right: float

    @classmethod
    def of(cls, reading: Reading) -> Scored:
        """Count the questions and answers of a reading."""
        means = [item for item in reading.by_round() if item.scored]
        right = sum(item.scored * (item.em if item.match != item.match else item.match) for item in means)
        return cls(reading.facts.clusters, sum(item.scored for item in means), right)


def confirmed_rows(
    error: UnsettledError, given: Collection[str], count: Callable[[Mapping[str, str]], Scored | None]
) -> str:
    """Return the option whose filter keeps answers that are often right, while the rows left out are almost never right.

    Return "" if no option does so beyond doubt.

    Args:
        error: The question about the reading; its choices are filters.
        given: The columns that earlier filters use.
        count: Counts the questions and answers read with a filter; returns None if nothing can be read with the filter.
    """
    filters = {option: as_options(error, value).get("where", {}) for option, (value, _) in error.choices.items()}
    filters = {option: where for option, where in filters.items() if len(where) == 1 and where.keys().isdisjoint(given)}
    for option, where in filters.items():
        own = None if ANY in where.values() else count(where)
        if own is not None and own.questions >= _ENOUGH and own.right >= _OFTEN * max(own.answers, 1):
            others = _others(own, where, [item for item in filters.values() if item != where], count)
            is_told = others is not None and (others.answers >= _ENOUGH or others == Scored(own.questions, 0, 0))
            return option if others is not None and is_told and others.right <= _NEVER * others.answers else ""
    return ""


def _others(
    own: Scored,
    where: Mapping[str, str],
    filters: Sequence[Mapping[str, str]],
    count: Callable[[Mapping[str, str]], Scored | None],
) -> Scored | None:
    """Count the answers in the rows outside a choice.

    To count them, subtract the choice from all rows or, if all rows cannot be read together, add up the other choices.  Return
    None if one of the other choices cannot be read, for example because its answers are inside replies.
    """
    each = [count(item) for item in filters if item.keys() == where.keys() and ANY not in item.values()]
    known = [item for item in each if item is not None]
    if len(known) < len(each):
        return None
    if (every := count(dict.fromkeys(where, ANY))) is not None:
        return Scored(own.questions, every.answers - own.answers, every.right - own.right)
    if not known:
        return None
    return Scored(own.questions, sum(item.answers for item in known), sum(item.right for item in known))


def as_options(error: UnsettledError, value: Any) -> dict[str, Any]:
    """Return the values that a choice sets, by parameter."""
    return value if error.parameter == "options" else {error.parameter: value}


def confirmed_note(error: UnsettledError, option: str) -> str:
    """Return the note for a question that the values of the log answered."""
    others = [own for own in error.choices if own != option]
    remedy = f"; for another reading, {others[0]}" if others else ""
    shown = f"decided by the values of the log: {error.choices[option][1]} ({option}){remedy}"
    return f"{shown}: {error.question.removesuffix('?').removesuffix('.')}"
