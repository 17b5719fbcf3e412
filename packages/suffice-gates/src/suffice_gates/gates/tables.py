"""Gates as tables: the sweep over the threshold, what changes between thresholds, and gates side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from suffice.common.tables import Column, Table
from suffice_gates.gates.changes import Transitions
from suffice_gates.gates.compare import GateComparison, GatePrice
from suffice_gates.gates.point import ALWAYS, NEVER, GatePoint

__all__ = ["comparison_table", "examples_table", "knowledge_table", "points_table", "rates_table", "transitions_table"]

_ANSWER_WIDTH = 60
_RANDOM = (
    "random: the same share of questions, drawn blindly (exact expectation); p: how often decisions dealt out at random "
    "fall as far from it"
)


def points_table(title: str, points: Sequence[GatePoint], metrics: Sequence[str]) -> Table:
    """Return gates, or thresholds of one, with quality, retrieval rate, differences, costs and verdict."""
    formats = {"calls": ",.2f", "tokens": ",.0f", "seconds": ",.3f"}
    kinds = [kind for kind in formats if any(math.isfinite(point.costs.get(kind, math.nan)) for point in points)]
    return Table(
        title=title,
        columns=(
            Column("gate"),
            Column("beta", ".4f"),
            *_quality_columns(metrics),
            Column("p", ".3f"),
            *(Column(kind, formats[kind]) for kind in kinds),
            Column("verdict"),
        ),
        rows=tuple(
            (
                point.label,
                point.beta,
                *_quality(point, metrics),
                point.p_random,
                *(point.costs.get(kind, math.nan) for kind in kinds),
                verdict(point),
            )
            for point in points
        ),
    )


def _quality_columns(metrics: Sequence[str]) -> list[Column]:
    first = metrics[0]
    return [
        *(Column(name.upper(), ".1f", scale=100) for name in metrics),
        Column("retrieves", ".1%"),
        Column(f"Δ{first} vs always", "+.1f", scale=100, interval=True),
        Column(f"Δ{first} vs random", "+.1f", scale=100),
    ]


def _quality(point: GatePoint, metrics: Sequence[str]) -> list[Any]:
    """Return the values of `_quality_columns`."""
    first = metrics[0]
    return [
        *(point.metrics[name] for name in metrics),
        point.retrieval_rate,
        None if point.kind == "always" else point.against_always[first].triple,
        point.against_random[first].delta if point.kind == "gate" else math.nan,
    ]


def verdict(point: GatePoint) -> str:
    """Return whether a gate that knows nothing does as well with fewer retrievals, in words."""
    if point.kind == "perfect":
        return "not reachable"
    if point.kind == "gate" and point.retrieval_rate in (0.0, 1.0):
        return f"the same as {ALWAYS if point.retrieval_rate else NEVER}"
    if point.dominated_by is not None:
        return f"dominated by {point.dominated_by}"
    return "not dominated" if point.kind == "gate" else ""


def transitions_table(title: str, steps: Sequence[Transitions]) -> Table:
    """Return what each step to the next threshold changes: questions that gain, lose, and stay as they were."""
    return Table(
        title=title,
        columns=(
            Column("beta from", ".4f"),
            Column("to", ".4f"),
            Column("newly retrieved", ",.0f"),
            Column("wrong -> right", ",.0f"),
            Column("right -> wrong", ",.0f"),
            Column("unchanged", ",.0f"),
        ),
        rows=tuple(
            (s.low, s.high, len(s.gained) + len(s.lost) + s.same, len(s.gained), len(s.lost), s.same) for s in steps
        ),
        notes=("where the metric is graded, a rise counts as wrong -> right and a fall as right -> wrong",),
    )


def examples_table(title: str, steps: Sequence[Transitions], most: int = 3) -> Table:
    """Return the first questions that gain and lose by retrieval at each step."""
    rows = []
    for step in steps:
        for change, listed in (("wrong -> right", step.gained), ("right -> wrong", step.lost)):
            rows += [
                (change, item.question, _start_of(item.direct), _start_of(item.retrieved), item.question_id)
                for item in listed[:most]
            ]
    columns = (Column("change"), Column("question"), Column("without"), Column("with retrieval"), Column("id"))
    return Table(title=title, columns=columns, rows=tuple(rows))


def _start_of(answer: str | None) -> str:
    """Return an answer, or the start of a long one."""
    text = answer or "(none)"
    return text if len(text) <= _ANSWER_WIDTH else f"{text[:_ANSWER_WIDTH]} ..."


def comparison_table(comparison: GateComparison, title: str = "") -> Table:
    """Return gates side by side: quality, retrieval rate, what they know, online and offline cost."""
    metrics = comparison.metrics
    no_price = GatePrice(n_labels=math.nan, fit_seconds=math.nan, seconds=math.nan)
    rows = [
        (comparison.never, math.nan, no_price),
        (comparison.always, math.nan, no_price),
        *((row.point, row.p_holm, row.price) for row in comparison.rows),
        (comparison.perfect, math.nan, no_price),
    ]
    return Table(
        title=title or f"{comparison.n} questions; {comparison.resampling.text}",
        columns=(
            Column("gate"),
            *_quality_columns(metrics),
            Column("p (Holm)", ".3f"),
            Column("calls", ".2f"),
            Column("to decide, ms", ",.2f", scale=1000),
            Column("labels", ",.0f"),
            Column("fit, s", ",.1f"),
            Column("verdict"),
        ),
        rows=tuple(
            (
                point.label,
                *_quality(point, metrics),
                p_holm,
                point.costs["calls"] + price.calls,
                price.seconds,
                price.n_labels,
                price.fit_seconds,
                verdict(point),
            )
            for point, p_holm, price in rows
        ),
        notes=(comparison.chosen, _RANDOM),
    )


def knowledge_table(comparison: GateComparison) -> Table:
    """Return what the scores know: the areas under the ROC curve, the thresholds, and quality where they were chosen."""
    first = comparison.metrics[0]
    return Table(
        title="What the scores know: areas under the ROC curve (0.5 = nothing)",
        columns=(
            Column("gate"),
            Column("closed book right", ".2f", interval=True),
            Column("retrieval not needed", ".2f", interval=True),
            Column("beta", ".4f"),
            Column(f"{first.upper()} on tune", ".1f", scale=100),
            Column("retrieves on tune", ".1%"),
            Column("undefined", ",.0f"),
            Column("source"),
        ),
        rows=tuple(
            (
                row.name,
                (row.known.value, row.known.low, row.known.high),
                (row.not_needed.value, row.not_needed.low, row.not_needed.high),
                row.point.beta,
                math.nan if row.tune is None else row.tune.metrics[first],
                math.nan if row.tune is None else row.tune.retrieval_rate,
                row.n_undefined,
                row.source,
            )
            for row in comparison.rows
        ),
        notes=("figures on tune are selected there and flatter",) if any(row.tune for row in comparison.rows) else (),
    )


def rates_table(title: str, comparisons: Mapping[float, GateComparison]) -> Table:
    """Return gates at given retrieval rates against blind ones of the rate that they reach."""
    first = next(iter(comparisons.values())).metrics[0]
    return Table(
        title=title,
        columns=(
            Column("gate"),
            Column("rate asked", ".0%"),
            Column("retrieves", ".1%"),
            Column(first.upper(), ".1f", scale=100),
            Column("random gate", ".1f", scale=100),
            Column(f"Δ{first} vs random", "+.1f", scale=100, interval=True),
            Column("p (Holm)", ".3f"),
            Column("verdict"),
        ),
        rows=tuple(
            (
                row.name,
                rate,
                row.point.retrieval_rate,
                row.point.metrics[first],
                row.random.metrics[first],
                row.point.against_random[first].triple,
                row.p_holm,
                verdict(row.point),
            )
            for rate, comparison in comparisons.items()
            for row in comparison.rows
        ),
        notes=(_RANDOM,),
    )
