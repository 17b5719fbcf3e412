"""The random twin takes its shares of stops from the same questions, and its intervals know that."""

from __future__ import annotations

import numpy as np
import pytest

from suffice.evaluation.replay import policy_for, replay
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.compared import paired_differences
from suffice.evaluation.replay.costs import TOKEN_KINDS
from suffice.evaluation.replay.orders import drawn_orders, run_all
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.evaluation.replay.random_twins import random_stop
from suffice.evaluation.statistics import Resampling
from suffice.recordings.recording import Recording, write_recording
from suffice.recordings.schema import build_table
from suffice.verdicts.decisions.losses import measure_candidates
from tests.suffice.policy.test_votes import policy as vote, sampled

RULE = "answer_margin > 0.5"
HOW = Resampling(n_resamples=200)
JUDGE = {f"cost.judge:judge.{kind}": 7.0 for kind in TOKEN_KINDS}


def recording_of(n: int, *, seed: int = 0, signal: float = 0.0, copies: int = 0, judged: bool = False) -> Recording:
    """Return questions of two to four rounds, whose quality rises and whose margins know `signal` of it."""
    rng, rows = np.random.default_rng(seed), []
    for q in range(n):
        level = rng.random()
        for r in range(1, 5 - q % 3):
            score = float(level < (0.2, 0.5, 0.7, 0.8)[r - 1])
            row = {"question_id": f"q{q}", "round": r, "answer": str(score), "score": score, "end": "max_rounds"}
            row |= {"answer_margin": rng.normal() + signal * (score - 0.5), "cluster": str(q if q > copies else 0)}
            row |= {f"cost.generator.{kind}": float(rng.integers(1, 90)) for kind in TOKEN_KINDS}
            row |= {"cost.generator.calls": 1.0}
            rows.append(row | ({"judge": rng.random(), "cost.judge:judge.calls": 1.0, **JUDGE} if judged else {}))
    return Recording(build_table(rows, {"score": "metric", **({"judge": "signal"} if judged else {})}))


def twin_of(recording: Recording, selector: str = "last"):
    """Return prepared questions, and a rule's run, stops and twin."""
    prepared = PreparedRecording.of(recording, ["score"])
    policy = policy_for(recording, RULE, selector=selector)
    run, stopped = run_policy(prepared, policy)
    return prepared, run, stopped, random_stop(prepared, policy, stopped)


@pytest.mark.parametrize("cut", [False, True])
def test_the_influence_is_the_derivative_by_the_weight_of_a_question(cut):
    recording = recording_of(30)
    if cut:  # a rule ended every fifth question after a round
        rows = [row for row in recording.table.to_pylist() if int(row["question_id"][1:]) % 5 or row["round"] == 1]
        ended = [{**row, "end": row["end"] if int(row["question_id"][1:]) % 5 else "rule"} for row in rows]
        recording = Recording(build_table(ended, {"score": "metric"}))
    prepared, run, stopped, twin = twin_of(recording)
    assert run.unrun.any() == cut
    scores, width = prepared.metrics["score"], recording.seen.shape[1]
    lengths = np.where(prepared.cut, width, recording.seen.sum(axis=1))

    def mean(weights):
        """Deal out the stops of weighted questions to weighted questions, in plain loops; what never ran counts as 1."""
        total = 0.0
        for length in set(lengths.tolist()):
            alike = np.flatnonzero(lengths == length)
            for other in alike:
                for q in alike:
                    k = stopped.position[other]
                    given = 1.0 if run.unrun[other] or np.isnan(scores[q, k]) else scores[q, k]
                    total += weights[other] * weights[q] * given / weights[alike].sum()
        return total

    n, step = len(lengths), 1e-6
    even = np.full(n, 1 / n)
    np.testing.assert_allclose(mean(even), twin.best["score"].mean())
    for q in range(n):
        more, less = ((1 - h) * even + h * (np.arange(n) == q) for h in (step, -step))
        slope = (mean(more) - mean(less)) / (2 * step)
        ours = twin.best["score"][q] + twin.estimated.influence("score")[q] - twin.best["score"].mean()
        assert slope == pytest.approx(ours, abs=1e-8)


def test_the_influences_of_all_questions_add_up_to_zero():
    _, _, _, twin = twin_of(recording_of(40))
    for name in ("score", "calls", "tokens"):
        influence = twin.estimated.influence(name)
        assert influence.any()
        assert influence.sum() == pytest.approx(0.0, abs=1e-9)


