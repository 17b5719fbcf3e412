"""Replay of many policies in many orders of independent samples, from shared tables of what each stop returns and costs.

For one order, `run_policy` decides, selects, scores and charges policy by policy.  Over a hundred orders most of that
work is the same for all policies: the answers, the votes, and the metric and cost of a stop at each round.  It is done
once here, for some orders at a time to bound the memory; only the rule is evaluated for each policy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.evaluation.replay.baselines import Run, run_policy
from suffice.evaluation.replay.costs import CostTable, Ledger
from suffice.evaluation.replay.orders import drawn_orders, mean_runs
from suffice.evaluation.replay.outcomes import expected_by_stop
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import Strata, random_stop, strata_of, twin_notes
from suffice.evaluation.replay.recorded import run_notes
from suffice.evaluation.replay.references import answering_like
from suffice.policy.normalizers import Grouping, normalizer_of
from suffice.policy.rounds import COST_KINDS, Floats, Mask, Positions, Rounds
from suffice.policy.rules import Never
from suffice.policy.rules.selectors import answered
from suffice.policy.session import Policy, stop_positions
from suffice.policy.signals import CRITIC
from suffice.policy.signals.votes import vote_signal

_VALUES = 1 << 18  # size of one column in a block of orders
_MOST_CALLS = 512

EachOrders = Callable[[Floats], None]
"""Takes the first metric of every policy in some orders, shape ``(n_policies, n_orders, n_questions)``; NaN without a metric."""


def run_all(
    prepared: PreparedRecording,
    policies: Sequence[Policy],
    n: int,
    seed: int,
    *,
    kinds: Sequence[str] = (),
    twinned: Collection[int] = (),
    each: EachOrders | None = None,
) -> tuple[list[Run], dict[int, Run]]:
    """Return the mean run over orders of each policy, and the random twins of the policies at the positions `twinned`.

    Args:
        prepared: The recording.
        policies: The policies to evaluate.
        n: Number of orders; 1 = only the stored order.
        seed: Seed of the orders.
        kinds: The kind of each run; by default `rule`.
        twinned: Positions of the policies that get a twin.
        each: Called with the metric of each order, for statistics that are not linear in it.
    """
    kinds = kinds or ["rule"] * len(policies)
    places = sorted(twinned)

    def one_by_one(prepared: PreparedRecording) -> list[Run]:
        stopped = [run_policy(prepared, policy, kind=kind) for policy, kind in zip(policies, kinds, strict=True)]
        if each is not None:
            unknown = np.full(prepared.n, np.nan)
            firsts = [next(iter(run.values.values()), unknown) for run, _ in stopped]
            each(np.stack(firsts)[:, None])
        return [
            *(run for run, _ in stopped),
            *(random_stop(prepared, policies[place], stopped[place][1]) for place in places),
        ]

    if n == 1:
        runs = one_by_one(prepared)
    elif _plain_costs(prepared.costs) and not any(_depends_on_order(policy) for policy in policies):
        return _Sums(prepared, policies, places, n).over_orders(seed, kinds, each)
    else:
        runs = mean_runs(prepared, n, seed, one_by_one)
    return runs[: len(policies)], dict(zip(places, runs[len(policies) :], strict=True))


def _depends_on_order(policy: Policy) -> bool:
    """Return whether the grouping of equal answers depends on the order in which they came."""
    return isinstance(normalizer_of(policy.normalizer), Grouping)


def _plain_costs(table: CostTable) -> bool:
    """Return whether every visited round is paid, no matter which signals a policy reads, and all calls are whole numbers."""
    if table.gated or CRITIC in table.components or set(table.components) != set(table.loop):
        return False
    calls = _all_calls(table)
    return bool((calls == np.floor(calls)).all() and calls.sum(axis=1).max(initial=0) < _MOST_CALLS)


def _all_calls(table: CostTable) -> Floats:
    """Return the requests to language models in each round."""
    return np.asarray(np.sum([np.zeros(table.seen.shape), *table.call_columns.values()], axis=0), dtype=np.float64)


def varying_costs(table: CostTable) -> list[tuple[str, str]]:
    """Return the components and kinds whose costs are neither zero nor unknown in every round."""
    columns = {
        (component, kind): table.columns[component][kind] for component in table.components for kind in COST_KINDS
    }
    return [name for name, column in columns.items() if column.any() and not np.isnan(column[table.seen]).all()]


class _Block:
    """Several orders of each question's rounds as separate rows: arrays have shape ``(n_orders * n_questions, n_rounds)``.

    Args:
        prepared: The recording.
        orders: From `drawn_orders`.
    """

    def __init__(self, prepared: PreparedRecording, orders: Sequence[npt.NDArray[np.int64]]) -> None:
        self.prepared = prepared
        self.n_orders = len(orders)
        width = prepared.recording.shape[1]
        places = np.concatenate(orders)
        self._flat = (places + width * np.arange(len(places))[:, None]).ravel()
        self.seen: Mask = np.tile(prepared.recording.seen, (self.n_orders, 1))
        self._columns: dict[tuple[int, str], npt.NDArray[Any]] = {}

    def spread(self, column: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Return a column of the recording in all orders."""
        out = np.empty(self._flat.shape, dtype=column.dtype)
        out[self._flat] = np.broadcast_to(column, (self.n_orders, *column.shape)).ravel()
        return out.reshape(-1, column.shape[1])

    @cached_property
    def answers(self) -> npt.NDArray[Any] | None:
        """The answers in all orders; None where they were not recorded."""
        recorded = "answer" in self.prepared.recording.table.column_names
        return self.spread(self.prepared.recording.answers) if recorded else None

    def view(self, policy: Policy) -> Rounds:
        """Return the view of a policy."""
        recording, start = self.prepared.recording, policy.start_round
        first = max(0, start - int(recording.index[0]))
        source = self.prepared.raw(policy)
        columns = {}
        for name, column in source.columns.items():
            if name in policy.vote_columns and name != policy.answer_column:
                continue  # these answer groups depend on the order
            if (start, name) not in self._columns:
                self._columns[start, name] = self.spread(column)[:, first:]
            columns[name] = self._columns[start, name]
        for name, signal in policy.vote_columns.items():
            if (start, name) not in self._columns:
                self._columns[start, name] = vote_signal(signal, columns[policy.answer_column or ""])
            columns[name] = self._columns[start, name]
        answers = None if self.answers is None else self.answers[:, first:]
        return policy.view(Rounds(columns, recording.index[first:], self.seen[:, first:], answers))


