"""Everything that a recording tells about its signals, calibrators and stops, in one value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from suffice.replay import policy_for
from suffice.replay.evaluate import drop_failed
from suffice.rules import Rule
from suffice.session import Policy
from suffice.store.recording import Recording
from suffice.tables import Table

__all__ = ["Diagnosis", "Part", "diagnose"]


class Part(Protocol):
    """One diagnostic: numbers that print as tables."""

    def tables(self) -> list[Table]:
        """Return the tables of this part."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnosis:
    """The diagnostics of one recording.

    Attributes:
        parts: By name, in the order of the report: `signals`, `correlations`, `drift`, `calibration`, `sweep`, `types`,
            `premature`, `floor`, `cells`; those whose inputs are missing are left out.
        metric: What counts as right.
        n: Questions.
        n_rounds: Recorded rounds of all questions.
        data_hash: Of the recording.
        notes: What is missing and why, and what a reader must know.
    """

    parts: Mapping[str, Part]
    metric: str
    n: int
    n_rounds: int
    data_hash: str
    notes: tuple[str, ...] = ()

    def tables(self) -> list[Table]:
        """Return the tables of all parts, in order."""
        return [table for part in self.parts.values() for table in part.tables()]

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values; NaN becomes None."""
        return {
            "metric": self.metric,
            "n": self.n,
            "n_rounds": self.n_rounds,
            "data_hash": self.data_hash,
            "notes": list(self.notes),
            **{name: part.to_dict() for name, part in self.parts.items()},
        }


def diagnose(
    recording: Recording,
    *,
    policy: Policy | Rule | str | None = None,
    tune: Recording | None = None,
    cells: Mapping[str, Recording] | None = None,
    metric: str = "em",
    baseline: str = "fixed_k(3)",
    level: float = 0.95,
    n_resamples: int = 1000,
    seed: int = 42,
) -> Diagnosis:
    """Diagnose a recording: its signals, and with a policy or a tune recording its calibrators and stops.

    Args:
        recording: Recorded rounds.
        policy: Whose stops to look into; a rule or its text stands for a policy with the recording's own settings.
        tune: The recording that calibrators are fitted on and that drift is measured from.
        cells: Other recordings by name, other models or corpora.
        metric: What counts as right: `em`, a threshold such as ``f1 > 0.5``, or a column of 0 and 1.
        baseline: What differences of quality are taken against, as in `replay`.
        level: Nominal coverage of intervals.
        n_resamples: Bootstrap draws.
        seed: Of the draws.
    """
    del tune, cells, baseline, level, n_resamples, seed
    kept, n_failed = drop_failed(recording)
    if policy is not None and not isinstance(policy, Policy):
        policy = policy_for(kept, policy)
    notes = [f"{n_failed} questions failed while recording and are left out"] if n_failed else []
    return Diagnosis(
        parts={},
        metric=metric,
        n=len(kept.question_ids),
        n_rounds=int(kept.seen.sum()),
        data_hash=recording.data_hash,
        notes=tuple(notes),
    )
