"""Every policy against the full width, paired by question: differences, tests, margins, and Holm over the family."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from suffice.papers.semantic.data import Drafts
from suffice.papers.semantic.policies import CELLS, MAIN, Replayed
from suffice.rounds import Floats
from suffice.statistics import (
    MarginTest,
    Units,
    bootstrap_weights,
    cohens_d_z,
    equivalence,
    holm,
    non_inferiority,
    paired_results,
    paired_t_test,
    wilcoxon_test,
)

__all__ = ["Compared", "Difference", "Margin", "compare"]

_ROUNDING = 1e-12


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The mean paired difference of one quantity of one policy to the full width.

    Attributes:
        delta: Mean difference.
        low: Lower end of the bootstrap interval.
        high: Upper end.
        d_z: Cohen's d_z; NaN where the pairs do not vary.
        p_t: Two-sided p-value of the paired t test.
        p_t_holm: The same, adjusted over the family; NaN outside of it.
        p_wilcoxon: Two-sided p-value of Wilcoxon's signed-rank test.
        p_wilcoxon_holm: The same, adjusted over the family; NaN outside of it.
        n_nonzero: Units whose difference is not zero.
        p_exact: Exact sign-flip test where few pairs differ; NaN elsewhere.
        warning: What limits the interval and the t test; empty if nothing does.
    """

    delta: float
    low: float
    high: float
    d_z: float
    p_t: float
    p_t_holm: float
    p_wilcoxon: float
    p_wilcoxon_holm: float
    n_nonzero: int
    p_exact: float
    warning: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Non-inferiority and equivalence of quality at one margin, with p-values adjusted over the family.

    Attributes:
        non_inferior: The one-sided test: what the paper calls TOST.
        equivalent: Both sides: TOST.
        p_non_inferior: One-sided p-value of the t method, adjusted; NaN outside of the family.
        p_equivalent: The larger of the two, adjusted; NaN outside of the family.
    """

    non_inferior: MarginTest
    equivalent: MarginTest
    p_non_inferior: float
    p_equivalent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """All policies against the full width.

    Attributes:
        baseline: The label of the full width.
        family: The labels that Holm's correction counts: the fixed budgets below the full width, and of `MAIN` those that
            are not equal to another by construction.
        differences: By label, then quantity (the metric, `rounds`, `tokens` or `output tokens`); without those that are unknown.
        margins: By label, then margin.
        n_clusters: Units that were resampled.
        level: Nominal coverage of intervals, and one-sided confidence of the margins' bounds.
        n_resamples: Draws.
        seed: Of the draws.
    """

    baseline: str
    family: tuple[str, ...]
    differences: Mapping[str, Mapping[str, Difference]]
    margins: Mapping[str, Mapping[float, Margin]]
    n_clusters: int
    level: float
    n_resamples: int
    seed: int


def compare(
    drafts: Drafts,
    replayed: Replayed,
    *,
    margins: Sequence[float] = (0.01, 0.02, 0.05),
    n_resamples: int = 1000,
    seed: int = 42,
    level: float = 0.95,
) -> Compared:
    """Compare every run with the full width; every test is on the same draws.

    Args:
        drafts: The questions.
        replayed: The runs on them.
        margins: Of quality, for non-inferiority and equivalence.
        n_resamples: Bootstrap draws.
        seed: Of the draws.
        level: Nominal coverage of intervals, and one-sided confidence of the margins' bounds.
    """
    clusters = drafts.bench.recording.clusters
    units = Units.of(drafts.n, clusters)
    weights = bootstrap_weights(units.n_units, n_resamples, rng=seed)
    baseline = f"fixed_k({drafts.highest})"
    runs = replayed.runs
    family = _family(replayed, baseline)
    others = [label for label in runs if label != baseline]
    quantities: dict[str, Callable[[str], Floats]] = {
        drafts.metric: lambda label: runs[label].values[drafts.metric],
        "rounds": lambda label: replayed.rounds[label],
        replayed.tokens_name: replayed.spent,
    }
    found: dict[str, dict[str, Difference]] = {label: {} for label in others}
    for name, values in quantities.items():
        deltas = {label: _differ(values(label), values(baseline)) for label in others}
        known = {label: delta for label, delta in deltas.items() if not np.isnan(delta).any()}
        if known:
            made = _differences(known, family, weights=weights, clusters=clusters, level=level)
            for label, difference in made.items():
                found[label][name] = difference
    measured = quantities[drafts.metric]
    quality = {label: _differ(measured(label), measured(baseline)) for label in others}
    return Compared(
        baseline=baseline,
        family=family,
        differences=found,
        margins=_margins(quality, family, margins, weights=weights, clusters=clusters, level=level),
        n_clusters=units.n_units,
        level=level,
        n_resamples=n_resamples,
        seed=seed,
    )


def _family(replayed: Replayed, baseline: str) -> tuple[str, ...]:
    """Return what Holm's correction counts; policies that cannot differ are one, and none beside the baseline."""
    family = [label for label, run in replayed.runs.items() if run.kind == "fixed" and label != baseline]
    for label in (label for label in CELLS if label in MAIN and label in replayed.policies):
        if not {baseline, *family} & set(replayed.equal_by_construction(label)):
            family.append(label)
    return tuple(family)


