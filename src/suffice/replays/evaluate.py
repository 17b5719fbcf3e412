"""Replay: what any set of policies would have done on recorded rounds, beside every baseline, with intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.replays.baselines import Run
from suffice.replays.by_stop import run_all
from suffice.replays.charging import LIVE
from suffice.replays.checks import check_policy, policy_for
from suffice.replays.comparisons import difference_bounds, margin_tests, paired_differences
from suffice.replays.costs import TOKEN_KINDS, Ledger
from suffice.replays.orders import mean_runs, n_orders, order_note
from suffice.replays.outcomes import agreement_note, choice_notes, default_metrics, is_agreement
from suffice.replays.panels import best_single_note
from suffice.replays.prepared import PreparedRecording
from suffice.replays.prices import Price
from suffice.replays.references import (
    baseline_runs,
    fixed_policies,
    refuse_unmeasured,
    selector_names,
    selectors_in_use,
    with_references,
)
from suffice.replays.result import ReplayResult, Row, Spread
from suffice.replays.rivals import Rival, check_cost, find_rivals
from suffice.replays.selected import dividing_names, selected_on, tuned_on
from suffice.rounds import COST_KINDS, Floats, Mask, Rounds
from suffice.rules import Rule
from suffice.session import Policy
from suffice.statistics import ONE_UNIT, ROUNDING, MarginTest, PairedResult, Resampling
from suffice.store.recording import Recording
from suffice.tables import counted

__all__ = ["replay", "replay_matrix"]


def replay(
    recording: Recording,
    policies: Policy | Rule | str | Sequence[Policy | Rule | str],
    *,
    metrics: str | Sequence[str] | None = None,
    baseline: str | Policy | None = None,
    resampling: Resampling = Resampling(),
    prices: Price | Mapping[str, Price] | None = None,
    margins: Sequence[float] = (0.02,),
    cost: str = "calls",
    ledger: str = LIVE.name,
    orders: int | None = None,
    wave: int | None = None,
) -> ReplayResult:
    """Evaluate policies on recorded rounds, without a call.

    Exact for the recorded run where every question was recorded to its end: stopping takes a prefix.  Where a rule ended
    the recording of a question and a policy goes on, what it would have answered is unknown: its row has bounds instead
    of means.  Beside the policies are the whole fixed_k frontier, each policy's random twin, the closed book where
    round 0 was recorded, what was recorded itself where a rule ended some of it, and two oracles.

    >>> from suffice import replay
    >>> from suffice.store import bundled_recording
    >>> result = replay(bundled_recording("self_refine_dv3"), ["semantic(0.03)"], metrics=["target_sentiment"])
    >>> print(result.headline("semantic(0.03)"))
    semantic(0.03): target_sentiment 97.1 (-0.7 [-2.6, +1.1] vs fixed_k(3)); 7.37 calls; dominated by fixed_k(2)

    Args:
        recording: Recorded rounds.
        policies: What to evaluate, one or several; a rule or its text stands for a policy with the recording's own settings.
        metrics: Columns in [0, 1], or `agreement`, see `outcome`; the first is what quality means.  None = `f1` and
            `em`, for multiple choice `em` alone; empty for costs and stops alone.
        baseline: What differences are taken against: the label of a row (`fixed_k(3)`, `closed_book`,
            `oracle_best`, `recorded`), `full`, a rule or a policy.  None is `fixed_k(3)`, and `recorded` for a recording
            that a rule ended in some questions.
        resampling: How intervals are made.
        prices: For all language models, or by component; None = money is NaN.
        margins: Margins of the first metric for non-inferiority and equivalence.
        cost: What "cheapest" and "dominated" compare: one of `suffice.replays.result.COSTS`.
        ledger: Which calls a policy is charged for: `live`, what it would have paid, or `published`, as Semantic
            Early-Stopping counted; see `suffice.replays.charging`.
        orders: For independent samples, over how many random orders of each question's samples figures are averaged;
            None = 100, and 1 for rounds that follow one another.
        wave: How many samples are requested at once, for what they cost and how long they take, see `SamplingLoop`; the last
            wave ends with the recording, also where a policy has a lower cap.  None = as they were recorded.

    Raises:
        DataError: A metric is missing, there is nothing to compare, or an unknown method of intervals, cost or ledger.
        CensoredError: A policy stops where no answer was recorded, or the baseline goes on past what was recorded.
        ConfigMismatchError: A policy was made for something else.
        UnknownSignalError: A policy reads a signal that was not recorded.
        NotFittedError: A policy lacks fitted state.
        RuleSyntaxError: Text is not a rule.
    """
    prepared = PreparedRecording.of(recording, prices=prices, ledger=ledger, samples=True, wave=wave)
    complete = prepared.recording
    metrics = [metrics] if isinstance(metrics, str) else metrics
    metrics = _companions(complete, default_metrics(complete) if metrics is None else metrics)
    items = [policies] if isinstance(policies, str | Rule | Policy) else policies
    replayed = [item if isinstance(item, Policy) else policy_for(complete, item, name=str(item)) for item in items]
    replayed = [_relabelled(policy, replayed[:position]) for position, policy in enumerate(replayed)]
    notes = {policy.label: check_policy(policy, complete) for policy in replayed}
    prepared = prepared.with_metrics(metrics)
    selectors = selectors_in_use(replayed)
    n = n_orders(complete, orders, replayed)
    fixed = fixed_policies(prepared, selectors)

    def runs_of(policies: Sequence[Policy], kinds: Sequence[str], n_twins: int) -> tuple[list[Run], dict[int, Run]]:
        return run_all(prepared, policies, n, resampling.seed, kinds=kinds, twinned=range(n_twins))

    runs, twins = runs_of(
        [*replayed, *(policy for _, policy in fixed)], ["rule"] * len(replayed) + ["fixed"] * len(fixed), len(replayed)
    )
    for run in runs[: len(replayed)]:
        refuse_unmeasured(prepared, run, metrics)
    others = mean_runs(prepared, n, resampling.seed, lambda one: baseline_runs(one, replayed, selectors, metrics))
    own = selector_names(replayed)
    runs, references = with_references(
        prepared,
        [
            *(
                replace(run, selector=name, notes=run.notes + notes[run.label])
                for run, name in zip(runs, own, strict=False)
            ),
            *(replace(twins[place], selector=name) for place, name in enumerate(own)),
            *(run for run in others if run.kind != "oracle"),
            *(replace(run, selector=name) for run, (name, _) in zip(runs[len(replayed) :], fixed, strict=True)),
            *(run for run in others if run.kind == "oracle"),
        ],
        selectors,
        baseline=baseline,
        metrics=metrics,
        run_of=lambda policy, kind: runs_of([policy], [kind], 0)[0][0],
    )
    check_cost(runs, cost)
    draws = prepared.draws(resampling)
    deltas = paired_differences(runs, references, draws, n_policies=len(replayed))
    rivals = find_rivals(runs, runs, metrics, cost)
    rows = [
        _row(
            prepared,
            run,
            other,
            deltas=differences,
            tests=margin_tests(run, other, metrics, margins, draws),
            rival=rival,
        )
        for run, other, differences, rival in zip(runs, references, deltas, rivals, strict=True)
    ]
    return ReplayResult(
        rows=tuple(rows),
        metrics=metrics,
        baseline=references[0].label,
        n=prepared.n,
        n_clusters=draws.units.n_units,
        n_failed=prepared.n_failed,
        resampling=resampling,
        cost=cost,
        ledger=ledger,
        data_hash=recording.data_hash,
        notes=(
            *([order_note(n, resampling.seed)] if n > 1 else ()),
            *_replay_notes(prepared, metrics),
            *selected_on(replayed, complete).notes,
        ),
    )


def replay_matrix(view: Rounds, rules: Sequence[Rule], by_stop: Mapping[str, Floats]) -> dict[str, Floats]:
    """Return outcomes of many rules that share a view, each of shape ``(n_rules, n_questions)``.

    The fast path under a search: one decision per rule and question, then one look-up per outcome.

    Args:
        view: What the rules read, shape ``(n_questions, n_rounds)``.
        rules: The rules.
        by_stop: Outcomes of a stop at each position (`values_by_stop`, cumulated calls), shape of `view`.
    """
    n, width = view.shape
    fires: npt.NDArray[np.bool_] = np.empty((len(rules), n, width), dtype=np.bool_)
    for position, rule in enumerate(rules):
        fires[position] = rule.fires(view)
    ended: Mask = np.arange(width) >= view.seen.sum(axis=-1)[:, None] - 1  # the last seen round stops, as all later
    np.logical_or(fires & view.seen, ended, out=fires)
    # The first True of each row, as an index into flat tables: one look-up for each outcome.
    flat = np.argmax(fires, axis=-1)
    flat += np.arange(n) * width
    return {name: np.ascontiguousarray(table).ravel()[flat] for name, table in by_stop.items()}


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


def _replay_notes(prepared: PreparedRecording, metrics: Sequence[str]) -> tuple[str, ...]:
    notes = [*prepared.costs.notes, *filter(None, [prepared.charging.note])]
    if any(is_agreement(name) for name in metrics):
        notes.append(agreement_note(prepared.recording))
    notes += choice_notes(prepared.recording, metrics)
    notes += best_single_note(prepared.recording, metrics[0]) if metrics else []
    if prepared.n_failed:
        notes.append(f"{counted(prepared.n_failed, 'question')} failed while recording: left out of every row alike")
    if len(set(prepared.recording.clusters.tolist())) == 1:
        notes.append(ONE_UNIT)
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
