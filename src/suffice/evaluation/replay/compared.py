"""Comparison of replayed policies with every baseline; intervals are only computed when they are asked for."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.comparisons import (
    difference_bounds,
    margin_tests,
    mean_differences,
    paired_differences,
)
from suffice.evaluation.replay.orders import order_note
from suffice.evaluation.replay.references import refuse_unmeasured, selector_names, selectors_in_use, with_references
from suffice.evaluation.replay.replayed_rows import Row, Spread
from suffice.evaluation.replay.result import ReplayResult
from suffice.evaluation.replay.rivals import Rival, check_cost, find_rivals
from suffice.evaluation.replay.selected import Selected, tuned_on
from suffice.evaluation.replay.whole import Whole, cost_means
from suffice.evaluation.statistics import (
    ROUNDING,
    Draws,
    MarginTest,
    PairedResult,
    Resampling,
    Units,
    undefined_notes,
)
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording


@dataclass(frozen=True, slots=True, kw_only=True)
class Replayed:
    """The runs of some policies and of the baselines beside them, on the same questions.

    Attributes:
        policies: The runs of the policies.
        twins: Their random twins.
        others: Every baseline but fixed budgets.
        fixed: The fixed budgets, each with the name of its selector.
    """

    policies: Sequence[Run]
    twins: Sequence[Run]
    others: Sequence[Run]
    fixed: Sequence[Run]


class Comparison(ABC):
    """Questions, metrics, resampling and criteria that all rows of a replay share.

    Attributes:
        metrics: The metrics; the first one is the quality.
        resampling, margins, cost, ledger: See `replay`.
        data_hash: Hash of the recording.
    """

    metrics: tuple[str, ...]
    resampling: Resampling
    margins: tuple[float, ...]
    cost: str
    ledger: str
    data_hash: str

    @property
    @abstractmethod
    def whole(self) -> Whole:
        """All questions."""

    @cached_property
    def draws(self) -> Draws:
        """The bootstrap draws that all comparisons share."""
        return self.resampling.draws(self.whole.clusters)

    @cached_property
    def units(self) -> Units:
        """The units of resampling: questions, or their clusters."""
        return Units.of(self.whole.n, self.whole.clusters)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Notes on the recording, for every replay of it."""
        return (*self.whole.notes, *undefined_notes(len(set(self.whole.clusters)), self.resampling.n_resamples))

    def compared(
        self,
        policies: Sequence[Policy],
        replayed: Replayed,
        baseline: str | Policy | None,
        *,
        notes: Mapping[str, tuple[str, ...]],
        run_of: Callable[[Policy, str], Run],
        selected: Selected,
        n_orders: int = 1,
    ) -> ComparedRuns:
        """Return the runs in the order of the table, each with its baseline.

        Args:
            policies: The policies.
            replayed: Their runs, and those of the baselines.
            baseline: See `replay`.
            notes: Notes on each policy, by its label.
            run_of: Replays a baseline that has no run yet.
            selected: Questions that something was fitted on.
            n_orders: Number of orders that figures are means over.
        """
        selectors, own = selectors_in_use(policies), selector_names(policies)
        for run in replayed.policies:
            refuse_unmeasured(self.whole, run, self.metrics)
        runs, references = with_references(
            self.whole,
            [
                *(
                    replace(run, selector=name, notes=run.notes + notes[run.label])
                    for run, name in zip(replayed.policies, own, strict=True)
                ),
                *(replace(run, selector=name) for run, name in zip(replayed.twins, own, strict=True)),
                *(run for run in replayed.others if run.kind != "oracle"),
                *replayed.fixed,
                *(run for run in replayed.others if run.kind == "oracle"),
            ],
            selectors,
            baseline=baseline,
            metrics=self.metrics,
            run_of=run_of,
        )
        check_cost(runs, self.cost)
        return ComparedRuns(
            replayer=self,
            policies=tuple(policies),
            runs=tuple(runs),
            references=tuple(references),
            rivals=tuple(find_rivals(runs, runs, self.metrics, self.cost)),
            selected=selected,
            n_orders=n_orders,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Replayed policies and baselines with means, costs and stops, before intervals are computed.

    Attributes:
        replayer: The settings that all rows share.
        policies: The policies.
        runs: The runs of the policies, in their order, then those of the baselines.
        references: The run that each is compared with.
        rivals: For each run, the cheaper fixed_k or random run that does as well.
        selected: Questions that something was fitted on.
        n_orders: Number of orders that figures are means over.
    """

    replayer: Comparison
    policies: tuple[Policy, ...]
    runs: tuple[Run, ...]
    references: tuple[Run, ...]
    rivals: tuple[Rival, ...]
    selected: Selected
    n_orders: int

    def result(self, *, intervals: bool = True, tests: bool = True) -> ReplayResult:
        """Return the result.

        Args:
            intervals: Whether to compute intervals of differences, which takes most of the time; without them their
                ends are NaN.
            tests: Whether to test differences and margins; only with intervals.
        """
        replayer, metrics = self.replayer, self.replayer.metrics
        whole = replayer.whole
        resampling = replayer.resampling
        if intervals:
            deltas = paired_differences(
                self.runs, self.references, replayer.draws, n_policies=len(self.policies), tests=tests
            )
        else:
            resampling = replace(resampling, n_resamples=0)
            deltas = mean_differences(self.runs, self.references, replayer.units, level=resampling.level)
        rows = [
            _row(
                whole,
                run,
                other,
                deltas=differences,
                tests=margin_tests(run, other, metrics, replayer.margins, replayer.draws)
                if intervals and tests
                else (),
                rival=rival,
            )
            for run, other, differences, rival in zip(self.runs, self.references, deltas, self.rivals, strict=True)
        ]
        return ReplayResult(
            rows=tuple(rows),
            metrics=metrics,
            baseline=self.references[0].label,
            n=whole.n,
            n_clusters=replayer.units.n_units,
            n_failed=whole.n_failed,
            resampling=resampling,
            cost=replayer.cost,
            ledger=replayer.ledger,
            data_hash=replayer.data_hash,
            notes=(
                *([order_note(self.n_orders, resampling.seed)] if self.n_orders > 1 else ()),
                *replayer.notes,
                *self.selected.notes,
            ),
        )


def companions(recording: Recording, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics, with EM and F1 added beside containment, which favours long answers (SEMANTICS)."""
    if len(set(metrics)) != len(metrics):
        raise DataError(f"a metric is named twice: {list(metrics)!r}")
    beside = ("em", "f1") if "contains" in metrics else ()
    return (*metrics, *(name for name in beside if name not in metrics and name in recording.table.column_names))


def marked(run: Run, recording: Recording) -> Run:
    """Return a run with the number of recorded questions that its policy was fitted or selected on."""
    return run if run.policy is None else replace(run, n_selected=tuned_on(run.policy, recording))


def labelled(policies: Sequence[Policy]) -> list[Policy]:
    """Return the policies with distinct labels."""
    return [_relabelled(policy, policies[:position]) for position, policy in enumerate(policies)]


def _relabelled(policy: Policy, before: Sequence[Policy]) -> Policy:
    same = sum(other.label == policy.label for other in before)
    return policy if same == 0 else replace(policy, name=f"{policy.label} #{same + 1}")


def _row(
    whole: Whole,
    run: Run,
    reference: Run,
    *,
    deltas: Mapping[str, PairedResult],
    tests: tuple[MarginTest, ...],
    rival: Rival,
) -> Row:
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
        reasons=dict(run.reasons),
        n=whole.n,
        n_failed=whole.n_failed,
        n_censored=int(run.unrun.sum()),
        oracle_seen=run.oracle_seen or {},
        cheapest_match=rival.match,
        dominated_by=rival.dominating,
        undecided=rival.undecided,
        selected_here=run.n_selected > 0,
        n_selected=run.n_selected,
        notes=tuple(notes),
    )


def _spread(mean_of: Floats, values: Floats, weights: Floats) -> Spread:
    # Quantiles of a weighted sample: the value at which the cumulated weight reaches the share.
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    p50, p95 = (float(values[order[int(np.searchsorted(reached, share - ROUNDING))]]) for share in (0.5, 0.95))
    return Spread(mean=float(mean_of.mean()), p50=p50, p95=p95)
