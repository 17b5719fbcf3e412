"""Measures of how well a reranker puts preferred before rejected passages: P@K, R@K and MRR@K (CBDR, table 1)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.errors import DataError
from suffice.evaluation.statistics import PairedResult, Resampling, permutation_tests
from suffice.policy.rounds import Floats
from suffice_gates.training.preference_file import Preference


def precision_at(relevant: Sequence[bool], k: int) -> float:
    """Return the share of relevant items among the first `k` ranks; missing items count as irrelevant.

    >>> precision_at([True, False, True], 3), precision_at([True], 5)
    (0.6666666666666666, 0.2)

    Args:
        relevant: True for each relevant item, best rank first.
        k: The depth, at least 1.

    Raises:
        DataError: `k` is below 1.
    """
    return sum(relevant[: _depth(k)]) / k


def recall_at(relevant: Sequence[bool], k: int) -> float:
    """Return the share of all relevant items that are in the first `k` ranks; NaN where none is relevant.

    >>> recall_at([True, False, True, True], 3)
    0.6666666666666666
    """
    return sum(relevant[: _depth(k)]) / sum(relevant) if any(relevant) else math.nan


def reciprocal_rank_at(relevant: Sequence[bool], k: int) -> float:
    """Return one over the rank of the first relevant item; 0 if none is among the first `k`.

    >>> reciprocal_rank_at([False, True], 3), reciprocal_rank_at([False, True], 1)
    (0.5, 0.0)
    """
    return next((1 / rank for rank, found in enumerate(relevant[: _depth(k)], start=1) if found), 0.0)


def _depth(k: int) -> int:
    if k < 1:
        raise DataError(f"k is {k!r}; allowed is 1 or more")
    return k


DEPTHS = (1, 3, 5)
_RANK_METRICS = {"P": precision_at, "R": recall_at, "MRR": reciprocal_rank_at}
NAMES = tuple(f"{name}@{k}" for k in DEPTHS for name in _RANK_METRICS)
"""The rows of `rank_metrics`, in the order of the paper's table 1."""

ScorePairs = Callable[[list[tuple[str, str]]], Any]
"""Maps pairs of query and passage to one number each."""


def relevance_by_rank(scores: Sequence[float], relevant: Sequence[bool]) -> list[bool]:
    """Return the items' relevance in the order of descending scores; among equal scores, irrelevant items come first.

    A scorer that gives all items the same score thus gets the worst rank, whatever the order of the file.

    >>> relevance_by_rank([0.1, 0.9, 0.9], [True, True, False])
    [False, True, True]
    """
    order = sorted(range(len(relevant)), key=lambda i: (-scores[i], relevant[i]))
    return [relevant[i] for i in order]


def rank_metrics(preferences: Sequence[Preference], score: ScorePairs) -> Floats:
    """Return P@K, R@K and MRR@K of each question, shape ``(len(NAMES), n_questions)``, in [0, 1].

    The passages of a question are its positives, which count as relevant, and its negatives.

    >>> one = Preference(query="?", pos=("long one", "x"), neg=("short",))
    >>> longest_first = rank_metrics([one], lambda pairs: [len(text) for _, text in pairs])
    >>> {name: round(float(value), 2) for name, value in zip(NAMES, longest_first[:, 0])}
    {'P@1': 1.0, 'R@1': 0.5, 'MRR@1': 1.0, 'P@3': 0.67, 'R@3': 1.0, 'MRR@3': 1.0, 'P@5': 0.4, 'R@5': 1.0, 'MRR@5': 1.0}

    Raises:
        DataError: There are no questions, or the scores are not one finite number for each pair.
    """
    pairs = [(item.query, text) for item in preferences for text in (*item.pos, *item.neg)]
    if not pairs:
        raise DataError("cannot rank: the preference file contains no questions")
    scores = np.asarray(score(pairs), dtype=np.float64).ravel()
    if len(scores) != len(pairs) or not np.isfinite(scores).all():
        raise DataError(
            f"{len(scores)} scores, {int(np.isfinite(scores).sum())} of them finite, for {len(pairs)} pairs: a reranker "
            "must return one finite number per pair"
        )
    values = np.empty((len(NAMES), len(preferences)))
    start = 0
    for column, item in enumerate(preferences):
        relevant = [True] * len(item.pos) + [False] * len(item.neg)
        order = relevance_by_rank(scores[start : start + len(relevant)].tolist(), relevant)
        values[:, column] = [metric(order, k) for k in DEPTHS for metric in _RANK_METRICS.values()]
        start += len(relevant)
    return values


