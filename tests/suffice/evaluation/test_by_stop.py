"""Many policies in many orders at once: what is looked up is what each policy gives by itself."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.by_stop import _plain_costs, run_all
from suffice.evaluation.replay.orders import mean_runs
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.prices import Price
from suffice.evaluation.replay.random_twins import random_stop
from suffice.policy.calibration import Calibrator
from suffice.policy.normalizers import _ALL_NORMALIZERS, Grouping
from suffice.recordings.recording import Recording
from suffice.recordings.schema import build_table
from tests.suffice.policy.test_votes import policy, sampled


def same_runs(ours, theirs):
    """Assert that two runs give and cost the same."""
    assert (ours.label, ours.kind, ours.selector, ours.policy) == (
        theirs.label,
        theirs.kind,
        theirs.selector,
        theirs.policy,
    )
    close = partial(np.testing.assert_allclose, atol=1e-9)
    for name in theirs.worst:
        close(ours.worst[name], theirs.worst[name], err_msg=name)
        close(ours.best[name], theirs.best[name])
    for component, kinds in theirs.ledger.costs.items():
        for kind, values in kinds.items():
            close(ours.ledger.costs[component][kind], values, err_msg=f"{component} {kind}")
    close(ours.ledger.calls, theirs.ledger.calls)
    close(ours.ledger.money, theirs.ledger.money)
    weights = [{c: w for c, w in zip(*run.calls, strict=True) if w > 1e-9} for run in (ours, theirs)]
    assert weights[0] == pytest.approx(weights[1])
    assert ours.stop_rounds == pytest.approx(theirs.stop_rounds)
    assert ours.oracle_seen == (theirs.oracle_seen if theirs.oracle_seen is None else pytest.approx(theirs.oracle_seen))
    close(ours.rounds, theirs.rounds)
    assert ours.notes == theirs.notes
    assert {k: v for k, v in ours.reasons.items() if v} == {k: v for k, v in theirs.reasons.items() if v}


@pytest.mark.parametrize("start", [0, 1])
def test_all_policies_at_once_are_each_policy_by_itself_in_each_order(start):
    rng = np.random.default_rng(start)
    rows = []
    for q, n in enumerate(rng.integers(1, 7, 30).tolist()):
        for r in range(start, start + n):
            unread = rng.random() < 0.15
            rows.append(
                {
                    "question_id": f"q{q}",
                    "round": r,
                    "answer": None if unread else str(rng.choice(["a", "b", "c", "  "])),
                    "right": float(rng.integers(0, 2)),
                    "answer_margin": float(rng.normal()),
                    "end": "exhausted" if q % 3 else "failed" if q == 0 else "max_rounds",
                    "cost.generator.calls": float(rng.integers(1, 3)),
                    "cost.generator.output_tokens": float("nan") if q == 5 and r == start + n - 1 else 7.0 * r,
                }
            )
    recording = Recording(build_table(rows, {"right": "metric"}), {"exchangeable": True})
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
        replace(policy("lead(2)", 6), selector="weighted_majority_of_samples(answer_margin)"),  # weights below 0
    ]
    orders = 7
    quick, dealt = run_all(prepared, policies, orders, 3, twinned=range(len(policies)))
    assert _plain_costs(prepared.costs)
    slow = mean_runs(prepared, orders, 3, lambda one: [run_policy(one, each)[0] for each in policies])
    twins = mean_runs(
        prepared, orders, 3, lambda one: [random_stop(one, each, run_policy(one, each)[1]) for each in policies]
    )
    for place, (ours, theirs) in enumerate(zip(quick, slow, strict=True)):
        same_runs(ours, theirs)
        same_runs(dealt[place], twins[place])


class NextTo(Grouping):
    """An answer is the same as the one before it, whatever they say."""

    def ids(self, answers):
        return [float(place // 2) for place in range(len(answers))]


def test_orders_are_grouped_separately_where_the_normalizer_depends_on_order(monkeypatch):
    monkeypatch.setitem(_ALL_NORMALIZERS, "next_to", NextTo())
    rng = np.random.default_rng(1)
    texts = rng.choice(["a", "b"], size=(20, 5)).tolist()
    prepared = PreparedRecording.of(sampled(texts), ["right"], samples=True)
    grouped = replace(policy("lead(2)", 5), normalizer="next_to")
    ours, _ = run_all(prepared, [grouped], 4, 9)
    (theirs,) = mean_runs(prepared, 4, 9, lambda one: [run_policy(one, grouped)[0]])
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
    monkeypatch.setattr("suffice.evaluation.replay.by_stop._VALUES", values)
    parts, twins = run_all(prepared, policies, 5, 3, twinned=[0], each=seen.append)
    for ours, theirs in zip([*parts, twins[0]], [*whole, dealt[0]], strict=True):
        same_runs(ours, theirs)
    assert [part.shape[1] for part in seen] == ([5, 1, 1, 1, 1, 1] if values == 1 else [5, 2, 2, 1])
    np.testing.assert_array_equal(seen[0], np.concatenate(seen[1:], axis=1))
