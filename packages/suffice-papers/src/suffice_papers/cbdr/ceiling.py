"""The largest possible gain of a gate.

It follows from the quality of never, always and perfect retrieval.  The shares of questions that retrieval helps and
harms are measured, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.common.tables import Column, Table
from suffice_gates.gates.evaluation import GateEvaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One metric on one set of questions; all values in [0, 1].

    Attributes:
        never: Mean without retrieval.
        always: Mean with retrieval.
        perfect: Mean of the better value for each question, an upper bound for any gate.
        needed: Share of questions whose metric retrieval raises.
        harmed: Share of questions whose metric retrieval lowers.
    """

    never: float
    always: float
    perfect: float
    needed: float
    harmed: float


def headroom(evaluation: GateEvaluation) -> dict[str, Headroom]:
    """Measure the headroom of each metric of a gate evaluation."""
    result = {}
    for name in evaluation.metrics:
        never, always = evaluation.never.values[name], evaluation.always.values[name]
        result[name] = Headroom(
            never=float(never.mean()),
            always=float(always.mean()),
            perfect=float(np.maximum(never, always).mean()),
            needed=float((always > never).mean()),
            harmed=float((always < never).mean()),
        )
    return result


def headroom_table(title: str, sets: Mapping[str, tuple[int, Mapping[str, Headroom]]]) -> Table:
    """Tabulate the headroom of each set and metric.

    `sets` contains the number of questions and the headroom by metric, for each set.
    """
    return Table.of(
        title,
        [(label, n, metric, room) for label, (n, by_metric) in sets.items() for metric, room in by_metric.items()],
        {
            Column("questions"): lambda row: row[0],
            Column("n", ",.0f"): lambda row: row[1],
            Column("metric"): lambda row: row[2].upper(),
            Column("never", ".1f", scale=100): lambda row: row[3].never,
            Column("always", ".1f", scale=100): lambda row: row[3].always,
            Column("perfect gate", ".1f", scale=100): lambda row: row[3].perfect,
            Column("retrieval needed", ".1f", scale=100): lambda row: row[3].needed,
            Column("retrieval harms", ".1f", scale=100): lambda row: row[3].harmed,
        },
        ("perfect gate: knows where retrieval helps, for each metric on its own",),
    )
