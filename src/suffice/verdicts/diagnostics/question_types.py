"""The gain or loss of a policy, for each type of question."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from suffice.common.results import Result
from suffice.common.tables import Column, Table
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.statistics import PairedResult, Resampling

UNKNOWN = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """One type of question.

    Attributes:
        type: Name of the type; ``all`` for all questions.
        n: Number of questions.
        quality: Mean of the metric under the policy.
        baseline: Mean of the metric under the baseline.
        calls: Mean calls of the policy.
        delta: Paired difference of the metric to the baseline.
        delta_calls: Paired difference of calls.
    """

    type: str
    n: int
    quality: float
    baseline: float
    calls: float
    delta: PairedResult
    delta_calls: PairedResult


@dataclass(frozen=True, slots=True, kw_only=True)
class ByType(Result):
    """A policy against a baseline on each type of question.

    Attributes:
        rows: One row for each type, the most frequent type first; the last row is for all questions.
        policy: The label of the policy.
        baseline: The label of the baseline.
        metric: The quality.
        column: The column of types.
    """

    rows: tuple[TypeRow, ...]
    policy: str
    baseline: str
    metric: str
    column: str

    def table(self) -> Table:
        """Return quality, calls and paired differences by type."""
        name = self.metric.upper()
        notes = [
            f"{row.type}: {row.delta.warning}: p = {row.delta.p_exact:.3f}" for row in self.rows if row.delta.warning
        ]
        return Table.of(
            f"{self.policy} against {self.baseline} by {self.column}",
            self.rows,
            {
                Column("type"): "type",
                Column("questions", ",.0f"): "n",
                Column(name, ".1f", scale=100): "quality",
                Column(f"{name} of {self.baseline}", ".1f", scale=100): "baseline",
                Column(f"Δ{self.metric}", "+.1f", scale=100, interval=True): "delta.triple",
                Column("calls", ".2f"): "calls",
                Column("Δcalls", "+.2f", interval=True): "delta_calls.triple",
            },
            notes=("intervals of each type alone, not corrected for the number of types", *notes),
        )


def by_type(
    prepared: PreparedRecording,
    run: Run,
    reference: Run,
    *,
    metric: str,
    column: str = "question_type",
    resampling: Resampling = Resampling(),
) -> ByType:
    """Compare two runs on each type of question, and on all questions.

    Args:
        prepared: The recording of both runs.
        run: The policy.
        reference: The baseline.
        metric: The quality, measured in both runs.
        column: The column of types.
        resampling: Settings of the intervals, within each type.
    """
    recording = prepared.recording
    types = recording.per_question(column, []).tolist()
    named = np.array([UNKNOWN if kind is None else str(kind) for kind in types], dtype=object)
    kinds, counts = np.unique(named, return_counts=True)
    masks = {str(kinds[i]): np.asarray(named == kinds[i], dtype=np.bool_) for i in np.lexsort((kinds, -counts))}
    masks["all"] = np.ones(len(named), dtype=np.bool_)
    ours, theirs, calls = run.values[metric], reference.values[metric], run.ledger.calls
    rows = []
    for kind, mask in masks.items():
        draws = resampling.draws(recording.clusters[mask])
        rows.append(
            TypeRow(
                type=kind,
                n=int(mask.sum()),
                quality=float(ours[mask].mean()),
                baseline=float(theirs[mask].mean()),
                calls=float(calls[mask].mean()),
                delta=draws.paired((ours - theirs)[mask]),
                delta_calls=draws.paired((calls - reference.ledger.calls)[mask]),
            )
        )
    return ByType(rows=tuple(rows), policy=run.label, baseline=reference.label, metric=metric, column=column)
