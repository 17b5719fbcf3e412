"""Scores of rounds under names of their own, and scores that are known only once of a question."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from suffice.common.files import quoted
from suffice.errors import DataError
from suffice.importers.judging import ONCE
from suffice.importers.names import OVERLAPS, last_name
from suffice.importers.shape import Shape

_RIGHT = frozenset(
    {
        *("acc", "accuracy", "correct", "correctness", "right", "em", "match", "matches", "pass", "passed"),
        *("solved", "resolved"),
    }
)
_MARKS = 6
"""The most texts that are marks."""

_OF_OTHERS = frozenset(
    {
        *("self", "judge", "critic", "predicted", "pred", "estimated", "expected", "prob", "p", "retrieval"),
        *("retriever", "tool"),
    }
    | {"format", "syntax", "parse", "cache", "not", "first", "final", "best"}
)
"""Words of names of numbers that say something else than whether the answer of the round is right."""


def is_score_name(name: str) -> bool:
    """Return whether a word of a column's name says that its numbers tell whether an answer is right.

    >>> is_score_name("exec_acc"), is_score_name("self_correct"), is_score_name("confidence")
    (True, False, False)
    """
    words = {*last_name(name).split("_")}
    return not words.isdisjoint(_RIGHT) and words.isdisjoint(_OF_OTHERS)


def is_overlap(name: str) -> bool:
    """Return whether a column's name is that of a score that compares texts with a reference.

    >>> is_overlap("rouge1"), is_overlap("rougeL_f"), is_overlap("rough")
    (True, True, False)
    """
    return last_name(name).partition("_")[0].rstrip("0123456789") in OVERLAPS


def refuse_single_scores(metrics: Mapping[str, str], shape: Shape) -> None:
    """Raise if a column that the user names as a metric has one value for a question, which would be the score of all of its rounds."""
    for ours, theirs in metrics.items():
        for name, shown in shape.columns.items():
            if theirs in shown.split(" ... ") and theirs != name:
                raise DataError(
                    f"{theirs!r} is the score of a single round, and {shown!r} are read together as {name!r}: --metric-column "
                    f"{quoted(f'{ours}={name}')}"
                )
        if theirs in shape.outer:
            raise DataError(
                f"{theirs!r} {ONCE}: as a metric it would be the score of every round, and no earlier "
                "stop would ever lose anything. Name a score of each round, or leave --metric-column out"
            )


def are_marks(values: Sequence[Any]) -> bool:
    """Return whether texts are a few that repeat, such as thumbs up and down, and no critique."""
    texts = [value for value in values if value is not None]
    return len({*map(str, texts)}) <= _MARKS < len(texts) / 2
