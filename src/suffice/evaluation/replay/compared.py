"""Compare runs with their baselines (differences, tests and margins on shared draws), and build a replay's rows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.replayed_rows import Row, Spread
from suffice.evaluation.replay.rivals import Rival
from suffice.evaluation.replay.selected import tuned_on
from suffice.evaluation.replay.whole import Whole, cost_means
from suffice.evaluation.statistics import (
    ROUNDING,
    Draws,
    MarginTest,
    PairedResult,
    Units,
)
from suffice.evaluation.statistics.hypotheses import sign_flip_test
from suffice.evaluation.statistics.paired import FEW_NONZERO, few_warning
from suffice.evaluation.statistics.units import difference
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

_INTERVAL_COSTS = ("calls", "tokens")
"""The costs whose differences have intervals."""


def paired_differences(
    runs: Sequence[Run], references: Sequence[Run], draws: Draws, *, n_policies: int, tests: bool = True
) -> list[dict[str, PairedResult]]:
    """Return the paired differences of each run: metrics with a test, calls and tokens only with intervals.

    Args:
        runs: All runs.
        references: The baseline of each run; every baseline is exact.
        draws: The draws that all comparisons share.
        n_policies: The first `n_policies` runs are those of the given policies.  They are the family of Holm's
            correction; a policy that is its own baseline is not part of the family.
        tests: Whether metrics are tested.
    """
    deltas: list[dict[str, PairedResult]] = [{} for _ in runs]
    own, base = [_varying(run) for run in runs], [_varying(run) for run in references]
    policies = {k for k in range(n_policies) if runs[k] is not references[k]}
    differences = {
        name: {k: difference(mine[name], other[name]) for k, (mine, other) in enumerate(zip(own, base, strict=True))}
        for name in base[0]
    }
    every = [row for rows in differences.values() for row in rows.values()]
    draws.anticipate([row for row in every if not np.isnan(row).any()])
    for name, rows in differences.items():
        family = policies if tests and name in references[0].worst else None
        for k, result in draws.compare(rows, family=family).items():
            deltas[k][name] = result
    twins = [k for k, both in enumerate(zip(runs, references, strict=True)) if any(one.estimated for one in both)]
    for k in twins:
        mine, other = _figures(runs[k]), _figures(references[k])
        deltas[k] = {
            name: _of_pairs(result, difference(mine[name], other[name]), draws.units)
            for name, result in deltas[k].items()
        }
    return deltas


def _of_pairs(result: PairedResult, differences: Floats, units: Units) -> PairedResult:
    """Recompute the mean and the number of differing units without the influence terms of a random twin.

    The influence terms (see `EstimatedShares.influence`) add up to 0 over all units.  In a single unit they are seldom
    exactly 0, so with them nearly every unit would count as differing.
    """
    sums = units.sums(differences)
    nonzero = int(np.count_nonzero(sums))
    few = nonzero < FEW_NONZERO
    return replace(
        result,
        delta=float(differences.mean()),
        n_nonzero=nonzero,
        p_exact=sign_flip_test(sums) if few else math.nan,
        warning=few_warning(nonzero, result.n_clusters) if few else "",
    )


def mean_differences(
    runs: Sequence[Run], references: Sequence[Run], units: Units, *, level: float
) -> list[dict[str, PairedResult]]:
    """Return the means of the paired differences, without intervals and tests; leave out unknown differences."""
    deltas = []
    for own, base in ((_figures(run), _figures(other)) for run, other in zip(runs, references, strict=True)):
        rows = {name: difference(values, base[name]) for name, values in own.items()}
        deltas.append(
            {name: _mean_difference(delta, units, level) for name, delta in rows.items() if not np.isnan(delta).any()}
        )
    return deltas


def _mean_difference(delta: Floats, units: Units, level: float) -> PairedResult:
    return PairedResult(
        delta=float(delta.mean()),
        low=math.nan,
        high=math.nan,
        level=level,
        n=units.n_rows,
        n_clusters=units.n_units,
        n_nonzero=int(np.count_nonzero(units.sums(delta[None])[0])),
        n_resamples=0,
    )


def margin_tests(
    run: Run, reference: Run, metrics: Sequence[str], margins: Sequence[float], draws: Draws
) -> tuple[MarginTest, ...]:
    """Test non-inferiority and equivalence of the first metric at each margin; empty if the metric is unknown.

    The shares of stops of a random twin are treated as known here, although they are estimated: the betting test needs
    differences in [-1, 1], and influence terms could exceed that range.
    """
    if not metrics or run is reference:
        return ()
    delta = difference(run.values[metrics[0]], reference.values[metrics[0]])
    if np.isnan(delta).any():
        return ()
    return tuple(test for pair in draws.margins(delta, margins) for test in pair)


def difference_bounds(run: Run, reference: Run) -> dict[str, tuple[float, float]]:
    """Return the lower and upper bound of each mean difference that is unknown because rounds never ran.

    The bounds are listed by metric and by cost; the upper bound of a cost is infinite.
    """
    if run.exact:
        return {}
    metrics = {
        name: (float((run.worst[name] - other).mean()), float((run.best[name] - other).mean()))
        for name, other in reference.worst.items()
    }
    costs = {
        name: (float((run.ledger.spent(name) - reference.ledger.spent(name)).mean()), math.inf)
        for name in _INTERVAL_COSTS
    }
    return {name: bounds for name, bounds in {**metrics, **costs}.items() if not math.isnan(bounds[0])}


def _varying(run: Run) -> dict[str, Floats]:
    """Return `_figures`; for a random twin, add each question's `EstimatedShares.influence`."""
    figures = _figures(run)
    if run.estimated is None:
        return figures
    return {name: values + run.estimated.influence(name) for name, values in figures.items()}


