"""By type of question: what a policy gains or loses on each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.replays.baselines import Run
from suffice.results import Result
from suffice.statistics import PairedResult, Resampling
from suffice.tables import Column, Table

__all__ = ["ByType", "TypeRow", "by_type"]

UNKNOWN = "(none)"


@dataclass(frozen=True, slots=True, kw_only=True)
class TypeRow:
    """One type of question.

    Attributes:
        type: Its name; ``all`` for every question.
        n: Questions.
        quality: Mean of the metric under the policy.
        baseline: The same under the baseline.
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
        rows: One for each type, the most frequent first, and all together last.
        policy: What is judged.
        baseline: What it is compared with.
        metric: The quality.
        column: Where the types stand in the recording.
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
        return Table(
            title=f"{self.policy} against {self.baseline} by {self.column}",
            columns=(
                Column("type"),
                Column("questions", ",.0f"),
                Column(name, ".1f", scale=100),
                Column(f"{name} of {self.baseline}", ".1f", scale=100),
                Column(f"Δ{self.metric}", "+.1f", scale=100, interval=True),
                Column("calls", ".2f"),
                Column("Δcalls", "+.2f", interval=True),
            ),
            rows=tuple(
                (
                    row.type,
                    row.n,
                    row.quality,
                    row.baseline,
                    (row.delta.delta, row.delta.low, row.delta.high),
                    row.calls,
                    (row.delta_calls.delta, row.delta_calls.low, row.delta_calls.high),
                )
                for row in self.rows
            ),
            notes=("intervals of each type alone, not corrected for the number of types", *notes),
        )


def by_type(
    run: Run,
    reference: Run,
    types: Sequence[str | None],
    *,
    metric: str,
    clusters: npt.NDArray[Any],
    column: str = "question_type",
    resampling: Resampling = Resampling(),
) -> ByType:
    """Compare two runs on each type of question, and on all.

    Args:
        run: The policy.
        reference: The baseline, on the same questions.
        types: The type of each question; None = unknown.
        metric: The quality, measured in both runs.
        clusters: The unit of each question.
        column: What the types are called.
        resampling: How intervals are made, within each type.
    """
    named = np.array([UNKNOWN if kind is None else str(kind) for kind in types], dtype=object)
    kinds, counts = np.unique(named, return_counts=True)
    order = [str(kinds[i]) for i in np.lexsort((kinds, -counts))]
    masks = {kind: np.asarray(named == kind, dtype=np.bool_) for kind in order}
    masks["all"] = np.ones(len(named), dtype=np.bool_)
    rows = []
    for kind, mask in masks.items():
        draws = resampling.draws(int(mask.sum()), clusters[mask])
        rows.append(
            TypeRow(
                type=kind,
                n=int(mask.sum()),
                quality=float(run.values[metric][mask].mean()),
                baseline=float(reference.values[metric][mask].mean()),
                calls=float(run.ledger.calls[mask].mean()),
                delta=draws.paired((run.values[metric] - reference.values[metric])[mask]),
                delta_calls=draws.paired((run.ledger.calls - reference.ledger.calls)[mask]),
            )
        )
    return ByType(rows=tuple(rows), policy=run.label, baseline=reference.label, metric=metric, column=column)
