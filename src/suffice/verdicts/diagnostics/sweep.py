"""Vary one threshold of a policy over its whole range, and report quality and costs, the Pareto front and its knee."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from suffice.common.display import Chart
from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.replay import even_thresholds
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.charts import (
    COST_TITLES,
    axis_of,
    by_state,
    chart_of,
    front_layer,
    point_layer,
)
from suffice.evaluation.replay.front import pareto_front
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.sweep import region_of, regions
from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rounds import Floats
from suffice.policy.rules import Threshold
from suffice.policy.session import Policy

_POINT_COLOURS = {"its own value": "var(--good)", "Pareto front": "var(--accent)", "other thresholds": "var(--muted)"}
"""The kinds of points in a sweep, with their colours."""

MOST_EXACT = 60
"""Up to this many distinct outcomes of a sweep are all shown; above, those of evenly spaced thresholds."""
_QUALITY_DIGITS = 12  # sums in another order differ in the last bits


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPoint:
    """The outcome of an interval of thresholds, within which the outcome of every question stays the same.

    Attributes:
        low: Lower end of the interval; -inf if no lower threshold changes the outcome.
        high: Upper end of the interval; inf if no higher threshold changes the outcome.
        value: A threshold in the interval; if the policy's own threshold lies there, that one.
        quality: Mean of the metric. All figures are NaN if a question needs rounds that never ran because a rule had
            stopped it.
        calls: Mean calls.
        tokens: Mean tokens; NaN where unknown.
        early: Share of questions that stop before their last recorded round.
        own: Whether the policy's own threshold lies in the interval.
        on_front: Whether the point lies on the Pareto front: no other point has at least this quality for at most these
            calls, and is better in one of the two.
        knee: Whether this is the knee of the front.
    """

    low: float
    high: float
    value: float
    quality: float
    calls: float
    tokens: float
    early: float
    own: bool
    on_front: bool
    knee: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdSweep(Result):
    """The outcomes of a policy on a recording as one of its thresholds varies.

    Attributes:
        policy: The policy that is varied.
        literal: The threshold that is varied.
        comparison: The operator of the comparison. With ``>`` and ``<=``, each interval of thresholds includes its
            lower end, otherwise its upper end.
        metric: The quality.
        n: Number of questions.
        n_outcomes: Number of different outcomes over all thresholds.
        points: All outcomes in ascending order of the threshold; if there are too many, only the outcomes of evenly
            spaced thresholds.
    """

    policy: str
    literal: str
    comparison: str
    metric: str
    n: int
    n_outcomes: int
    points: tuple[SweepPoint, ...]

    @property
    def front(self) -> tuple[SweepPoint, ...]:
        """The points on the Pareto front, cheapest first."""
        return tuple(sorted((point for point in self.points if point.on_front), key=lambda point: point.calls))

    @property
    def knee(self) -> SweepPoint | None:
        """The knee of the front; None if the front has fewer than three points."""
        return next((point for point in self.points if point.knee), None)

    def plot(self) -> Chart:
        """Return the chart of quality against calls as the threshold moves."""
        return sweep_chart(self)

    def table(self) -> Table:
        """Return the outcome of each interval of thresholds."""
        notes = ["every value is scored on these questions: one chosen here is selected here, so test it on others"]
        if len(self.points) < self.n_outcomes:
            notes.append(
                f"{len(self.points)} of {self.n_outcomes:,} different outcomes are shown, at evenly spaced thresholds"
            )
        unknown = sum(math.isnan(p.quality) for p in self.points)
        if unknown:
            notes.append(
                f"censored: {unknown} of {len(self.points)} outcomes need rounds that never ran because a rule ended the "
                "recording, so they are unknown and not on the front"
            )
        if self.knee is None:
            notes.append("no knee: the front has fewer than three points")
        closed = self.comparison in (">", "<=")
        marks = {"own": "own", "front": "on_front", "knee": "knee"}
        return Table.of(
            f"{self.policy}: the threshold of {self.literal} moved, {self.n:,} questions",
            self.points,
            {
                Column("thresholds that do the same"): lambda p: _interval_text(p.low, p.high, closed=closed),
                Column(self.metric.upper(), ".1f", scale=100): "quality",
                Column("calls", ".2f"): "calls",
                Column("tokens", ",.0f"): "tokens",
                Column("stop early", ".0%"): "early",
                Column("mark"): lambda p: ", ".join(word for word, name in marks.items() if getattr(p, name)),
            },
            notes,
        )


def stack_outcomes(runs: Sequence[Run]) -> dict[str, Floats]:
    """Return the outcomes of several runs by name, each of shape ``(n_questions, n_runs)``.

    The outcomes are the metrics, `calls`, `tokens`, `seconds` and `money`; NaN where unknown.
    """
    columns = {name: [run.values[name] for run in runs] for name in runs[0].values}
    columns["calls"] = [run.ledger.calls for run in runs]
    columns |= {kind: [run.ledger.total(kind) for run in runs] for kind in ("tokens", "seconds")}
    columns["money"] = [run.ledger.money for run in runs]
    return {name: np.stack(values, axis=1) for name, values in columns.items()}


def _changes(values: Floats, tables: Sequence[npt.NDArray[Any]]) -> Floats:
    """Return the values of the signal at which the outcome of some question changes, ascending.

    Args:
        values: The signal at each question's rounds, ascending, NaN last, shape ``(n_questions, n_rounds)``.
        tables: Outcomes without NaN, each of shape ``(n_questions, n_rounds + 1)``. Column j holds the outcome of a
            question for thresholds above exactly j of its values.
    """
    each, others = values[:, :, None], values[:, None, :]
    # A question is in region j if j of its values lie below the threshold; compare just below and just above each
    # value.
    before, after = (others < each).sum(axis=-1), (others <= each).sum(axis=-1)  # equal values are passed at once
    rows = np.arange(len(values))[:, None]
    differs = np.zeros(values.shape, dtype=np.bool_)
    for table in tables:
        differs |= table[rows, before] != table[rows, after]
    return np.unique(values[differs & np.isfinite(values)])


def sweep_threshold(
    prepared: PreparedRecording, policy: Policy, literal: Threshold, *, metric: str = "f1"
) -> ThresholdSweep:
    """Return quality and costs for each value of the threshold `literal`, with the Pareto front and its knee.

    Args:
        prepared: The recording.
        policy: The policy that is varied.
        literal: One of the thresholds of its rule.
        metric: The quality, one of the metrics of `prepared`.
    """
    moved = regions(prepared, policy, literal)
    stacked = stack_outcomes([run for run, _ in moved.runs])
    positions = np.stack([stopped.position for _, stopped in moved.runs], axis=1)
    last = moved.runs[0][1].view.seen.sum(axis=1, keepdims=True) - 1
    tables = {
        "quality": stacked[metric],
        "calls": stacked["calls"],
        "tokens": stacked["tokens"],
        "early": positions < last,
    }
    changes = _changes(moved.values, [positions, tables["calls"], np.nan_to_num(tables["tokens"], nan=-1.0)])
    edges = np.concatenate([[-np.inf], changes, [np.inf]])
    shown = np.arange(len(edges) - 1)
    side: Literal["left", "right"] = "right" if moved.closed else "left"
    if len(shown) > MOST_EXACT:
        even = np.append(even_thresholds(moved.values), literal.value)
        shown = np.unique(np.searchsorted(changes, even, side=side))
    own = int(np.searchsorted(changes, literal.value, side=side))
    rows = np.arange(len(moved.values))
    points = []
    for place in shown.tolist():
        low, high = float(edges[place]), float(edges[place + 1])
        value = literal.value if place == own else _within(low, high)
        region = region_of(moved.values, value, closed=moved.closed)
        means = {name: float(table[rows, region].mean()) for name, table in tables.items()}
        points.append(
            SweepPoint(low=low, high=high, value=value, **means, own=place == own, on_front=False, knee=False)
        )
    return ThresholdSweep(
        policy=policy.label,
        literal=str(literal),
        comparison=literal.comparison,
        metric=metric,
        n=len(rows),
        n_outcomes=len(edges) - 1,
        points=_marked(points),
    )


def _marked(points: list[SweepPoint]) -> tuple[SweepPoint, ...]:
    quality, calls = np.array([p.quality for p in points]), np.array([p.calls for p in points])
    front, knee = _front(quality, calls), pareto_knee(quality, calls)
    marked = (replace(p, on_front=i in front, knee=i == knee) for i, p in enumerate(points))
    return tuple(  # if an outcome is unknown, only part of its rounds was recorded, so its costs are unknown too
        replace(p, calls=math.nan, tokens=math.nan, early=math.nan) if math.isnan(p.quality) else p for p in marked
    )


def _interval_text(low: float, high: float, *, closed: bool) -> str:
    """Return an interval as text; it includes its lower end if `closed`, otherwise its upper end."""
    left = "[" if closed and math.isfinite(low) else "("
    right = "]" if not closed and math.isfinite(high) else ")"
    return f"{left}{low:.4g}, {high:.4g}{right}"


def _within(low: float, high: float) -> float:
    """Return a threshold strictly between two ends, so that it does not matter which end the interval includes."""
    if math.isinf(low):
        return high - max(1.0, abs(high)) if math.isfinite(high) else 0.0
    return low + max(1.0, abs(low)) if math.isinf(high) else low + (high - low) / 2


def _front(quality: Floats, calls: Floats) -> list[int]:
    rounded = np.round(quality, _QUALITY_DIGITS)
    held = np.flatnonzero(pareto_front(rounded, calls))
    _, first = np.unique(calls[held], return_index=True)  # sorts by calls, and drops points equal to an earlier one
    return [int(i) for i in held[first]]


def pareto_knee(quality: Floats, calls: Floats) -> int | None:
    """Return the position of the point where the front bends most; None if the front has fewer than three points.

    Both axes of the front are scaled to [0, 1]. The knee is the point farthest above the straight line between the ends
    of the front; beyond the knee a further call buys less quality than on average.  Source: Satopää et al., "Finding a
    kneedle in a haystack" (2011), without its smoothing.  If no point lies above the line, there is no knee, and the
    result is None.

    >>> import numpy as np
    >>> pareto_knee(np.array([0.3, 0.55, 0.6]), np.array([1.0, 2.0, 5.0]))
    1
    """
    front = _front(quality, calls)
    if len(front) < 3:  # noqa: PLR2004
        return None
    x, y = calls[front], quality[front]
    above = (y - y[0]) / (y[-1] - y[0]) - (x - x[0]) / (x[-1] - x[0])
    place = int(np.argmax(above))
    return front[place] if above[place] > ROUNDING else None


def sweep_chart(sweep: ThresholdSweep) -> Chart:
    """Chart quality (in points) against calls as a threshold varies; unknown outcomes are left out."""
    data = [
        {
            "threshold": point.value,
            "quality": 100 * point.quality,
            "calls": point.calls,
            "front": point.on_front,
            "kind": "its own value" if point.own else "Pareto front" if point.on_front else "other thresholds",
        }
        for point in sweep.points
        if not math.isnan(point.quality)
    ]
    x, y = axis_of("calls", COST_TITLES["calls"]), axis_of("quality", f"{sweep.metric.upper()}, points")
    colour, legend = by_state("kind", _POINT_COLOURS, data)
    tooltip = [
        {"field": "threshold", "format": ".4~f"},
        {"field": "quality", "title": sweep.metric.upper(), "format": ".1f"},
        {"field": "calls", "format": ".2f"},
    ]
    encoding = {"x": x, "y": y, "color": colour, "tooltip": tooltip}
    layers = [front_layer(x, y, "calls"), point_layer(encoding, "datum.kind === 'its own value'", (200, 50))]
    return Chart(chart_of(data, layers, 300, f"{sweep.metric.upper()} against calls as {sweep.literal} moves", legend))
