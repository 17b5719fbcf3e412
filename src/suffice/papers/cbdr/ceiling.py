"""The most a gate can gain: never, always and perfect retrieval, and the shares where retrieval helps or harms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from suffice.gates.evaluation import GateEvaluation
from suffice.tables import Column, Table

__all__ = ["Headroom", "headroom", "headroom_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One metric on one set of questions; all values in [0, 1].

    Attributes:
        never: Mean without retrieval.
        always: Mean with retrieval.
        perfect: Mean of the better of the two, an upper bound for any gate.
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
    """Return one row per metric of each named set, given as its number of questions and its headroom."""
    fields = ("never", "always", "perfect", "needed", "harmed")
    names = ("never", "always", "perfect gate", "retrieval needed", "retrieval harms")
    return Table(
        title=title,
        columns=(
            Column("questions"),
            Column("n", ",.0f"),
            Column("metric"),
            *(Column(name, ".1f", scale=100) for name in names),
        ),
        rows=tuple(
            (label, n, metric.upper(), *(getattr(item, field) for field in fields))
            for label, (n, by_metric) in sets.items()
            for metric, item in by_metric.items()
        ),
        notes=("perfect gate: knows where retrieval helps, for each metric on its own",),
    )