def test_what_stops_cost_by_round_is_what_the_twin_is_charged():
    prepared, _, _, twin = twin_of(recording_of(60, judged=True), "max_judge")  # the judge is called on demand
    assert twin.ledger.costs["judge:judge"]["output_tokens"].sum() > 0
    for name in ("calls", "tokens"):
        sums = twin.estimated.sums[name]
        shares = {g: twin.estimated.stops[twin.estimated.group == g].mean(axis=0) for g in sums}
        assert sum(float(shares[g] @ sums[g]) for g in sums) == pytest.approx(twin.ledger.spent(name).sum())
    assert prepared.costs.components == ("generator", "judge:judge")


def test_influences_over_orders_use_the_stops_and_means_of_all_orders():
    rng = np.random.default_rng(1)
    recording = sampled(rng.choice(["a", "b", "c"], size=(12, 5)).tolist())
    prepared, policy, orders = PreparedRecording.of(recording, ["right"], samples=True), vote("lead(2)", 5), 6
    _, twins = run_all(prepared, [policy], orders, 3, twinned=[0])
    stops, values = np.zeros((12, 5)), np.zeros((12, 5))
    for places in drawn_orders(recording, orders, 3):
        moved = PreparedRecording.of(recording.reordered(places), ["right"], samples=True)
        values += moved.outcomes_by_stop(policy).values["right"] / orders
        for q, place in enumerate(moved.stops(policy).position.tolist()):
            stops[q, place] += 1 / orders
    shares, means = stops.mean(axis=0), values.mean(axis=0)
    expected = [sum((stops[q, k] - shares[k]) * means[k] for k in range(5)) for q in range(12)]
    np.testing.assert_allclose(twins[0].estimated.influence("right"), expected, atol=1e-12)


def test_blocks_of_orders_have_the_influences_of_all_orders_at_once(monkeypatch):
    rng = np.random.default_rng(1)
    recording = sampled(rng.choice(["a", "b", "c"], size=(12, 5)).tolist())
    prepared = PreparedRecording.of(recording, ["right"], samples=True)
    (_, whole), *_ = [run_all(prepared, [vote("lead(2)", 5)], 6, 3, twinned=[0])]
    monkeypatch.setattr("suffice.evaluation.replay.orders._VALUES", 130)
    _, parts = run_all(prepared, [vote("lead(2)", 5)], 6, 3, twinned=[0])
    np.testing.assert_allclose(parts[0].estimated.influence("right"), whole[0].estimated.influence("right"))


def test_a_file_in_blocks_has_the_intervals_of_the_recording_in_memory(tmp_path):
    recording = recording_of(90, signal=1.0)
    path = tmp_path / "rounds.parquet"
    write_recording(path, recording.table, kinds={"score": "metric"})
    how = {"baseline": f"random({RULE})", "metrics": "score", "resampling": HOW}
    whole, parts = replay(recording, RULE, **how), replay(path, RULE, jobs=1, block_rows=40, **how)
    for name in ("score", "calls", "tokens"):
        assert parts.rows[0].deltas[name].triple == pytest.approx(whole.rows[0].deltas[name].triple, abs=1e-12)


def test_a_rule_that_stops_everywhere_alike_is_exactly_its_twin():
    rows = replay(recording_of(40), "round >= 2", metrics="score", baseline="random(round >= 2)", resampling=HOW).rows
    for name in ("score", "calls", "tokens"):
        assert rows[0].deltas[name].triple == (0.0, 0.0, 0.0)


def test_a_rule_makes_exactly_the_calls_of_its_twin():
    row = replay(recording_of(60), RULE, metrics="score", baseline=f"random({RULE})", resampling=HOW).rows[0]
    assert row.deltas["calls"].triple == pytest.approx((0.0, 0.0, 0.0), abs=1e-12)
    assert row.deltas["calls"].n_nonzero > 0  # question by question they differ
    assert row.deltas["score"].high > row.deltas["score"].low


def test_pairs_count_as_different_without_what_the_shares_add():
    rows = recording_of(60).table.to_pylist()
    alike = [{**row, "score": 1.0 if row["question_id"] != "q0" or row["round"] > 1 else 0.0} for row in rows]
    recording = Recording(build_table(alike, {"score": "metric"}))
    delta = replay(recording, RULE, metrics="score", baseline=f"random({RULE})", resampling=HOW).rows[0].deltas["score"]
    assert delta.n_nonzero == 1
    assert delta.warning.startswith("only 1 pair differs")
    assert delta.p_exact == 1.0


