"""What a gate could save at all: never, always and perfect, and where retrieval was needed or did harm."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

import numpy as np

from suffice.gates.bench import GateBench
from suffice.tables import Column, Table

__all__ = ["Headroom", "headroom", "headroom_table"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Headroom:
    """One metric of one set of questions; all in [0, 1].

    Attributes:
        never: Mean without retrieval.
        always: Mean with it.
        perfect: Mean of the better of both: the most that a gate can reach in this metric.
        needed: Share of questions whose metric retrieval raises.
        harmed: Share whose metric it lowers.
    """

    never: float
    always: float
    perfect: float
    needed: float
    harmed: float

    def to_dict(self) -> dict[str, float]:
        """Return JSON-ready values."""
        return asdict(self)


def headroom(bench: GateBench) -> dict[str, Headroom]:
    """Return the headroom by metric."""
    found = {}
    for name in bench.metrics:
        never, always = bench.never.values[name], bench.always.values[name]
        found[name] = Headroom(
            never=float(never.mean()),
            always=float(always.mean()),
            perfect=float(np.maximum(never, always).mean()),
            needed=float((always > never).mean()),
            harmed=float((always < never).mean()),
        )
    return found


def headroom_table(title: str, sets: Mapping[str, tuple[int, Mapping[str, Headroom]]]) -> Table:
    """Return the headroom of some sets of questions, by their name, with how many questions there are."""
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
            for label, (n, found) in sets.items()
            for metric, item in found.items()
        ),
        notes=("perfect gate: knows where retrieval helps, for each metric on its own",),
    )
