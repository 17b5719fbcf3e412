"""What policies are compared with: fixed budgets, chance, the closed book, and oracles."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from suffice.replay.charging import LIVE, Charging
from suffice.replay.costs import CostTable, Ledger
from suffice.replay.outcomes import answers_by_stop, values_by_stop
from suffice.rounds import Floats, Mask, Rounds
from suffice.rules import Selector, fixed_k
from suffice.session import Policy, Stops, stops
from suffice.store.recording import Recording

__all__ = ["Bench", "Run", "closed_book", "fixed_budget", "oracle_best", "oracle_earliest", "random_stop", "run_policy"]

Positions = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One policy, baseline or oracle on a recording; arrays have shape ``(n_questions,)``.

    Attributes:
        label: What reports call it.
        kind: `rule`, `fixed`, `random`, `closed_book` or `oracle`.
        values: The metrics of the returned answers, by name, in [0, 1]; NaN where not measured.
        ledger: Operational costs.
        calls: Support and weights of the distribution of calls over questions, for quantiles.
        stop_rounds: Share of questions that stop at each round.
        reasons: Questions by reason of their stop; empty where there is none to give.
        n_censored: Questions that wanted rounds which the recording lacks because a rule ended it.
        policy: What decided; None for oracles.
        oracle_seen: Mean metrics with the best of the rounds that were seen, by name.
        rounds: The round of each stop; None for `random`, which has no single one.
        notes: What a reader must know.
    """

    label: str
    kind: str
    values: Mapping[str, Floats]
    ledger: Ledger
    calls: tuple[Floats, Floats]
    stop_rounds: Mapping[int, float]
    reasons: Mapping[str, int]
    n_censored: int
    policy: Policy | None = None
    oracle_seen: Mapping[str, float] | None = None
    rounds: Positions | None = None
    notes: tuple[str, ...] = ()


class Bench:
    """A recording with everything that all runs share.

    Args:
        recording: Recorded rounds without failed questions.
        metrics: Metrics at every round, by name, shape ``(n_questions, n_rounds)``.
        table: The recorded costs.
        raw: The columns that the policies read.
        charging: Which calls a policy pays for.
    """

    def __init__(
        self,
        recording: Recording,
        metrics: Mapping[str, Floats],
        table: CostTable,
        raw: Rounds,
        charging: Charging = LIVE,
    ) -> None:
        self.recording = recording
        self.metrics = metrics
        self.table = table
        self.raw = raw
        self.charging = charging
        self.components: Mapping[str, str] = recording.metadata.get("signal_components") or {}

    @property
    def highest(self) -> int:
        """The highest recorded round."""
        return int(self.recording.index[-1])

    @cached_property
    def _cut_by_rule(self) -> npt.NDArray[np.bool_]:
        return np.asarray(self.recording.ends == "rule", dtype=np.bool_)

    def wanted_more(self, view: Rounds, position: Positions, fired: npt.NDArray[np.bool_], highest: int) -> int:
        """Return how many censored questions would have gone on past what was recorded."""
        last = view.seen.sum(axis=-1) - 1
        at_end = (position == last) & ~fired & (np.where(last >= 0, view.index[last], -1) < highest)
        return int((at_end & self._cut_by_rule).sum())

    def in_view(self, metric: Floats, view: Rounds) -> Floats:
        """Return the part of a metric that belongs to the rounds of a view."""
        offset = int(view.index[0] - self.recording.index[0])
        return metric[:, offset : offset + len(view)]

    def values(self, view: Rounds, stop: Positions, answer: Positions) -> dict[str, Floats]:
        """Return the metrics of the answers returned by stops at `stop`; see `values_by_stop`."""
        position = np.where(answer >= 0, answer, stop)
        rows = np.arange(len(position))
        return {
            name: np.where(position >= 0, self.in_view(metric, view)[rows, np.maximum(position, 0)], 0.0)
            for name, metric in self.metrics.items()
        }


def run_policy(bench: Bench, policy: Policy, *, label: str = "", kind: str = "rule") -> tuple[Run, Stops]:
    """Replay one policy: stops, answers, metrics and what it would have paid."""
    stopped = stops(policy, bench.raw)
    ledger = bench.table.charge(bench.charging.policy_masks(bench.table, policy, stopped, bench.components))
    stop, view = stopped.position, stopped.view
    run = Run(
        label=label or policy.label,
        kind=kind,
        values=bench.values(view, stop, stopped.answer_position),
        ledger=ledger,
        calls=(ledger.calls, np.ones(len(stop))),
        stop_rounds=_shares(stopped.rounds),
        reasons=Counter(stopped.reasons(bench.recording.ends, policy.max_rounds)),
        n_censored=bench.wanted_more(view, stop, stopped.fired, policy.max_rounds),
        policy=policy,
        oracle_seen=_oracle_seen(bench, stopped),
        rounds=stopped.rounds,
        notes=_policy_notes(policy),
    )
    return run, stopped


def _policy_notes(policy: Policy) -> tuple[str, ...]:
    if "seconds" in policy.signals:
        return ("not exactly replayable: the rule reads seconds, which differ from run to run",)
    return ()


def _shares(rounds: Positions) -> dict[int, float]:
    values, counts = np.unique(rounds, return_counts=True)
    return {int(r): float(count) / len(rounds) for r, count in zip(values, counts, strict=True)}


def _oracle_seen(bench: Bench, stopped: Stops) -> dict[str, float]:
    """Return the mean of each metric with the best round among those seen: what a perfect selector would reach."""
    charged = stopped.charged()
    means = {}
    for name, metric in bench.metrics.items():
        seen = np.where(charged, bench.in_view(metric, stopped.view), -np.inf)
        best = np.where(charged.any(axis=1), seen.max(axis=1, initial=-np.inf), 0.0)
        means[name] = float(best.mean())
    return means


