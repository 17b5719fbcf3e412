"""Count defined, removed, clipped and computed values of an import, by column and by round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from suffice.common.files import quoted
from suffice.policy.normalizers import match
from suffice.recordings.runs import loops_by_label
from suffice.recordings.stored_loops import read_labels

NAMED = 5
"""The most files or loops that a note names."""

_TEXT_LIKE = ("question", "answer", "golds", "text", "feedback", "embedding")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCount:
    """Counts of the removed, clipped and computed values of one column in an import.

    Attributes:
        defined: Number of rounds in which the column has a value.
        nulled: Number of rounds whose value was removed: it was infinite, or the signal cannot exist in this round.
        clipped: Number of rounds in which a value was moved to the end of the signal's range.
        computed: True if the import computed the column, from answers and gold answers.
    """

    name: str
    defined: int
    nulled: int = 0
    clipped: int = 0
    computed: bool = False

    def __add__(self, other: ColumnCount) -> ColumnCount:
        """Add the counts of another part of the same run."""
        sums = {name: getattr(self, name) + getattr(other, name) for name in ("defined", "nulled", "clipped")}
        return replace(self, **sums)


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMeans:
    """Means of metrics in one round, over all trajectories that have the round.

    Attributes:
        n: Number of trajectories that have the round.
        scored: Number of these with a known exact match.
        em: Mean exact match, 0 to 1, over rounds where it is known; NaN if it is known in none.
        f1: Mean F1, like `em`.
        match: Mean of the metric `match`, which compares with the recording's normalizer.  NaN if the normalizer is the default for
        question answering.
        answered: Share of the trajectories that have an answer in the round.
        distinct: Mean number of distinct answers of a trajectory up to the round.
        scores: Means of the log's own metrics, by name.
        known: Number of the trajectories in which each of these metrics is known in the round.
    """

    round: int
    n: int
    scored: int
    em: float
    f1: float
    match: float = math.nan
    answered: float = math.nan
    distinct: float = math.nan
    scores: Mapping[str, float] = field(default_factory=dict)
    known: Mapping[str, int] = field(default_factory=dict)


def loops_of(out: Path) -> tuple[tuple[str, ...], list[str]]:
    """Return filters that each select one loop of a recording, and a note that lists them.

    Both are empty if the recording has a single loop.
    """
    labels = read_labels(out)
    several = {} if labels is None else loops_by_label(labels)
    if not several:
        return (), []
    name, counts = next(iter(several.items()))
    loops = tuple(f"{name}={value}" for value in sorted(counts, key=lambda value: (-counts[value], value)))
    more = f" and {len(loops) - NAMED:,} more" if len(loops) > NAMED else ""
    listed = "; ".join(f"--where {quoted(loop)}" for loop in loops[:NAMED])
    return loops, [
        f"{name!r} names {len(loops):,} loops; decide, certify and watch judge one at a time: {listed}{more}"
    ]


def is_counted(name: str, kind: str) -> bool:
    """Return whether a summary counts a column: it counts texts, metrics, signals and costs."""
    return name in _TEXT_LIKE or kind in ("signal", "metric", "cost")


def match_of_row(row: Mapping[str, Any], normalizer: str) -> float:
    """Return the metric `match` of a round; NaN if its exact match is unknown."""
    known = row.get("em")
    return math.nan if known is None or math.isnan(known) else match(row["answer"], row["golds"] or (), normalizer)


_WORDS = {
    "question_id": "id of the question",
    "golds": "right answer",
    "text": "reply",
    "uncached_tokens": "input tokens",
    "*": "costs",
}


def plain_words(name: str) -> str:
    """Describe a column of a recording in words.

    >>> [plain_words(name) for name in ("question_id", "cost.generator.output_tokens", "score (metric)", "model (label)")]
    ['id of the question', 'output tokens', 'score', 'model']
    """
    last = name.rpartition(".")[2] if name.startswith("cost.") else name
    plain = _WORDS.get(last, last.replace("_", " ") if last != name else name)
    return plain.replace(" (metric)", "" if plain.startswith("score ") else " (score)").replace(" (label)", "")