def _differ(values: Floats, baseline: Floats) -> Floats:
    """Return the paired differences; an expectation that only rounding tells from the baseline does not differ."""
    delta = values - baseline
    return np.where(np.abs(delta) <= _ROUNDING * np.maximum(1.0, np.abs(baseline)), 0.0, delta)


def _differences(
    deltas: Mapping[str, Floats],
    family: Sequence[str],
    *,
    weights: Floats,
    clusters: npt.NDArray[np.object_],
    level: float,
) -> dict[str, Difference]:
    matrix = np.stack(list(deltas.values()))
    intervals = paired_results(matrix, weights, clusters=clusters, level=level)
    p_t = paired_t_test(matrix, clusters=clusters)
    p_wilcoxon = np.array([wilcoxon_test(row, clusters=clusters) for row in matrix])
    inside = np.array([label in family for label in deltas])
    t_holm, wilcoxon_holm = (holm(np.where(inside, p, np.nan)) for p in (p_t, p_wilcoxon))
    return {
        label: Difference(
            delta=interval.delta,
            low=interval.low,
            high=interval.high,
            d_z=cohens_d_z(matrix[k], clusters=clusters),
            p_t=float(p_t[k]),
            p_t_holm=float(t_holm[k]),
            p_wilcoxon=float(p_wilcoxon[k]),
            p_wilcoxon_holm=float(wilcoxon_holm[k]),
            n_nonzero=interval.n_nonzero,
            p_exact=interval.p_exact,
            warning=interval.warning,
        )
        for k, (label, interval) in enumerate(zip(deltas, intervals, strict=True))
    }


def _margins(
    deltas: Mapping[str, Floats],
    family: Sequence[str],
    margins: Sequence[float],
    *,
    weights: Floats,
    clusters: npt.NDArray[np.object_],
    level: float,
) -> dict[str, dict[float, Margin]]:
    found: dict[str, dict[float, Margin]] = {label: {} for label in deltas}
    for margin in margins:
        tests = {
            label: tuple(
                test(delta, margin, weights=weights, clusters=clusters, level=level)
                for test in (non_inferiority, equivalence)
            )
            for label, delta in deltas.items()
        }
        inside = np.array([label in family for label in tests])
        adjusted = [
            holm(np.where(inside, [pair[side].p for pair in tests.values()], np.nan)).tolist() for side in (0, 1)
        ]
        for k, (label, (one, both)) in enumerate(tests.items()):
            found[label][margin] = Margin(
                non_inferior=one, equivalent=both, p_non_inferior=adjusted[0][k], p_equivalent=adjusted[1][k]
            )
    return found