def fixed_budget(bench: Bench, k: int) -> Run:
    """Replay `fixed_k(k)`; on a shorter trajectory its last round counts."""
    policy = Policy(rule=fixed_k(k), max_rounds=max(k, 1), name=f"fixed_k({k})")
    return run_policy(bench, policy, kind="fixed")[0]


def closed_book(bench: Bench) -> Run:
    """Return the answers of round 0, the model alone."""
    view = Policy(start_round=0, max_rounds=bench.highest).view(bench.raw)
    return _run_at(bench, view, np.zeros(len(view.seen), dtype=np.int64), "closed_book", "closed_book")


def random_stop(bench: Bench, policy: Policy, stopped: Stops) -> Run:
    """Return the exact expectation of `policy` with its stop rounds dealt out to the questions at random.

    Under a uniformly random permutation each question gets each of the policy's stop rounds with the frequency that
    it has among all questions, so the expectation is a mean over that distribution: the same stops, no information.
    """
    view = stopped.view
    position, counts = np.unique(stopped.position[stopped.position >= 0], return_counts=True)
    weights = (counts / counts.sum()).tolist() if len(counts) else []
    last = view.seen.sum(axis=-1) - 1
    answers = answers_by_stop(policy.selector, view)
    values = {name: np.zeros(len(last)) for name in bench.metrics}
    tables = {name: values_by_stop(answers, view.seen, bench.in_view(m, view)) for name, m in bench.metrics.items()}
    shares: dict[str, Floats] = {}
    support, censored = [], np.zeros(len(last), dtype=np.bool_)
    # Who never saw a round is charged nothing, wherever the others stop.
    for k, weight in zip(position.tolist() or [0], weights or [1.0], strict=True):
        for name, table in tables.items():
            values[name] = values[name] + weight * table[:, k]
        masks = _blind_masks(bench, policy.selector, view, np.minimum(k, last), answers[:, k])
        for component, mask in masks.items():
            shares[component] = shares.get(component, 0.0) + weight * mask
        support.append(bench.table.calls(masks))
        censored |= (last < k) & (bench.recording.ends == "rule")
    return Run(
        label=f"random({policy.label})",
        kind="random",
        values=values,
        ledger=bench.table.charge(shares),
        calls=(np.concatenate(support), np.repeat(weights or [1.0], len(last))),
        stop_rounds={int(view.index[k]): w for k, w in zip(position.tolist(), weights, strict=True)},
        reasons={},
        n_censored=int(censored.sum()),
        notes=("exact expectation over random permutations of the rule's own stop rounds",),
    )


def _blind_masks(
    bench: Bench, selector: Selector, view: Rounds, stop: Positions, answer: Positions
) -> Mapping[str, Mask]:
    """Return what stopping at `stop` pays without reading a signal, except what the selector reads, by component."""
    blind = Stops(view=view, position=stop, answer_position=answer, fired=stop >= 0)
    policy = Policy(selector=selector, start_round=int(view.index[0]))
    return bench.charging.policy_masks(bench.table, policy, blind, bench.components)


def oracle_earliest(bench: Bench, em: Floats, start_round: int = 1) -> Run:
    """Return the oracle that stops at the first round with EM = 1, and at the start round where there is none.

    Args:
        bench: The recording.
        em: EM at every recorded round, shape ``(n_questions, n_rounds)``.
        start_round: The first round that counts.
    """
    view = Policy(start_round=start_round, max_rounds=bench.highest).view(bench.raw)
    right = (bench.in_view(em, view) >= 1) & view.seen
    position = np.where(view.seen.any(axis=1), np.argmax(right, axis=1), -1)
    run = _run_at(bench, view, position, "oracle_earliest", "oracle")
    unsure = ~right.any(axis=1) & (bench.recording.ends == "rule")
    return replace(run, n_censored=int(unsure.sum()))


def oracle_best(bench: Bench, metric: Floats, start_round: int = 1, *, name: str = "") -> Run:
    """Return the oracle that returns the round with the largest metric, the earliest among ties.

    Args:
        bench: The recording.
        metric: The metric that it maximises, at every recorded round, shape ``(n_questions, n_rounds)``.
        start_round: The first round that counts.
        name: Of the metric, by which a convention of charging finds its judge; empty where there is none.
    """
    view = Policy(start_round=start_round, max_rounds=bench.highest).view(bench.raw)
    known = np.where(view.seen & ~np.isnan(bench.in_view(metric, view)), bench.in_view(metric, view), -np.inf)
    position = np.where(view.seen.any(axis=1), np.argmax(known, axis=1), -1)
    run = _run_at(bench, view, position, "oracle_best", "oracle", metric=name)
    unsure = (known.max(axis=1) < 1) & (bench.recording.ends == "rule")
    return replace(run, n_censored=int(unsure.sum()))


def _run_at(bench: Bench, view: Rounds, position: Positions, label: str, kind: str, *, metric: str = "") -> Run:
    """Return the run that stops at `position`, by the best of `metric` if it is named, and returns that answer."""
    masks = bench.charging.oracle_masks(bench.table, view, position, metric, bench.components)
    ledger = bench.table.charge(masks)
    rounds = np.where(position >= 0, view.index[np.maximum(position, 0)], -1)
    return Run(
        label=label,
        kind=kind,
        values=bench.values(view, position, position),
        ledger=ledger,
        calls=(ledger.calls, np.ones(len(position))),
        stop_rounds=_shares(rounds),
        reasons={},
        n_censored=0,
        rounds=rounds,
    )
