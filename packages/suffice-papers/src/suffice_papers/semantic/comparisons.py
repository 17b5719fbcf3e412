"""Paired comparisons of every policy with the full width: differences, tests and margins, with Holm's correction."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np

from suffice.evaluation.statistics import (
    ROUNDING,
    Draws,
    MarginTest,
    PairedResult,
    Resampling,
    cohens_d_z,
    holm_within,
)
from suffice.policy.rounds import Floats
from suffice_papers.multinomial import draws_by_place
from suffice_papers.paired_tests import paired_t_test, wilcoxon_test
from suffice_papers.semantic.policies import CELLS, MAIN, Replayed


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyDifference(PairedResult):
    """The mean paired difference of one quantity between a policy and the full width; `p` is from the paired t test.

    Attributes:
        d_z: Cohen's d_z; NaN if the pairs do not vary.
        p_wilcoxon: Two-sided p-value of Wilcoxon's signed-rank test.
        p_wilcoxon_holm: `p_wilcoxon` adjusted over the family; NaN outside the family.
    """

    d_z: float
    p_wilcoxon: float
    p_wilcoxon_holm: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Margin:
    """Tests of non-inferiority and equivalence of quality at one margin, with p-values adjusted over the family.

    Attributes:
        non_inferior: The one-sided test, which the paper calls TOST.
        equivalent: The test of both sides (TOST).
        p_non_inferior: One-sided p-value of the t method, adjusted; NaN outside the family.
        p_equivalent: The larger of the two one-sided p-values of TOST, adjusted; NaN outside the family.
    """

    non_inferior: MarginTest
    equivalent: MarginTest
    p_non_inferior: float
    p_equivalent: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyComparison:
    """All policies against the full width.

    Attributes:
        replayed: The policies.
        family: Labels of the policies that Holm's correction counts: the fixed budgets below the full width, and the
            policies of `MAIN` that are not equal to another policy by construction.
        differences: Differences by label and quantity (the metric, `rounds`, `tokens` or `output tokens`); unknown
            differences are left out.
        margins: Tests of non-inferiority and equivalence, by label and margin.
        n_clusters: Number of resampled clusters.
        resampling: Settings of the intervals; its level is also the one-sided confidence of the margins' bounds.
    """

    replayed: Replayed
    family: tuple[str, ...]
    differences: Mapping[str, Mapping[str, PolicyDifference]]
    margins: Mapping[str, Mapping[float, Margin]]
    n_clusters: int
    resampling: Resampling

    @property
    def baseline(self) -> str:
        """The label of the full width."""
        return self.replayed.baseline

    def quality(self, label: str) -> PolicyDifference | None:
        """Return the difference in quality between a policy and the full width; None for the full width itself."""
        return self.differences.get(label, {}).get(self.replayed.drafts.metric)

    def saved(self, label: str) -> tuple[float, float, float] | None:
        """Return the share of the full width's tokens that a policy saves, with interval; None if unknown."""
        tokens = self.differences.get(label, {}).get(self.replayed.tokens_name)
        whole = float(self.replayed.spent(self.baseline).mean())
        if tokens is None or not whole > 0:
            return None
        return 0.0 - tokens.delta / whole, 0.0 - tokens.high / whole, 0.0 - tokens.low / whole


def compare(
    replayed: Replayed,
    *,
    margins: Sequence[float] = (0.01, 0.02, 0.05),
    resampling: Resampling = Resampling(),
) -> PolicyComparison:
    """Compare every policy with the full width, on the same resamples for all policies.

    Args:
        replayed: The policies.
        margins: Margins of quality, for non-inferiority and equivalence.
        resampling: Settings of the intervals; its level is also the one-sided confidence of the margins' bounds.
    """
    drafts, runs, baseline = replayed.drafts, replayed.runs, replayed.baseline
    draws = draws_by_place(resampling, drafts.n, drafts.prepared.recording.clusters)
    family = _policy_family(replayed)
    quantities: dict[str, Callable[[str], Floats]] = {
        drafts.metric: lambda label: runs[label].values[drafts.metric],
        "rounds": lambda label: replayed.rounds[label],
        replayed.tokens_name: replayed.spent,
    }
    deltas = {
        name: {label: _differ(values(label), values(baseline)) for label in runs if label != baseline}
        for name, values in quantities.items()
    }
    differences: dict[str, dict[str, PolicyDifference]] = {label: {} for label in runs if label != baseline}
    for name, by_label in deltas.items():
        for label, difference in _tested_differences(by_label, family, draws).items():
            differences[label][name] = difference
    return PolicyComparison(
        replayed=replayed,
        family=family,
        differences=differences,
        margins=_margin_tests(deltas[drafts.metric], family, margins, draws),
        n_clusters=draws.units.n_units,
        resampling=resampling,
    )


def _policy_family(replayed: Replayed) -> tuple[str, ...]:
    """Return the labels that Holm's correction counts: equal policies once, and no policy that equals the baseline."""
    family = [label for label, run in replayed.runs.items() if run.kind == "fixed" and label != replayed.baseline]
    for label in (label for label in CELLS if label in MAIN and label in replayed.policies):
        if not {replayed.baseline, *family} & set(replayed.equal_by_construction(label)):
            family.append(label)
    return tuple(family)


def _differ(values: Floats, baseline: Floats) -> Floats:
    """Return the paired differences; differences within rounding errors become 0."""
    delta = values - baseline
    return np.where(np.abs(delta) <= ROUNDING * np.maximum(1.0, np.abs(baseline)), 0.0, delta)


def _tested_differences(
    deltas: Mapping[str, Floats], family: Sequence[str], draws: Draws
) -> dict[str, PolicyDifference]:
    """Test those differences that are known for every question; return the results by label."""
    clusters, results = draws.clusters, draws.compare(deltas)
    p_t = {label: float(paired_t_test(deltas[label], clusters=clusters)[0]) for label in results}
    p_wilcoxon = {label: wilcoxon_test(deltas[label], clusters=clusters) for label in results}
    p_t_holm, p_wilcoxon_holm = holm_within(p_t, family), holm_within(p_wilcoxon, family)
    return {
        label: PolicyDifference(
            **asdict(replace(result, p=p_t[label], p_holm=p_t_holm[label], test="paired t")),
            d_z=cohens_d_z(deltas[label], clusters=clusters),
            p_wilcoxon=p_wilcoxon[label],
            p_wilcoxon_holm=p_wilcoxon_holm[label],
        )
        for label, result in results.items()
    }


def _margin_tests(
    deltas: Mapping[str, Floats], family: Sequence[str], margins: Sequence[float], draws: Draws
) -> dict[str, dict[float, Margin]]:
    tests = {label: dict(zip(margins, draws.margins(delta, margins), strict=True)) for label, delta in deltas.items()}
    adjusted = {
        margin: [
            holm_within({label: pairs[margin][side].p for label, pairs in tests.items()}, family) for side in (0, 1)
        ]
        for margin in margins
    }
    return {
        label: {
            margin: Margin(
                non_inferior=one,
                equivalent=both,
                p_non_inferior=adjusted[margin][0][label],
                p_equivalent=adjusted[margin][1][label],
            )
            for margin, (one, both) in pairs.items()
        }
        for label, pairs in tests.items()
    }
