"""Build the rows of a replay from the runs of policies and baselines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.comparisons import (
    difference_bounds,
)
from suffice.evaluation.replay.replayed_rows import Row, Spread
from suffice.evaluation.replay.rivals import Rival
from suffice.evaluation.replay.selected import tuned_on
from suffice.evaluation.replay.whole import Whole, cost_means
from suffice.evaluation.statistics import (
    ROUNDING,
    MarginTest,
    PairedResult,
)
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording


def companions(recording: Recording, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics; add EM and F1 if containment is one of them, since it favours long answers (SEMANTICS)."""
    if len(set(metrics)) != len(metrics):
        raise DataError(f"a metric is named twice: {list(metrics)!r}")
    beside = ("em", "f1") if "contains" in metrics else ()
    return (*metrics, *(name for name in beside if name not in metrics and name in recording.table.column_names))


def marked(run: Run, recording: Recording) -> Run:
    """Set a run's number of recorded questions that its policy was fitted or selected on."""
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
