"""Count defined, removed, clipped and computed values of an import, by column and by round."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from suffice.policy.normalizers import match

_TEXT_LIKE = ("question", "answer", "golds", "text", "feedback", "embedding")


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCount:
    """Counts of what an import did with the values of one column.

    Attributes:
        name: The column.
        defined: Rounds in which it has a value.
        nulled: Rounds whose value was removed: it was infinite, or the signal cannot exist in this round.
        clipped: Rounds in which a value was moved to the end of the signal's range.
        computed: True if it was computed here, from answers and gold answers.
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
    """One round over all trajectories that have it.

    Attributes:
        round: The round.
        n: Trajectories that have it.
        scored: Number of these with a known exact match.
        em: Mean exact match, 0 to 1, where it is known; NaN where it never is.
        f1: Mean F1, like `em`.
        match: Mean of the metric of the recording's normalizer; NaN if that is the one of question answering.
        answered: Share of the trajectories that have an answer in the round.
        distinct: Mean number of distinct answers of a trajectory up to the round.
        scores: Means of the log's own metrics, by name.
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


def is_counted(name: str, kind: str) -> bool:
    """Return whether a summary has a line for a column, which holds texts, metrics, signals or costs."""
    return name in _TEXT_LIKE or kind in ("signal", "metric", "cost")


def match_of_row(row: Mapping[str, Any], normalizer: str) -> float:
    """Return the metric `match` of a round; NaN where its answer, and so its exact match, is unknown."""
    known = row.get("em")
    return math.nan if known is None or math.isnan(known) else match(row["answer"], row["golds"] or (), normalizer)
