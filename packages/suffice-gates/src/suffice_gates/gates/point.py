"""Quality and cost of one gate at one threshold, compared with random gates."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suffice.common.results import Result
from suffice.common.tables import Column, Table, figure
from suffice.evaluation.statistics import MarginTest, PairedResult

NEVER, ALWAYS, PERFECT = "never retrieve", "always retrieve", "perfect gate"
"""Names of the reference gates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GatePoint(Result):
    """One gate, at one threshold.

    Attributes:
        label: Name in reports.
        kind: `gate`, `random`, `never`, `always`, `perfect`, or `other` for always retrieving with another setup.
        beta: Its threshold; NaN if it has none.
        retrieval_rate: Share of questions that it retrieves for.
        metrics: Means over questions, by name.
        costs: Mean operational cost per question: calls, tokens, seconds, retrievals; NaN where unknown.
        against_always: Paired differences to always retrieving, by metric.
        against_random: Paired differences to the random gate at the same retrieval rate, by metric.
        p_random: Two-sided p-value of the first metric, against a random choice of equally many questions for direct
            answers. Read it instead of the interval if few questions are answered directly, or few with retrieval. NaN
            if it does not apply.
        margin: Result of the test of non-inferiority to always retrieving, in the first metric; None for always
            retrieving itself.
        label_blind_rate: The lowest retrieval rate at which never, always or a random gate has at least this quality;
            None if none of them reaches it.
        dominated_by: Name of the never, always or random gate that dominates this one, see
            `GateEvaluation.label_blind`; None if this gate is not dominated.
    """

    label: str
    kind: str
    beta: float
    retrieval_rate: float
    metrics: Mapping[str, float]
    costs: Mapping[str, float]
    against_always: Mapping[str, PairedResult]
    against_random: Mapping[str, PairedResult]
    p_random: float
    margin: MarginTest | None
    label_blind_rate: float | None
    dominated_by: str | None

    def headline(self, metric: str) -> str:
        """Summarise in one sentence the quality, its difference from always retrieving, the retrieval rate, and a label-blind gate of equal quality."""
        delta = self.against_always.get(metric)
        parts = [f"{metric} {figure(self.metrics[metric], '.1f', 100)}"]
        if delta is not None and self.kind != "always":
            parts[0] += f" ({figure(delta.triple, '+.1f', 100)} vs {ALWAYS})"
        parts.append(f"retrieves for {figure(self.retrieval_rate, '.1f', 100)} % of questions")
        if self.dominated_by is not None:
            parts.append(f"dominated by {self.dominated_by}")
        elif self.label_blind_rate is None:
            parts.append(f"no label-blind gate reaches this {metric}")
        else:
            parts.append(f"a label-blind gate needs {figure(self.label_blind_rate, '.1f', 100)} % for this {metric}")
        if self.margin is not None:
            doubt = "" if self.margin.shown else "not shown to be "
            parts.append(f"{doubt}non-inferior within {100 * self.margin.margin:g} points")
        return f"{self.label}: {'; '.join(parts)}"

    def table(self) -> Table:
        """Return a table with one row: quality, retrieval rate, differences and costs."""
        return points_table(self.label, [self], tuple(self.metrics))


def points_table(title: str, points: Sequence[GatePoint], metrics: Sequence[str]) -> Table:
    """Tabulate gates, or thresholds of one gate: quality, retrieval rate, differences, costs and verdict."""
    formats = {"calls": ",.2f", "tokens": ",.0f", "seconds": ",.3f"}
    kinds = [kind for kind in formats if any(math.isfinite(point.costs.get(kind, math.nan)) for point in points)]
    return Table(
        title=title,
        columns=(
            Column("gate"),
            Column("beta", ".4f"),
            *quality_columns(metrics),
            Column("p", ".3f"),
            *(Column(kind, formats[kind]) for kind in kinds),
            Column("verdict"),
        ),
        rows=tuple(
            (
                point.label,
                point.beta,
                *quality_of(point, metrics),
                point.p_random,
                *(point.costs.get(kind, math.nan) for kind in kinds),
                verdict(point),
            )
            for point in points
        ),
    )


def quality_columns(metrics: Sequence[str]) -> list[Column]:
    """Return the columns of quality, retrieval rate and differences to random gates."""
    first = metrics[0]
    return [
        *(Column(name.upper(), ".1f", scale=100) for name in metrics),
        Column("retrieves", ".1%"),
        Column(f"Δ{first} vs always", "+.1f", scale=100, interval=True),
        Column(f"Δ{first} vs random", "+.1f", scale=100),
    ]


def quality_of(point: GatePoint, metrics: Sequence[str]) -> list[Any]:
    """Return the values of `quality_columns`."""
    first = metrics[0]
    return [
        *(point.metrics[name] for name in metrics),
        point.retrieval_rate,
        None if point.kind == "always" else point.against_always[first].triple,
        point.against_random[first].delta if point.kind == "gate" else math.nan,
    ]


def verdict(point: GatePoint) -> str:
    """Return the verdict on a gate, such as "not dominated" or "dominated by never retrieve"; "" if the gate has no verdict."""
    if point.kind == "perfect":
        return "not reachable"
    if point.kind == "gate" and point.retrieval_rate in (0.0, 1.0):
        return f"the same as {ALWAYS if point.retrieval_rate else NEVER}"
    if point.dominated_by is not None:
        return f"dominated by {point.dominated_by}"
    return "not dominated" if point.kind == "gate" else ""
