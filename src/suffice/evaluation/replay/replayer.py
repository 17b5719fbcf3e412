"""Many replays of one recording: what does not depend on the policies is computed once, intervals when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from suffice.common.tables import counted
from suffice.errors import DataError
from suffice.evaluation.replay.baselines import Run
from suffice.evaluation.replay.by_stop import run_all
from suffice.evaluation.replay.charging import LIVE
from suffice.evaluation.replay.checks import check_policy, policy_for
from suffice.evaluation.replay.comparisons import (
    difference_bounds,
    margin_tests,
    mean_differences,
    paired_differences,
)
from suffice.evaluation.replay.costs import TOKEN_KINDS, Ledger
from suffice.evaluation.replay.orders import mean_runs, n_orders, order_note
from suffice.evaluation.replay.outcomes import agreement_note, choice_notes, default_metrics, is_agreement
from suffice.evaluation.replay.panels import best_single_note
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.references import (
    baseline_runs,
    fixed_policies,
    refuse_unmeasured,
    selector_names,
    selectors_in_use,
    with_references,
)
from suffice.evaluation.replay.result import ReplayResult, Row, Spread
from suffice.evaluation.replay.rivals import Rival, check_cost, find_rivals
from suffice.evaluation.replay.selected import dividing_names, selected_on, tuned_on
from suffice.evaluation.statistics import (
    ROUNDING,
    Draws,
    MarginTest,
    PairedResult,
    Resampling,
    Units,
    undefined_notes,
)
from suffice.policy.rounds import COST_KINDS, Floats
from suffice.policy.rules import Rule
from suffice.policy.session import Policy
from suffice.recordings.recording import Recording

__all__ = ["ComparedRuns", "Replayer"]


class Replayer:
    """A recording on which policies are replayed again and again: metrics, baselines and draws are kept.

    `replay` is one comparison of a new one; for the arguments, and what they raise, see there.

    >>> from suffice.recordings import bundled_recording
    >>> replayer = Replayer(bundled_recording("self_refine_dv3"), metrics=["target_sentiment"])
    >>> for eps in (0.03, 0.06):
    ...     print(replayer.compare(f"semantic({eps})").result().headline(f"semantic({eps})"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.6, +1.1] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)
    semantic(0.06): target_sentiment 97.8 (+0.0 [-1.5, +1.5] vs fixed_k(3)); 6.49 calls; dominated by fixed_k(2)

    Attributes:
        prepared: The recording without its failed questions.
        metrics: The metrics, the one that quality means first.
        resampling, margins, cost, ledger, data_hash: See `replay`.
    """

    def __init__(
        self,
        recording: Recording,
        *,
        metrics: str | Sequence[str] | None = None,
        resampling: Resampling = Resampling(),
        prices: Price | Mapping[str, Price] | None = None,
        margins: Sequence[float] = (0.02,),
        cost: str = "calls",
        ledger: str = LIVE.name,
        orders: int | None = None,
        wave: int | None = None,
    ) -> None:
        prepared = PreparedRecording.of(recording, prices=prices, ledger=ledger, samples=True, wave=wave)
        metrics = [metrics] if isinstance(metrics, str) else metrics
        complete = prepared.recording
        self.metrics = _companions(complete, default_metrics(complete) if metrics is None else metrics)
        self.prepared = prepared.with_metrics(self.metrics)
        self.resampling, self.margins, self.cost, self.ledger = resampling, tuple(margins), cost, ledger
        self.data_hash = recording.data_hash
        self._orders = orders
        self._runs: list[tuple[Policy, str, Run]] = []
        self._others: list[tuple[tuple[dict[str, Policy], int], list[Run]]] = []

    def compare(
        self,
        policies: Policy | Rule | str | Sequence[Policy | Rule | str],
        baseline: str | Policy | None = None,
        *,
        check: Callable[[], None] = lambda: None,
    ) -> ComparedRuns:
        """Replay policies beside every baseline.

        Args:
            policies: See `replay`, also for what is raised.
            baseline: Likewise.
            check: Called now and then; what it raises ends the comparison.
        """
        prepared, metrics, complete = self.prepared, self.metrics, self.prepared.recording
        items = [policies] if isinstance(policies, str | Rule | Policy) else policies
        replayed = [item if isinstance(item, Policy) else policy_for(complete, item, name=str(item)) for item in items]
        replayed = [_relabelled(policy, replayed[:position]) for position, policy in enumerate(replayed)]
        notes = {policy.label: check_policy(policy, complete) for policy in replayed}
        selectors = selectors_in_use(replayed)
        n = n_orders(complete, self._orders, replayed)
        fixed = fixed_policies(prepared, selectors)
        missing = [policy for _, policy in fixed if self._run_of(policy, "fixed") is None]
        kinds = ["rule"] * len(replayed) + ["fixed"] * len(missing)
        check()
        runs, twins = run_all(
            prepared,
            [*replayed, *missing],
            n,
            self.resampling.seed,
            kinds=kinds,
            twinned=range(len(replayed)),
            each=lambda _: check(),
        )
        self._runs += zip(missing, kinds[len(replayed) :], runs[len(replayed) :], strict=True)
        runs = runs[: len(replayed)]
        for run in runs:
            refuse_unmeasured(prepared, run, metrics)
        check()
        others = self._other_baselines(replayed, selectors, n)
        own = selector_names(replayed)
        runs, references = with_references(
            prepared,
            [
                *(
                    replace(run, selector=name, notes=run.notes + notes[run.label])
                    for run, name in zip(runs, own, strict=True)
                ),
                *(replace(twins[place], selector=name) for place, name in enumerate(own)),
                *(run for run in others if run.kind != "oracle"),
                *(replace(self._run(policy, "fixed", n), selector=name) for name, policy in fixed),
                *(run for run in others if run.kind == "oracle"),
            ],
            selectors,
            baseline=baseline,
            metrics=metrics,
            run_of=lambda policy, kind: self._run(policy, kind, n),
        )
        check_cost(runs, self.cost)
        return ComparedRuns(
            replayer=self,
            policies=tuple(replayed),
            runs=tuple(runs),
            references=tuple(references),
            rivals=tuple(find_rivals(runs, runs, metrics, self.cost)),
            n_orders=n,
        )

    def _run_of(self, policy: Policy, kind: str) -> Run | None:
        return next((run for other, of, run in self._runs if of == kind and other == policy), None)

    def _run(self, policy: Policy, kind: str, n: int) -> Run:
        """Return the run of a baseline, replayed once."""
        run = self._run_of(policy, kind)
        if run is None:
            run = run_all(self.prepared, [policy], n, self.resampling.seed, kinds=[kind])[0][0]
            self._runs.append((policy, kind, run))
        return run

    def _other_baselines(self, policies: Sequence[Policy], selectors: dict[str, Policy], n: int) -> list[Run]:
        """Return every baseline but fixed budgets; they depend on how policies answer and where they start."""
        key = (selectors, min((policy.start_round for policy in policies), default=1))
        for other, runs in self._others:
            if other == key:
                return runs

        def runs_of(prepared: PreparedRecording) -> list[Run]:
            return baseline_runs(prepared, policies, selectors, self.metrics)

        runs = mean_runs(self.prepared, n, self.resampling.seed, runs_of)
        self._others.append((key, runs))
        return runs

    @cached_property
    def units(self) -> Units:
        """What is resampled: questions, or their clusters."""
        return Units.of(self.prepared.n, self.prepared.recording.clusters)

    @cached_property
    def draws(self) -> Draws:
        """The draws on which everything is compared."""
        return self.prepared.draws(self.resampling)

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """What a reader of any replay of this recording must know."""
        return _replay_notes(self.prepared, self.metrics, self.resampling.n_resamples)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedRuns:
    """Policies that were replayed beside every baseline: means, costs and stops are known, intervals follow.

    Attributes:
        replayer: What replayed them.
        policies: The policies.
        runs: The runs of the policies, in their order, then those of the baselines.
        references: The run that each is compared with.
        rivals: What does as well as each for less.
        n_orders: Over how many orders figures are means.
    """

    replayer: Replayer
    policies: tuple[Policy, ...]
    runs: tuple[Run, ...]
    references: tuple[Run, ...]
    rivals: tuple[Rival, ...]
    n_orders: int

    def result(self, *, intervals: bool = True, tests: bool = True) -> ReplayResult:
        """Return the result.

        Args:
            intervals: Whether differences have intervals, which take most of the time; without them their ends are NaN.
            tests: Whether differences and margins are tested; only with intervals.
        """
        replayer, metrics = self.replayer, self.replayer.metrics
        prepared = replayer.prepared
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
                prepared,
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
            n=prepared.n,
            n_clusters=replayer.units.n_units,
            n_failed=prepared.n_failed,
            resampling=resampling,
            cost=replayer.cost,
            ledger=replayer.ledger,
            data_hash=replayer.data_hash,
            notes=(
                *([order_note(self.n_orders, resampling.seed)] if self.n_orders > 1 else ()),
                *replayer.notes,
                *selected_on(self.policies, prepared.recording).notes,
            ),
        )


def _companions(recording: Recording, metrics: Sequence[str]) -> tuple[str, ...]:
    """Return the metrics; containment favours long answers and is never reported without EM and F1 (SEMANTICS)."""
    if len(set(metrics)) != len(metrics):
        raise DataError(f"a metric is named twice: {list(metrics)!r}")
    beside = ("em", "f1") if "contains" in metrics else ()
    return (*metrics, *(name for name in beside if name not in metrics and name in recording.table.column_names))


def _relabelled(policy: Policy, before: Sequence[Policy]) -> Policy:
    same = sum(other.label == policy.label for other in before)
    return policy if same == 0 else replace(policy, name=f"{policy.label} #{same + 1}")


def _row(
    prepared: PreparedRecording,
    run: Run,
    reference: Run,
    *,
    deltas: Mapping[str, PairedResult],
    tests: tuple[MarginTest, ...],
    rival: Rival,
) -> Row:
    n_selected = tuned_on(run.policy, prepared.recording) if run.policy is not None else 0
    notes = list(run.notes)
    unmeasured = [name for name, values in run.worst.items() if np.isnan(values).any()]
    if unmeasured:
        notes.append(f"no answer was recorded where this stops: {', '.join(unmeasured)} unknown")
    operational = _cost_means(run.ledger)
    recorded = _cost_means(prepared.costs.recorded)
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
        n=prepared.n,
        n_failed=prepared.n_failed,
        n_censored=int(run.unrun.sum()),
        oracle_seen=run.oracle_seen or {},
        cheapest_match=rival.match,
        dominated_by=rival.dominating,
        undecided=rival.undecided,
        selected_here=n_selected > 0,
        n_selected=n_selected,
        notes=tuple(notes),
    )


def _cost_means(ledger: Ledger) -> dict[str, float]:
    totals = {kind: float(ledger.total(kind).mean()) for kind in COST_KINDS if kind != "calls"}
    return {
        "calls": float(ledger.calls.mean()),
        **totals,
        "tokens": sum(totals[kind] for kind in TOKEN_KINDS),
        "retrievals": float(ledger.total("retrievals").mean()),
        "money": float(ledger.money.mean()),
    }


def _spread(mean_of: Floats, values: Floats, weights: Floats) -> Spread:
    # Quantiles of a weighted sample: the value at which the cumulated weight reaches the share.
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(weights[order]) / weights.sum()
    p50, p95 = (float(values[order[int(np.searchsorted(reached, share - ROUNDING))]]) for share in (0.5, 0.95))
    return Spread(mean=float(mean_of.mean()), p50=p50, p95=p95)


def _replay_notes(prepared: PreparedRecording, metrics: Sequence[str], n_resamples: int) -> tuple[str, ...]:
    notes = [*prepared.costs.notes, *filter(None, [prepared.charging.note])]
    if any(is_agreement(name) for name in metrics):
        notes.append(agreement_note(prepared.recording))
    notes += choice_notes(prepared.recording, metrics)
    notes += best_single_note(prepared.recording, metrics[0]) if metrics else []
    if prepared.n_failed:
        notes.append(f"{counted(prepared.n_failed, 'question')} failed while recording: left out of every row alike")
    notes += undefined_notes(len(set(prepared.recording.clusters.tolist())), n_resamples)
    units, texts = (
        len(set(names)) for names in (prepared.recording.clusters.tolist(), dividing_names(prepared.recording))
    )
    if texts < units:
        notes.append(
            f"{units} questions have {texts} texts: intervals take all of them for independent, and are too narrow if "
            "those of one text are one question; give these one value in a column 'cluster'"
        )
    if prepared.cut.any():
        notes.append(
            f"censored: a rule ended {int(prepared.cut.sum())} of {len(prepared.cut)} recorded questions early; what a policy "
            "would have answered in rounds that never ran is unknown"
        )
    return tuple(notes)