def _figures(run: Run) -> dict[str, Floats]:
    """Return the metrics and costs to compare, by name; NaN where unknown, as for rounds that never ran."""
    costs = {name: run.ledger.spent(name) for name in _INTERVAL_COSTS}
    return {**run.values, **{name: np.where(run.unrun, np.nan, values) for name, values in costs.items()}}


def companions(recording: Recording, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics; if one of them is containment, add EM and F1 where they were recorded.

    The reason is that containment favours long answers (SEMANTICS).
    """
    if len(set(metrics)) != len(metrics):
        raise DataError(f"a metric is named twice: {list(metrics)!r}")
    beside = ("em", "f1") if "contains" in metrics else ()
    return (*metrics, *(name for name in beside if name not in metrics and name in recording.table.column_names))


def marked(run: Run, recording: Recording) -> Run:
    """Set `n_selected`, the number of recorded questions that the run's policy was fitted or selected on."""
    return run if run.policy is None else replace(run, n_selected=tuned_on(run.policy, recording))


def labelled(policies: Sequence[Policy]) -> list[Policy]:
    """Give each policy a distinct label."""
    return [_relabelled(policy, policies[:position]) for position, policy in enumerate(policies)]


def _relabelled(policy: Policy, before: Sequence[Policy]) -> Policy:
    same = sum(other.label == policy.label for other in before)
    return policy if same == 0 else replace(policy, name=f"{policy.label} #{same + 1}")


def row_of(
    whole: Whole,
    run: Run,
    reference: Run,
    *,
    deltas: Mapping[str, PairedResult],
    tests: tuple[MarginTest, ...],
    rival: Rival,
) -> Row:
    """Build the row of a run."""
    notes = list(run.notes)
    unmeasured = [name for name, values in run.worst.items() if np.isnan(values).any()]
    if unmeasured:
        notes.append(f"no answer was recorded where this stops: {', '.join(unmeasured)} unknown")
    operational, recorded = cost_means(run.ledger), whole.recorded
    worst, best = ({name: float(values.mean()) for name, values in of.items()} for of in (run.worst, run.best))
    bounds = {} if run.exact else {name: (worst[name], best[name]) for name in worst if not math.isnan(worst[name])}
    return Row(
        label=run.label,
        kind=run.kind,
        rule="" if run.policy is None else str(run.policy.rule),
        selector=run.selector,
        baseline=reference.label,
        metrics={name: float(values.mean()) for name, values in run.values.items()},
        bounds=bounds,
        deltas=deltas,
        delta_bounds=difference_bounds(run, reference),
        margins=tests,
        calls=_spread(run.ledger.calls, *run.calls),
        costs=operational,
        components={
            component: {kind: float(values.mean()) for kind, values in kinds.items()}
            for component, kinds in run.ledger.costs.items()
        },
        evaluation={kind: recorded[kind] - operational[kind] for kind in recorded},
        stop_rounds=run.stop_rounds,
        reasons={reason: round(count) for reason, count in run.reasons.items()},
        n=whole.n,
        n_failed=whole.n_failed,
        n_censored=int(run.unrun.sum()),
        oracle_seen=run.oracle_seen or {},
        cheapest_match=rival.match,
        dominated_by=rival.dominating,
        mixture=rival.mixture,
        undecided=rival.undecided,
        selected_here=run.n_selected > 0,
        n_selected=run.n_selected,
        notes=tuple(dict.fromkeys([*notes, *([rival.mixed] if rival.mixed else [])])),
    )


def _spread(mean_of: Floats, values: Floats, weights: Floats) -> Spread:
    # Quantiles of a weighted sample: the value at which the cumulated weight reaches the share.
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    p50, p95 = (float(values[order[int(np.searchsorted(reached, share - ROUNDING))]]) for share in (0.5, 0.95))
    return Spread(mean=float(mean_of.mean()), p50=p50, p95=p95)
