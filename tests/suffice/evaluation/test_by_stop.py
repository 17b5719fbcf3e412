"""Several orders at once give the means of each order replayed by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from operator import attrgetter

import numpy as np
import pytest

from suffice.evaluation.replay.baselines import oracle_best, oracle_earliest, run_policy
from suffice.evaluation.replay.orders import drawn_orders, mean_runs, run_all
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.random_twins import random_stop
from suffice.policy.calibration import Calibrator
from suffice.policy.normalizers import _ALL_NORMALIZERS, Grouping
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.suffice.policy.test_votes import policy, sampled


def one_by_one(prepared, n, seed, runs_of):
    """Return the runs in each order by itself, from a recording whose rounds were moved."""
    orders = drawn_orders(prepared.recording, n, seed)
    moved = [replace(prepared, recording=prepared.recording.reordered(places)) for places in orders]
    return [Means(runs) for runs in zip(*map(runs_of, moved), strict=True)]


class Means:
    """The means of runs, added up in plain loops."""

    def __init__(self, runs):
        self.runs = runs
        first = runs[0]
        self.label, self.kind, self.selector, self.policy = first.label, first.kind, first.selector, first.policy
        self.notes = first.notes

    def mean(self, value):
        return sum(value(run) for run in self.runs) / len(self.runs)

    def by_name(self, value):
        names = dict.fromkeys(name for run in self.runs for name in value(run))
        return {name: sum(value(run).get(name, 0.0) for run in self.runs) / len(self.runs) for name in names}


def same_runs(ours, theirs):
    """Assert that two runs give and cost the same."""
    assert (ours.label, ours.kind, ours.selector, ours.policy) == (
        theirs.label,
        theirs.kind,
        theirs.selector,
        theirs.policy,
    )
    close = partial(np.testing.assert_allclose, atol=1e-9)
    for figures in map(attrgetter, ("worst", "best")):
        for name, values in theirs.by_name(figures).items():
            close(figures(ours)[name], values, err_msg=name)
    for component in ours.ledger.costs:
        costs = partial(lambda component, run: run.ledger.costs[component], component)
        for kind, values in theirs.by_name(costs).items():
            close(costs(ours)[kind], values, err_msg=f"{component} {kind}")
    close(ours.ledger.calls, theirs.mean(lambda run: run.ledger.calls))
    close(ours.ledger.money, theirs.mean(lambda run: run.ledger.money))
    weights = {}
    for run in theirs.runs:
        for calls, weight in zip(*map(np.ndarray.tolist, run.calls), strict=True):
            weights[calls] = weights.get(calls, 0.0) + weight / len(theirs.runs)
    assert dict(zip(*map(np.ndarray.tolist, ours.calls), strict=True)) == pytest.approx(
        {calls: weight for calls, weight in weights.items() if weight}
    )
    assert ours.stop_rounds == pytest.approx(theirs.by_name(lambda run: run.stop_rounds))
    if ours.oracle_seen is not None:
        assert ours.oracle_seen == pytest.approx(theirs.by_name(lambda run: run.oracle_seen))
    close(ours.rounds, theirs.mean(lambda run: run.rounds))
    assert ours.notes == theirs.notes
    assert ours.reasons == pytest.approx(theirs.by_name(lambda run: run.reasons))


@pytest.mark.parametrize("start", [0, 1])
@pytest.mark.parametrize("gated", [False, True])
def test_orders_at_once_are_each_order_by_itself(start, gated):
    rng = np.random.default_rng(start)
    rows = []
    for q, n in enumerate(rng.integers(1, 7, 16).tolist()):
        for r in range(start, start + n):
            unread = rng.random() < 0.15
            rows.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "answer": None if unread else str(rng.choice(["a", "b", "c", "  "])),
                    "right": float(rng.integers(0, 2)),
                    "answer_margin": float(rng.normal()),
                    "judge": float(rng.random()),
                    "cost.judge:judge.calls": 1.5,
                    **({"cost.gate.calls": float(r == 0)} if gated else {}),
                    "end": "exhausted" if q % 3 else "failed" if q == 0 else "max_rounds",
                    "cost.generator.calls": float(rng.integers(1, 3)),
                    "cost.generator.output_tokens": float("nan") if q == 5 and r == start + n - 1 else 7.0 * r,
                }
            )
    kinds = {"right": "metric", "judge": "signal"}
    recording = Recording(build_table(rows, kinds), {"exchangeable": True})
    prepared = PreparedRecording.of(
        recording, ["right"], samples=True, prices=Price(uncached=1.0, cached=1.0, output=2.0)
    )
    margins = rng.normal(size=200)
    margin = Calibrator(signal="answer_margin", output="p_correct", per_round=False).fit(
        margins, margins + rng.normal(size=200) > 0, index=np.ones(200)
    )
    policies = [
        policy("lead(2)", 6),
        policy("posterior_majority >= 0.8", 4),
        policy("esc(2)", 6),
        policy("vote_entropy < 0.5", 3),
        replace(policy("lead(1)", 6), selector="last", normalizer="exact"),
        replace(policy("weighted_vote_share > 0.6", 6), selector="weighted_majority_of_samples", calibrators=(margin,)),
        replace(policy("lead(2)", 6), start_round=start),
        replace(policy("answer_margin > 1", 6), selector="max_answer_margin"),
        policy("lead(1) & judge > 0.5", 6),  # the judge is called where the vote leads
        replace(policy("lead(2)", 6), selector="weighted_majority_of_samples(answer_margin)"),  # weights below 0
    ]
    orders = 3
    quick, dealt = run_all(prepared, policies, orders, 3, twinned=range(len(policies)))
    slow = one_by_one(prepared, orders, 3, lambda one: [run_policy(one, each)[0] for each in policies])
    twins = one_by_one(
        prepared, orders, 3, lambda one: [random_stop(one, each, run_policy(one, each)[1]) for each in policies]
    )
    for place, (ours, theirs) in enumerate(zip(quick, slow, strict=True)):
        same_runs(ours, theirs)
        same_runs(dealt[place], twins[place])


def test_oracles_are_means_over_each_order():
    rng = np.random.default_rng(5)
    recording = sampled(rng.choice(["a", "b", "c"], size=(12, 6)).tolist())
    prepared = PreparedRecording.of(recording, ["right"], samples=True)

    def oracles(one):
        return [oracle_earliest(one, one.metrics["right"]), oracle_best(one, one.metrics["right"])]

    for ours, theirs in zip(mean_runs(prepared, 5, 3, oracles), one_by_one(prepared, 5, 3, oracles), strict=True):
        same_runs(ours, theirs)


class NextTo(Grouping):
    """An answer is the same as the one before it, whatever they say."""

    def ids(self, answers):
        return [float(place // 2) for place in range(len(answers))]


def test_each_order_is_grouped_by_itself(monkeypatch):
    monkeypatch.setitem(_ALL_NORMALIZERS, "next_to", NextTo())
    rng = np.random.default_rng(1)
    texts = rng.choice(["a", "b"], size=(20, 5)).tolist()
    prepared = PreparedRecording.of(sampled(texts), ["right"], samples=True)
    grouped = replace(policy("lead(2)", 5), normalizer="next_to")
    ours, _ = run_all(prepared, [grouped], 4, 9)
    (theirs,) = one_by_one(prepared, 4, 9, lambda one: [run_policy(one, grouped)[0]])
    same_runs(ours[0], theirs)
    assert ours[0].rounds.tolist() == [2.0] * 20  # the first two, in every order


@pytest.mark.parametrize("values", [1, 150])
def test_orders_come_in_blocks_that_bound_the_memory(monkeypatch, values):
    rng = np.random.default_rng(2)
    prepared = PreparedRecording.of(
        sampled(rng.choice(["a", "b", "c"], size=(10, 6)).tolist()), ["right"], samples=True
    )
    policies, seen = [policy("lead(2)", 6), policy("fixed_k(3)", 6)], []
    whole, dealt = run_all(prepared, policies, 5, 3, twinned=[0], each=seen.append)
    monkeypatch.setattr("suffice.evaluation.replay.orders._VALUES", values)
    parts, twins = run_all(prepared, policies, 5, 3, twinned=[0], each=seen.append)
    for ours, theirs in zip([*parts, twins[0]], [*whole, dealt[0]], strict=True):
        same_runs(ours, Means([theirs]))
    assert [part.shape[1] for part in seen] == ([5, 1, 1, 1, 1, 1] if values == 1 else [5, 2, 2, 1])
    np.testing.assert_array_equal(seen[0], np.concatenate(seen[1:], axis=1))
