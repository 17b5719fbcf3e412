"""The runs of a replay against its baseline: paired differences, tests and margins, all on the same draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.replays.baselines import Run
from suffice.rounds import Floats
from suffice.statistics import (
    MarginTest,
    PairedResult,
    equivalence,
    holm,
    non_inferiority,
    paired_results,
    permutation_tests,
)

__all__ = ["Comparison", "difference_bounds"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """What every run is compared with, and how.

    Attributes:
        references: The baseline of each run, in the order of the runs; each is exact.
        clusters: The unit of each question, shape ``(n_questions,)``; None if each is its own.
        weights: The draws, from `bootstrap_weights`.
        level: Nominal coverage of intervals.
        interval: Their method, see `paired_bootstrap`.
        seed: Of random signs, where a test needs them; there are as many as draws.
    """

    references: Sequence[Run]
    clusters: npt.NDArray[np.object_] | None
    weights: Floats
    level: float
    interval: str
    seed: int

    def deltas(self, runs: Sequence[Run], n_policies: int) -> list[dict[str, PairedResult]]:
        """Return the paired differences of each run: every metric with its test, calls and tokens with intervals only.

        Args:
            runs: All runs.
            n_policies: How many of them, the first ones, are the policies given: the family of Holm's correction,
                less the one that is the baseline itself.
        """
        deltas: list[dict[str, PairedResult]] = [{} for _ in runs]
        own, base = [_quantities(run) for run in runs], [_quantities(run) for run in self.references]
        for name in base[0]:
            rows = [mine[name] - other[name] for mine, other in zip(own, base, strict=True)]
            known = [position for position, row in enumerate(rows) if not np.isnan(row).any()]
            if not known:
                continue
            matrix = np.stack([rows[position] for position in known])
            found = paired_results(matrix, self.weights, clusters=self.clusters, level=self.level, method=self.interval)
            if name in self.references[0].worst:
                family = [p < n_policies and runs[p] is not self.references[p] for p in known]
                found = self._tested(found, matrix, np.array(family))
            for position, result in zip(known, found, strict=True):
                deltas[position][name] = result
        return deltas

    def _tested(
        self, found: Sequence[PairedResult], matrix: Floats, family: npt.NDArray[np.bool_]
    ) -> list[PairedResult]:
        tests = permutation_tests(matrix, n_resamples=len(self.weights), rng=self.seed, clusters=self.clusters)
        adjusted = holm(np.where(family, [test.p for test in tests], np.nan))
        return [
            replace(result, p=test.p, p_holm=float(p_holm), test=test.test)
            for result, test, p_holm in zip(found, tests, adjusted, strict=True)
        ]

    def margins(
        self, run: Run, reference: Run, metrics: Sequence[str], margins: Sequence[float]
    ) -> tuple[MarginTest, ...]:
        """Return non-inferiority and equivalence of the first metric at each margin; none where it is unknown."""
        if not metrics or run is reference:
            return ()
        difference = run.values[metrics[0]] - reference.values[metrics[0]]
        if np.isnan(difference).any():
            return ()
        how: dict[str, Any] = {"weights": self.weights, "clusters": self.clusters, "level": self.level}
        return tuple(test(difference, margin, **how) for margin in margins for test in (non_inferiority, equivalence))


def difference_bounds(run: Run, reference: Run) -> dict[str, tuple[float, float]]:
    """Return the worst and the best mean difference of what is unknown of a run, by name; of costs only the worst."""
    if run.exact:
        return {}
    metrics = {
        name: (float((run.worst[name] - other).mean()), float((run.best[name] - other).mean()))
        for name, other in reference.worst.items()
    }
    costs = {
        name: (float((mine - other).mean()), math.inf)
        for name, mine, other in (
            ("calls", run.ledger.calls, reference.ledger.calls),
            ("tokens", run.ledger.total("tokens"), reference.ledger.total("tokens")),
        )
    }
    return {name: bounds for name, bounds in {**metrics, **costs}.items() if not math.isnan(bounds[0])}


def _quantities(run: Run) -> dict[str, Floats]:
    """Return what differences are taken of; NaN where unknown, as the costs of rounds that never ran are."""
    costs = {"calls": run.ledger.calls, "tokens": run.ledger.total("tokens")}
    if not run.exact:
        costs = {name: np.where(run.unrun, np.nan, values) for name, values in costs.items()}
    return {**run.values, **costs}
