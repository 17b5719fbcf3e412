"""Baselines that policies are compared with: fixed budgets, chance, the closed book, and oracles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from suffice.common.tables import counted
from suffice.evaluation.replay.checks import run_notes
from suffice.evaluation.replay.costs import Ledger
from suffice.evaluation.replay.prepared import PreparedRecording, looked_up
from suffice.policy.rounds import Floats, Mask, Positions, Rounds
from suffice.policy.rules import fixed_k
from suffice.policy.session import Policy, Stops
from suffice.recordings.audits import stop_rounds
from suffice.recordings.runs import ALONE

if TYPE_CHECKING:
    from suffice.evaluation.replay.estimated_shares import EstimatedShares

RECORDED = "recorded"
"""The label of `recorded_run`, the default baseline of differences if a rule ended some recorded questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy, baseline or oracle on a recording; arrays have shape ``(n_questions,)``.

    Attributes:
        kind: `rule`, `fixed`, `random`, `recorded`, `closed_book` or `oracle`.
        worst: The metrics of the returned answers by name, in [0, 1], counting answers that were never given (see
            `unrun`) as 0; NaN where not measured.
        best: The same metrics, counting those answers as 1.
        unrun: True where the outcome depends on rounds that never ran, because a rule ended the recording.
        ledger: Operational costs; a lower bound where `unrun`.
        calls: The distribution of calls over questions, as values and weights, for quantiles.
        stop_rounds: Share of all questions that stop at each round; questions in `unrun` are not counted at any round.
        reasons: Number of questions by the reason of their stop, averaged over random orders of samples; empty where
            no reason is known.
        selector: The name of the selector that chose the answers; "" without a selector.  It is part of a baseline's
            label.
        policy: The policy that decided; None for oracles.
        oracle_seen: Mean metrics by name if the best round up to the stop were returned.
        rounds: The round of each stop.  It is the last recorded round where `unrun`, -1 for a question without rounds,
            and the expected round for `random`.
        answer_rounds: The round of each returned answer, -1 without an answer.  None for a run such as `random`, in
            which no single answer is returned for each question.
        n_selected: Number of questions that the policy was fitted or selected on; 0 if this was not checked.
        estimated: Only for `random`: counts of the rule's stops, from which its shares of stops are estimated, so that
            intervals can include the error of this estimate.  None for other kinds.
    """

    label: str
    kind: str
    worst: Mapping[str, Floats]
    best: Mapping[str, Floats]
    unrun: Mask
    ledger: Ledger
    calls: tuple[Floats, Floats]
    stop_rounds: Mapping[int, float]
    reasons: Mapping[str, float]
    selector: str = ""
    policy: Policy | None = None
    oracle_seen: Mapping[str, float] | None = None
    rounds: Positions | Floats | None = None
    answer_rounds: Positions | None = None
    n_selected: int = 0
    estimated: EstimatedShares | None = None
    notes: tuple[str, ...] = ()

    @property
    def values(self) -> Mapping[str, Floats]:
        """The metrics of the returned answers by name, in [0, 1]; NaN where not measured, and where `unrun`."""
        if self.exact:
            return self.worst
        return {name: np.where(self.unrun, np.nan, values) for name, values in self.worst.items()}

    @property
    def exact(self) -> bool:
        """True if every round that the run needs was recorded."""
        return not self.unrun.any()


def run_policy(
    prepared: PreparedRecording, policy: Policy, *, label: str = "", kind: str = "rule"
) -> tuple[Run, Stops]:
    """Replay one policy: its stops, answers and metrics, and the costs that it would have had."""
    stopped = prepared.stops(policy)
    ends, highest = prepared.recording.ends, policy.max_rounds
    run = _stopped_run(
        prepared,
        policy,
        stopped,
        stopped.unrun(ends, highest),
        stopped.counted_reasons(ends, highest),
        label=label,
        kind=kind,
    )
    return run, stopped


def _stopped_run(
    prepared: PreparedRecording,
    policy: Policy,
    stopped: Stops,
    unrun: Mask,
    reasons: Mapping[str, float],
    *,
    label: str,
    kind: str,
) -> Run:
    masks = prepared.charging.demanded(prepared.costs, policy, stopped)
    ledger = prepared.costs_by_stop(policy).ledger(lambda sums: looked_up(sums, stopped.position), masks)
    outcomes = prepared.outcomes_by_stop(policy)
    values = {name: looked_up(metric, stopped.position) for name, metric in outcomes.values.items()}
    best = {name: looked_up(metric, stopped.position) for name, metric in outcomes.best.items()}
    return Run(
        label=label or policy.label,
        kind=kind,
        worst=values if not unrun.any() else _with(values, unrun, 0.0),
        best=values if not unrun.any() else _with(values, unrun, 1.0),
        unrun=unrun,
        ledger=ledger,
        calls=(ledger.calls, np.ones(len(unrun))),
        stop_rounds=stop_shares(stopped.rounds, unrun),
        reasons=reasons,
        selector=str(policy.selector),
        policy=policy,
        oracle_seen={name: float(np.where(unrun, np.nan, seen).mean()) for name, seen in best.items()},
        rounds=stopped.rounds,
        answer_rounds=stopped.answer_rounds,
        notes=run_notes(policy, int(((stopped.position < 0) & ~unrun).sum()) // prepared.n_orders),
    )


def _with(values: Mapping[str, Floats], unrun: Mask, value: float) -> Mapping[str, Floats]:
    return {name: np.where(unrun, value, known) for name, known in values.items()} if unrun.any() else values


def stop_shares(rounds: Positions, unrun: Mask) -> dict[int, float]:
    """Return the share of all questions that stop at each round.

    Questions without a stop (-1), and those in `unrun`, count at no round.
    """
    counts = np.bincount(rounds[~unrun] + 1).tolist()  # -1 = there was no round
    return {r - 1: count / len(rounds) for r, count in enumerate(counts) if count}


def fixed_budget(prepared: PreparedRecording, k: int, like: Policy | None = None) -> Run:
    """Replay `fixed_k(k)`; if a trajectory ended by itself before round k, its last round counts.

    Args:
        prepared: The recording.
        k: The budget.
        like: A policy whose selector and fitted state choose the answers; its name is appended to the label.  None =
            the last answer.
    """
    return run_policy(prepared, fixed_policy(k, like or Policy()), kind="fixed")[0]


def fixed_policy(k: int, like: Policy) -> Policy:
    """Return the policy that `fixed_budget` replays."""
    return replace(like, rule=fixed_k(k), max_rounds=max(k, 1), name=f"fixed_k({k}){like.name}")


def single_policies(models: Sequence[str], like: Policy) -> list[Policy]:
    """Return one policy for each model of an escalation; each policy calls only its own model.

    Args:
        models: The model of each round, from round 1 on.
        like: See `fixed_budget`.
    """
    places = {model: place for place, model in reversed([*enumerate(models, 1)])}
    return [
        replace(like, rule=fixed_k(r), start_round=r, max_rounds=r, name=f"{model}{ALONE}{like.name}")
        for model, r in sorted(places.items(), key=lambda item: item[1])
    ]


def recorded_from(prepared: PreparedRecording) -> int:
    """Return the first round of the recorded loop: 0 if a rule (such as a gate) stopped questions there, else 1."""
    at_0 = (prepared.cut & (prepared.recording.seen.sum(axis=1) == 1)).any() and int(prepared.recording.index[0]) == 0
    return 0 if at_0 else 1


def recorded_run(prepared: PreparedRecording, like: Policy | None = None, *, start_round: int | None = None) -> Run:
    """Return the recording itself as a run.

    A question stops at its last round.  If an audit ran further rounds after the recorded loop had stopped, these rounds
    are left out.  The run starts at round 0 only if a rule (such as a gate) ended questions there; otherwise round 0 is
    only a closed-book answer, and the loop starts at round 1.

    Args:
        prepared: The recording.
        like: See `fixed_budget`.
        start_round: The first round of the loop; None = as `recorded_from` returns.
    """
    like = like or Policy()
    start_round = recorded_from(prepared) if start_round is None else start_round
    policy = replace(like, start_round=start_round, max_rounds=max(prepared.highest, 1), name=f"{RECORDED}{like.name}")
    stopped, ends = prepared.stops(policy), prepared.recording.ends
    if "stop_round" in prepared.recording.table.column_names:
        position = np.fmin(stopped.position, stop_rounds(prepared.recording) - stopped.view.index[0]).astype(np.int64)
        audited = position < stopped.position
        if audited.any():
            answers = policy.selector.select(stopped.view, position)
            stopped = replace(stopped, position=position, answer_position=answers)
            ends = np.where(audited, "rule", ends)
    ended = Counter(map(str, ends.tolist()))
    run = _stopped_run(prepared, policy, stopped, np.zeros_like(prepared.recording.cut), ended, label="", kind=RECORDED)
    return replace(run, notes=("the recording's own stops; what its rule itself cost is not counted",))


def single_answer(prepared: PreparedRecording, at: Mask, label: str, note: str) -> Run:
    """Return a run that pays for one recorded answer per question; a question without that answer counts as wrong.

    Args:
        prepared: The recording.
        at: True at the round of that answer, shape ``(n_questions, n_rounds)``; at most one round of a question.
        label: The run's name in reports.
        note: A note for the reader.
    """
    known = np.asarray(at.any(axis=1), dtype=np.bool_)
    position = np.argmax(at, axis=1)
    rows = np.arange(len(position))
    values = {name: np.where(known, metric[rows, position], 0.0) for name, metric in prepared.metrics.items()}
    alone = replace(prepared, wave=1).costs  # only one answer is requested, so each question costs one call
    ledger = alone.charge(dict.fromkeys(alone.loop, at))
    rounds = np.where(known, prepared.recording.index[position], -1)
    return Run(
        label=label,
        kind="fixed",
        worst=values,
        best=values,
        unrun=np.zeros(len(known), dtype=np.bool_),
        ledger=ledger,
        calls=(ledger.calls, np.ones(len(known))),
        stop_rounds=stop_shares(rounds, np.zeros(len(known), dtype=np.bool_)),
        reasons={},
        rounds=rounds,
        notes=(note, *missing_note(int((~known).sum()) // prepared.n_orders)),
    )


def missing_note(n: int) -> list[str]:
    """Return a note on the number of questions that lack the requested answer; no note if every question has it."""
    return [f"no answer of it in {counted(n, 'question')}"] if n else []


def closed_book(prepared: PreparedRecording) -> Run:
    """Return the closed-book run: the answers of round 0, by the model alone."""
    view = prepared.view(Policy(start_round=0, max_rounds=prepared.highest))
    return _run_at(prepared, view, np.zeros(len(view.seen), dtype=np.int64), "closed_book", "closed_book")


def oracle_earliest(prepared: PreparedRecording, em: Floats, start_round: int = 1) -> Run:
    """Return the oracle that stops at the first round with EM = 1, or at the start round if no round has it.

    Args:
        prepared: The recording.
        em: EM at every recorded round, shape ``(n_questions, n_rounds)``.
        start_round: The first round that counts.
    """
    view = prepared.view(Policy(start_round=start_round, max_rounds=prepared.highest))
    right = (prepared.in_view(em, view) >= 1) & view.seen
    position = np.where(view.seen.any(axis=1), np.argmax(right, axis=1), -1)
    unrun = ~right.any(axis=1) & prepared.cut
    return _run_at(prepared, view, position, "oracle_earliest", "oracle", unrun=unrun, aim="em")


def oracle_best(prepared: PreparedRecording, metric: Floats, start_round: int = 1, *, name: str = "") -> Run:
    """Return the oracle that returns the round with the largest metric, the earliest among ties.

    Args:
        prepared: The recording.
        metric: The metric to maximise, at every recorded round, shape ``(n_questions, n_rounds)``.
        start_round: The first round that counts.
        name: The name of the metric, to charge the calls of its judge; empty if no judge measures the metric.
    """
    view = prepared.view(Policy(start_round=start_round, max_rounds=prepared.highest))
    known = np.where(view.seen & ~np.isnan(prepared.in_view(metric, view)), prepared.in_view(metric, view), -np.inf)
    position = np.where(view.seen.any(axis=1), np.argmax(known, axis=1), -1)
    unrun = (known.max(axis=1) < 1) & prepared.cut
    return _run_at(prepared, view, position, "oracle_best", "oracle", unrun=unrun, aim=name, metric=name)


def _run_at(
    prepared: PreparedRecording,
    view: Rounds,
    position: Positions,
    label: str,
    kind: str,
    *,
    unrun: Mask | None = None,
    aim: str = "",
    metric: str = "",
) -> Run:
    """Return the run of an oracle that stops at `position` and returns that round's answer.

    The oracle is charged for the judge of `metric`, if the metric has a judge.

    The questions in the mask `unrun` lack later rounds.  The oracle might do better with those rounds, so the metric
    `aim` of these questions is a lower bound; their other metrics are unknown.
    """
    masks = prepared.charging.oracle_masks(prepared.costs, view, position, metric)
    ledger = prepared.costs.charge(masks)
    rounds = np.where(position >= 0, view.index[np.maximum(position, 0)], -1)
    values = prepared.values(view, position, position)
    unrun = np.zeros(len(position), dtype=np.bool_) if unrun is None else unrun
    worst = _with(values, unrun, 0.0)
    if aim in values:
        worst = {**worst, aim: np.where(unrun, np.nan_to_num(values[aim]), values[aim])}
    return Run(
        label=label,
        kind=kind,
        worst=worst,
        best=_with(values, unrun, 1.0),
        unrun=unrun,
        ledger=ledger,
        calls=(ledger.calls, np.ones(len(position))),
        stop_rounds=stop_shares(rounds, unrun),
        reasons={},
        rounds=rounds,
    )
