"""What happened to an imported run's values, column by column and round by round."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.importers.base import ImportedRun
from suffice.policy.normalizers import MATCH, match
from suffice.recordings.schema import column_kind

__all__ = ["ColumnCount", "RoundMeans", "column_counts", "is_counted", "match_of_row", "round_means"]

_TEXT_LIKE = ("question", "answer", "golds", "text", "feedback", "embedding")
_SHOWN_METRICS = ("em", "f1", MATCH)

_Rows = Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnCount:
    """What happened to the values of one column.

    Attributes:
        name: The column.
        defined: Rounds in which it has a value.
        nulled: Rounds in which the file has a value and the recording none: infinite, or outside of the rounds in which
            the signal exists.
        clipped: Rounds in which a value was moved to the end of the signal's range.
        computed: Whether it was computed here, from answers and gold answers.
    """

    name: str
    defined: int
    nulled: int = 0
    clipped: int = 0
    computed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundMeans:
    """One round over all trajectories that have it.

    Attributes:
        round: The round.
        n: Trajectories that have it.
        scored: Of these, how many have a known exact match.
        em: Mean exact match, 0 to 1, where it is known; NaN where it never is.
        f1: Mean F1, likewise.
        match: Mean of the metric by the recording's normalizer, where that is not the one of question answering; else NaN.
    """

    round: int
    n: int
    scored: int
    em: float
    f1: float
    match: float = math.nan


def column_counts(run: ImportedRun, rows: _Rows) -> list[ColumnCount]:
    """Return a count for each column that holds texts, metrics, signals or costs; computed ones only where defined.

    Args:
        run: The run.
        rows: Its rows, from `ImportedRun.rows`.
    """
    signals_by_round = [item.signals for trajectory in run.trajectories for item in trajectory.rounds]
    signal_names = {name for signals in signals_by_round for name in signals}
    kinds = run.kinds()
    counts = []
    for name in dict.fromkeys(name for row in rows for name in row):
        kind = kinds.get(name) or column_kind(name)
        if not is_counted(name, kind):
            continue
        values = [row.get(name) for row in rows]
        defined = sum(value is not None and value != [] for value in values)
        if name in signal_names:
            known = [signals.get(name, math.nan) for signals in signals_by_round]
            pairs = [pair for pair in zip(known, values, strict=True) if not math.isnan(pair[0])]
            nulled = sum(value is None for _, value in pairs)
            clipped = sum(value is not None and value != before for before, value in pairs)
            counts.append(ColumnCount(name=name, defined=defined, nulled=nulled, clipped=clipped))
        elif defined:
            counts.append(ColumnCount(name=name, defined=defined, computed=kind == "signal"))
    return counts


def is_counted(name: str, kind: str) -> bool:
    """Return whether a summary has a line for a column: it holds texts, metrics, signals or costs."""
    return name in _TEXT_LIKE or kind in ("signal", "metric", "cost")


def match_of_row(row: Mapping[str, Any], normalizer: str) -> float:
    """Return the metric `match` of a round; NaN where its answer, and so its exact match, is unknown."""
    known = row.get("em")
    return math.nan if known is None or math.isnan(known) else match(row["answer"], row["golds"] or (), normalizer)


def round_means(rows: _Rows) -> list[RoundMeans]:
    """Return each round's number of trajectories and mean metrics."""
    by_round: dict[int, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_round.setdefault(row["round"], []).append(row)
    return [
        RoundMeans(
            round=r,
            n=len(own),
            scored=sum(row.get("em") is not None for row in own),
            **{name: _column_mean([row.get(name) for row in own]) for name in _SHOWN_METRICS},
        )
        for r, own in sorted(by_round.items())
    ]


def _column_mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return math.fsum(known) / len(known) if known else math.nan