@pytest.mark.parametrize("signal", [0.0, 1.5])
def test_the_interval_is_that_of_drawing_questions_and_dealing_stops_anew(signal):
    prepared, run, stopped, twin = twin_of(recording_of(300, seed=2, signal=signal))
    draws = Resampling(n_resamples=1500, interval="percentile").draws(prepared.recording.question_ids)
    delta = paired_differences([run], [twin], draws, n_policies=1)[0]["score"]
    scores, lengths = np.nan_to_num(prepared.metrics["score"]), prepared.recording.seen.sum(axis=1)
    stops = np.eye(scores.shape[1])[stopped.position]
    gains = []
    for weights in draws.by_row[:1500]:
        gain = weights @ run.values["score"]
        for length in set(lengths.tolist()):
            w = weights * (lengths == length)
            gain -= (w @ stops) @ (w @ scores) / w.sum()
        gains.append(gain / weights.sum())
    low, high = np.quantile(gains, [0.025, 0.975])
    assert delta.high - delta.low == pytest.approx(high - low, rel=0.05)
    plain = draws.paired(run.values["score"] - twin.values["score"])
    assert plain.high - plain.low > 1.1 * (high - low)  # what it was without the shares


def test_gains_in_a_decision_vary_by_unit_whatever_the_sizes_of_units():
    recording = recording_of(61, signal=1.0, copies=6)  # the first seven questions are one unit
    policies = [policy_for(recording, RULE)]
    totals = measure_candidates(recording, policies, "recorded", "score", with_twins=[0]).totals
    _, run, _, twin = twin_of(recording)
    clusters = recording.clusters
    gains, varying = {}, {}
    for q, name in enumerate(clusters):
        gain = run.values["score"][q] - twin.values["score"][q]
        gains.setdefault(name, []).append(gain)
        varying[name] = varying.get(name, 0.0) + twin.estimated.influence("score")[q]
    assert totals.n == len(gains) == 55
    squares = sum((np.mean(gains[name]) - varying[name] * 55 / 61) ** 2 for name in gains)
    assert totals.gains[0] == pytest.approx(sum(np.mean(each) for each in gains.values()))
    assert totals.squared_gains[0] == pytest.approx(squares * 61 / 60)


def test_unknown_outcomes_vary_at_the_least_gain():
    rows = recording_of(40, signal=1.0).table.to_pylist()
    unknown = [
        {**row, "score": None} if int(row["question_id"][1:]) % 5 == 0 and row["round"] == 2 else row for row in rows
    ]
    recording = Recording(build_table(unknown, {"score": "metric"}))
    totals = measure_candidates(recording, [policy_for(recording, RULE)], "recorded", "score", with_twins=[0]).totals
    prepared, run, stopped, _ = twin_of(recording)
    scores, lengths = prepared.metrics["score"], recording.seen.sum(axis=1)
    gains, varying = [], []
    for length in (2, 3, 4):
        alike = np.flatnonzero(lengths == length)
        at = {int(q): int(stopped.position[q]) for q in alike}
        most = {
            q: scores[q, :length] if not np.isnan(scores[q, [*set(at.values())]]).any() else np.ones(length) for q in at
        }
        mean = [np.mean([most[q][k] if k in at.values() else 0.0 for q in at]) for k in range(length)]
        dealt = np.mean([mean[k] for k in at.values()])
        for q, k in at.items():
            gains.append(np.nan_to_num(run.worst["score"][q]) - np.mean([most[q][other] for other in at.values()]))
            varying.append(gains[-1] - (mean[k] - dealt))
    assert any(np.isnan(scores[q, stopped.position[q]]) for q in range(40))
    assert totals.gains[0] == pytest.approx(sum(gains))
    assert totals.squared_gains[0] == pytest.approx(sum(each**2 for each in varying) * 40 / 39)


def test_a_single_question_gains_nothing_over_its_twin():
    recording = recording_of(1)
    totals = measure_candidates(recording, [policy_for(recording, RULE)], "recorded", "score", with_twins=[0]).totals
    assert (totals.gains.tolist(), totals.squared_gains.tolist()) == ([0.0], [0.0])