@dataclass(frozen=True, slots=True, kw_only=True)
class RankingReport(Result):
    """The metrics of two rerankers on the same questions.

    Attributes:
        names: The metrics.
        before: Mean and interval of the first reranker, for each metric.
        after: Mean and interval of the second reranker, for each metric.
        differences: Paired differences, second minus first, with the p of a paired permutation test.
        n: Number of questions.
    """

    names: tuple[str, ...]
    before: tuple[tuple[float, float, float], ...]
    after: tuple[tuple[float, float, float], ...]
    differences: tuple[PairedResult, ...]
    n: int

    def table(self, title: str = "ranking what the model prefers, per cent") -> Table:
        """Return the report as a table."""
        rows = tuple(
            (name, before, after, (paired.delta, paired.low, paired.high), paired.p)
            for name, before, after, paired in zip(self.names, self.before, self.after, self.differences, strict=True)
        )
        columns = (
            Column("metric"),
            Column("before", ".2f", scale=100, interval=True),
            Column("after", ".2f", scale=100, interval=True),
            Column("difference", "+.2f", scale=100, interval=True),
            Column("p", ".4f"),
        )
        fewest = min(self.differences, key=lambda paired: paired.n_nonzero)
        level = f"{fewest.level:.0%} bootstrap intervals over {self.n} questions; p of a paired permutation test, each by itself"
        return Table(
            title=title, columns=columns, rows=rows, notes=(level, fewest.warning) if fewest.warning else (level,)
        )

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        parts = zip(self.names, self.before, self.after, self.differences, strict=True)
        keys = ("value", "low", "high")
        return {
            "questions": self.n,
            "metrics": {
                name: {
                    "before": dict(zip(keys, before, strict=True)),
                    "after": dict(zip(keys, after, strict=True)),
                    "difference": paired.to_dict(),
                }
                for name, before, after, paired in parts
            },
        }


def compare_rankings(
    before: Floats,
    after: Floats,
    *,
    resampling: Resampling,
    names: Sequence[str] = NAMES,
    clusters: Sequence[str] | None = None,
) -> RankingReport:
    """Compare two rerankers question by question, with the same resamples for every metric.

    Args:
        before: Values from `rank_metrics`, shape ``(len(names), n_questions)``.
        after: Values of the other reranker, on the same questions in the same order.
        resampling: Settings of the bootstrap and the permutation test.
        names: The metrics.
        clusters: Name of each question's resampling unit; the name determines the draws of the unit. None if each
            question is a unit, whose position determines its draws.

    Raises:
        DataError: The shapes differ, or a value is undefined.
    """
    if before.shape != after.shape or len(before) != len(names):
        raise DataError(
            f"metrics of shapes {before.shape} and {after.shape} for {len(names)} names: both need one row per name and the same questions"
        )
    draws = resampling.draws(range(before.shape[1]) if clusters is None else clusters)
    summaries = []
    for values in (before, after):
        means = draws.intervals(values)
        summaries.append(tuple(zip(means.delta.tolist(), means.low.tolist(), means.high.tolist(), strict=True)))
    paired = draws.compare(dict(zip(names, after - before, strict=True))).values()
    tests = permutation_tests(after - before, rng=resampling.seed, clusters=draws.clusters, keys=draws.keys)
    return RankingReport(
        names=tuple(names),
        before=summaries[0],
        after=summaries[1],
        differences=tuple(replace(d, p=t.p, test=t.test) for d, t in zip(paired, tests, strict=True)),
        n=before.shape[1],
    )