class _Tables:
    """Metrics and costs of a stop at each round, for all policies with the same selector and fitted state.

    Args:
        block: The orders.
        like: A policy with that selector and fitted state.
        start: The start round.
        highest: The highest round that may be requested.

    Attributes:
        values: Shape ``(n_names, n_orders * n_questions * n_rounds)``: the metrics, the best of each metric so far, each
            component's costs by kind, and all calls.
        calls: Requests to language models, count, shape of a row of `values`.
        answers: Whether some round so far has an answer, same shape.
        width: Rounds from `start` on.
        length: Recorded rounds from `start` on, shape ``(n_orders * n_questions,)``.
    """

    def __init__(self, block: _Block, like: Policy, start: int, highest: int) -> None:
        prepared = block.prepared
        view = block.view(replace(like, rule=Never(), start_round=start, max_rounds=max(prepared.highest, 1)))
        skipped = prepared.recording.shape[1] - len(view)
        given = np.zeros(view.shape, dtype=np.bool_) if view.answers is None else answered(view)
        self.width, self.length = len(view), view.seen.sum(axis=1)
        metrics = [block.spread(metric)[:, skipped:] for metric in prepared.metrics.values()]
        rows = [expected_by_stop(like.selector, view, metric) for metric in metrics]
        rows += [np.maximum.accumulate(np.where(view.seen, metric, -np.inf), axis=1) for metric in metrics]
        costs, before = prepared.costs, max(0, 1 - start)
        until = costs.until(view.index, highest)
        together = None if costs.wave == 1 else block.spread(costs.loop_seconds)[:, skipped:]
        for component, kind in varying_costs(costs):
            column = block.spread(costs.columns[component][kind])[:, skipped:]
            rows.append(
                costs.due(component, kind, column, before=before, until=until, together=together).cumsum(axis=1)
            )
        calls = block.spread(_all_calls(costs))[:, skipped:]
        rows.append(costs.due(costs.loop[0], "calls", calls, before=before, until=until).cumsum(axis=1))
        stacked = np.stack(rows)
        stacked[:, self.length == 0] = 0.0
        self.values: Floats = stacked.reshape(len(rows), -1)
        self.calls: Positions = self.values[-1].astype(np.int64)
        self.answers: Mask = np.logical_or.accumulate(given, axis=1).ravel()


class _Sums:
    """Sums over orders of the metrics and costs of policies.

    Args:
        prepared: The recording.
        policies: The policies.
        twinned: Positions of those that have a random twin.
        n: Number of orders.
    """

    def __init__(self, prepared: PreparedRecording, policies: Sequence[Policy], twinned: Sequence[int], n: int) -> None:
        self.prepared, self.policies, self.twinned, self.n = prepared, policies, twinned, n
        self._kinds = varying_costs(prepared.costs)
        n_names, n_questions = 2 * len(prepared.metrics) + len(self._kinds) + 1, prepared.n
        self._values = np.zeros((len(policies), n_names, n_questions))
        self._calls = np.zeros((len(policies), _MOST_CALLS))
        self._rounds = np.zeros((len(policies), prepared.highest + 2))  # the last column is empty
        self._round_sums = np.zeros((len(policies), n_questions))
        self._reasons: list[Counter[str]] = [Counter() for _ in policies]
        self._twins = {place: np.zeros((n_names, n_questions)) for place in twinned}
        self._twin_calls = np.zeros((len(policies), _MOST_CALLS))
        self._twin_rounds = np.zeros((len(policies), n_questions))
        self._without = [0] * len(policies)
        self._likes: list[tuple[Policy, int, int]] = []
        self._group: list[int] = []
        for policy in policies:
            # Here max_rounds only affects where the last wave of requests ends.
            highest = prepared.highest if prepared.costs.wave == 1 else policy.max_rounds
            like = (replace(answering_like(policy), name=""), policy.start_round, highest)
            if like not in self._likes:
                self._likes.append(like)
            self._group.append(self._likes.index(like))

    def over_orders(self, seed: int, kinds: Sequence[str], each: EachOrders | None) -> tuple[list[Run], dict[int, Run]]:
        """Return the runs and the twins."""
        size = max(1, _VALUES // self.prepared.recording.seen.size)
        orders = drawn_orders(self.prepared.recording, self.n, seed)
        while drawn := [*islice(orders, size)]:
            block = _Block(self.prepared, drawn)
            values = self._add(block)
            if each is not None:
                each(values)
        runs = [self._run(place, kind) for place, kind in enumerate(kinds)]
        return runs, {place: self._twin(place, runs[place]) for place in self.twinned}

    def _add(self, block: _Block) -> Floats:
        """Add a block; return the first metric of each policy, shape ``(n_policies, n_orders, n_questions)``."""
        n = self.prepared.n
        firsts = np.full((len(self.policies), block.n_orders, n), np.nan)
        for group, (like, start, highest) in enumerate(self._likes):
            tables = _Tables(block, like, start, highest)
            members = [place for place, own in enumerate(self._group) if own == group]
            dealt: dict[int, dict[int, Positions]] = {}
            for place in members:
                policy = self.policies[place]
                view = block.view(policy)
                position, fired = stop_positions(policy, view)
                flat = np.arange(len(position)) * tables.width + np.maximum(position, 0)
                stopped = tables.values.take(flat, axis=1).reshape(-1, block.n_orders, n)
                firsts[place] = stopped[0] if len(self.prepared.metrics) else np.nan
                self._values[place] += stopped.sum(axis=1)
                self._calls[place] += np.bincount(np.where(position >= 0, tables.calls[flat], 0), minlength=_MOST_CALLS)
                rounds = np.where(position >= 0, view.index[position], -1)
                self._rounds[place] += np.bincount(rounds % self._rounds.shape[1], minlength=self._rounds.shape[1])
                self._round_sums[place] += rounds.reshape(block.n_orders, n).sum(axis=0)
                self._without[place] = int((position[:n] < 0).sum())
                self._reasons[place] += self._reasons_of(policy, rounds, fired, (position >= 0) & tables.answers[flat])
                if place in self.twinned:
                    dealt.setdefault(len(view), {})[place] = position
            for width, stops in dealt.items():
                self._add_twins(block, tables, stops, strata_of(np.minimum(tables.length[:n], width)), start)
        return firsts

    def _reasons_of(self, policy: Policy, rounds: Positions, fired: Mask, answered: Mask) -> Counter[str]:
        """Count the reasons why questions stopped, as `Stops.reasons` does for one order."""
        capped = ~fired & (rounds == policy.max_rounds)
        others = np.flatnonzero(answered & ~fired & ~capped) % self.prepared.n
        counts = Counter(self.prepared.recording.ends[others].tolist())
        counts += Counter(
            rule=int((answered & fired).sum()), max_rounds=int((answered & capped).sum()), failed=int((~answered).sum())
        )
        return counts

    def _add_twins(
        self, block: _Block, tables: _Tables, dealt: Mapping[int, Positions], strata: Strata, start: int
    ) -> None:
        """Add the expected metrics and costs of the policies' random twins, order by order."""
        n, n_orders, width = self.prepared.n, block.n_orders, tables.width
        n_strata = len(strata.size)
        # The stratum of each question, numbered over all orders.
        cell = (np.arange(n_orders)[:, None] * n_strata + strata.code).ravel()
        paid = (
            np.stack(
                [
                    np.bincount(cell * width + np.maximum(at, 0), minlength=n_orders * n_strata * width)
                    for at in dealt.values()
                ]
            ).reshape(len(dealt), n_orders, n_strata, width)
            / strata.size[:, None]
        )
        values = tables.values.reshape(-1, n_orders, n, width)
        for code in range(n_strata):
            mine = strata.code == code
            share = paid[:, :, code].reshape(len(dealt), -1)
            for name, table in enumerate(values):
                column = table[:, mine].transpose(0, 2, 1).reshape(n_orders * width, -1)
                given = _weighted(share, column)
                for place, row in zip(dealt, given, strict=True):
                    self._twins[place][name, mine] += row
            if tables.length[:n][mine][0] > 0:
                rounds = np.tile(np.arange(start, start + width), n_orders)
                expected = (share @ rounds)[:, None]
            else:
                expected = np.full((len(dealt), 1), -float(n_orders))
            self._twin_rounds[np.ix_(np.array([*dealt]), np.flatnonzero(mine))] += expected
        spent = cell[:, None] * width + np.arange(width)
        most = int(tables.calls.max(initial=0)) + 1
        calls = np.bincount(spent.ravel() * most + tables.calls, minlength=n_orders * n_strata * width * most)
        self._twin_calls[np.ix_(np.array([*dealt]), np.arange(most))] += paid.reshape(len(dealt), -1) @ calls.reshape(
            -1, most
        )

    def _run(self, place: int, kind: str) -> Run:
        """Return the mean run of a policy."""
        policy, n = self.policies[place], self.prepared.n
        mean = self._values[place] / self.n
        metrics = self.prepared.metric_names
        values = dict(zip(metrics, mean, strict=False))
        shares = self._rounds[place] / (self.n * n)
        return Run(
            label=policy.label,
            kind=kind,
            worst=values,
            best=values,
            unrun=np.zeros(n, dtype=np.bool_),
            ledger=self._ledger(mean, policy),
            calls=self._calls_of(self._calls[place]),
            stop_rounds={r: float(shares[r]) for r in range(-1, len(shares) - 1) if shares[r]},
            reasons={reason: round(count / self.n) for reason, count in self._reasons[place].items()},
            selector=str(policy.selector),
            policy=policy,
            oracle_seen={name: float(best.mean()) for name, best in zip(metrics, mean[len(metrics) :], strict=False)},
            rounds=self._round_sums[place] / self.n,
            notes=run_notes(policy, self._without[place]),
        )

    def _twin(self, place: int, run: Run) -> Run:
        """Return the mean run of a policy's random twin."""
        mean = self._twins[place] / self.n
        values = dict(zip(self.prepared.metric_names, mean, strict=False))
        policy = self.policies[place]
        return replace(
            run,
            label=f"random({run.label})",
            kind="random",
            worst=values,
            best=values,
            ledger=self._ledger(mean, policy),
            calls=self._calls_of(self._twin_calls[place]),
            reasons={},
            policy=None,
            oracle_seen=None,
            rounds=self._twin_rounds[place] / self.n,
            notes=twin_notes(strata_of(self._length(policy)), cut=False),
        )

    def _length(self, policy: Policy) -> Positions:
        """Return how many rounds a policy can see, shape ``(n_questions,)``."""
        index = self.prepared.recording.index
        read = (index >= policy.start_round) & (index <= policy.max_rounds)
        return np.asarray(self.prepared.recording.seen[:, read].sum(axis=1))

    def _calls_of(self, weights: Floats) -> tuple[Floats, Floats]:
        support = np.flatnonzero(weights)
        return support.astype(np.float64), weights[support] / self.n

    def _ledger(self, mean: Floats, policy: Policy) -> Ledger:
        """Return the mean costs; money is linear in tokens."""
        table = self.prepared.costs
        rows = dict(zip(self._kinds, mean[2 * len(self.prepared.metrics) : -1], strict=True))
        ran = self._length(policy) > 0
        costs: dict[str, dict[str, Floats]] = {}
        for component, columns in table.columns.items():
            costs[component] = {
                kind: rows.get((component, kind), np.where(ran & column.any(), np.nan, 0.0))
                for kind, column in columns.items()
            }
        money = np.zeros(self.prepared.n)
        for component, kinds in costs.items():
            money = money + table.money_of(component, kinds)
        return Ledger(costs=costs, calls=mean[-1], money=money)


def _weighted(share: Floats, column: Floats) -> Floats:
    """Return ``share @ column``, where an unknown value (NaN) matters only if its share is positive."""
    unknown = np.isnan(column)
    if not unknown.any():
        return share @ column
    total = share @ np.where(unknown, 0.0, column)
    total[(share @ unknown.astype(np.float64)) > 0] = np.nan
    return np.asarray(total)
