"""Recorded samples: replay equals a live run, panels have prices by model, and nothing that was paid is lost."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

from suffice import Policy, Recorder, SamplingLoop, SufficeError, certify, read_recording, record, replay
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import Price, order_panel, policy_for
from suffice.evaluation.replay.orders import drawn_orders
from suffice.evaluation.replay.waves import due_in_waves
from suffice.evaluation.statistics import Resampling
from suffice.recordings import Recording, ResponseCache
from suffice.recordings.journal_file import read_records
from suffice.recordings.schema import build_table
from suffice.verdicts.certificates import Claim
from tests.support import children, sampling
from tests.support.endpoint import Endpoint
from tests.support.sampling import (
    SAMPLES,
    VOTES,
    answer_of,
    assert_replayed,
    loop,
    models_of,
    questions,
    reply,
    sample_of,
    several,
    text_of,
)

RULES = [
    "never()",
    "lead(2)",
    "lead(3)",
    "adaptive_consistency(.9)",
    "esc(2)",
    "settled(8)",
    "vote_share >= 0.6",
    "calls >= 3",
]
DRAWS = Resampling(n_resamples=10)


@pytest.fixture(scope="module")
def samples(tmp_path_factory):
    """An endpoint whose usage does not depend on earlier requests, and what was recorded of it."""
    path = tmp_path_factory.mktemp("samples") / "r.parquet"
    with Endpoint(reply, usage="plain") as endpoint:
        record(questions(), loop(endpoint), path)
        yield endpoint, read_recording(path)


def test_a_recording_of_samples_says_so_and_is_treated_as_samples(samples):
    _, recording = samples
    assert recording.exchangeable
    assert recording.metadata["normalizer"] == "qa"
    assert recording.metadata["depends"] == {"model": "m", "prompt_id": "answer_first@1", "temperature": 0.7}
    assert recording.answers[0].tolist() == list(VOTES)
    assert set(recording.objects("model").reshape(-1)) == {"m"}
    assert str(policy_for(recording, "lead(2)").selector) == "majority_of_samples"
    result = replay(recording, ["lead(2)"], metrics="em", resampling=DRAWS)
    assert any("100 random orders" in note for note in result.notes)
    certified = certify(recording, ["lead(3)"], Claim(epsilon=0.9, metric="em", orders=7))
    assert "over 7 random orders" in str(certified.to_dict())


@pytest.mark.parametrize("rule", RULES)
def test_replay_equals_live_decisions(samples, rule):
    endpoint, recording = samples
    policy = replace(policy_for(recording, rule), provenance={})
    live = SamplingLoop(model=models_of(endpoint), policy=policy)
    outcomes = [live.run(question.question) for question in questions()]
    assert_replayed(recording, policy, outcomes)
    waves = replace(live, wave=3)
    for question, one in zip(questions(2), outcomes[:2], strict=True):
        outcome = waves.run(question.question)
        assert outcome.decision.to_dict() == one.decision.to_dict()
        assert outcome.cost.calls == min(SAMPLES, -(-len(one.rounds) // 3) * 3)


def test_answers_are_compared_by_the_normalizer_of_the_loop(tmp_path):
    numbers = ["18", "18.0", "eighteen", "20"]
    path = tmp_path / "r.parquet"
    asked = [replace(question, answers=("18",)) for question in questions(2)]
    with Endpoint(lambda body: text_of(numbers[sample_of(body)[1] - 1])) as endpoint:
        asks = loop(endpoint, samples=4)
        asks = replace(asks, policy=replace(asks.policy, normalizer="number"))
        record(asked, asks, path)
        with pytest.raises(ConfigMismatchError, match="normalizer"):
            record(asked, loop(endpoint, samples=4), path)
    recording = read_recording(path)
    assert recording.metadata["normalizer"] == policy_for(recording, "lead(2)").normalizer == "number"
    assert recording.column("match").tolist() == [[1.0, 1.0, 0.0, 0.0]] * 2
    assert "match" in recording.names("metric")
    assert recording.column("em").tolist() == [[1.0, 0.0, 0.0, 0.0]] * 2


def test_a_panel_is_replayed_in_its_order_with_prices_by_model(tmp_path):
    path = tmp_path / "panel.parquet"
    with Endpoint(reply, usage="plain") as endpoint:
        models = models_of(endpoint, ["cheap-1.5", "org/dear"])
        asks = loop(endpoint, model=[models[0], models[0], models[1]], samples=6)
        summary = record(questions(), asks, path)
        recording = read_recording(path)
        policy = policy_for(recording, "lead(2)")
        live = replace(asks, policy=policy)
        outcomes = [live.run(question.question) for question in questions()]
    assert recording.independent
    assert not recording.exchangeable
    assert str(policy.selector) == "majority_of_samples"
    assert policy.depends["model"] == "cheap-1.5 + org/dear"
    assert_replayed(recording, policy, outcomes)
    assert recording.objects("model")[0].tolist() == ["cheap-1.5", "cheap-1.5", "org/dear"] * 2
    assert {name: cost.calls for name, cost in summary.costs.items()} == {
        "generator:cheap-1.5": 24,
        "generator:org/dear": 12,
    }
    prices = {
        "generator:cheap-1.5": Price(uncached=1, cached=1, output=2),
        "generator:org/dear": Price(uncached=10, cached=10, output=20),
    }
    expected = []
    for outcome in outcomes:
        usd = 0.0
        for observed in outcome.rounds:
            cost, times = observed.costs["generator"], 10 if observed.index % 3 == 0 else 1
            usd += times * (cost.uncached_tokens + cost.cached_tokens + 2 * cost.output_tokens) / 1e6
        expected.append(usd)
    by_name = {name.partition(":")[2]: price for name, price in prices.items()}
    row = replay(recording, [policy], metrics="em", prices=by_name, resampling=DRAWS).row(policy.label)
    assert row.costs["money"] == pytest.approx(np.mean(expected))
    one = {"generator": Price(uncached=1, cached=1, output=1)}
    row = replay(recording, [policy], metrics="em", prices=one, resampling=DRAWS).row(policy.label)
    assert row.costs["money"] == pytest.approx(row.costs["tokens"] / 1e6)
    row = replay(recording, [policy], metrics="em", prices=prices, resampling=DRAWS).row(policy.label)
    assert row.costs["money"] == pytest.approx(np.mean(expected))
    assert row.components["generator:org/dear"]["calls"] == pytest.approx(
        np.mean([sum(r.index % 3 == 0 for r in outcome.rounds) for outcome in outcomes])
    )


def test_waves_are_recorded_together_and_a_second_run_asks_nothing(tmp_path):
    path = tmp_path / "r.parquet"
    with Endpoint(reply, holds=lambda _: len(endpoint.requests) < 4) as endpoint:
        record(questions(2), loop(endpoint, wave=4), path, concurrency=1)
        assert endpoint.most_running == 4
        assert record(questions(2), loop(endpoint, wave=2), path).cost.calls == 0  # the same samples, whatever the wave
        assert len(endpoint.requests) == 2 * SAMPLES
    assert read_recording(path).answers[1].tolist() == [answer_of(1, r) for r in range(1, SAMPLES + 1)]


def test_a_failure_in_the_middle_of_a_wave_loses_no_reply(tmp_path):
    path = tmp_path / "r.parquet"
    broken = {(0, 3)}
    with Endpoint(reply, fault=lambda body: "400" if sample_of(body) in broken else None) as endpoint:
        asks = loop(endpoint, wave=4)
        assert list(record(questions(2), asks, path).failed) == ["q0"]
        assert read_recording(path).ends.tolist() == ["failed", "max_rounds"]
        broken.clear()
        record(questions(2), asks, path)
        sent = Counter(sample_of(request.body) for request in endpoint.requests)
    assert sent[0, 3] == 2
    assert {count for sample, count in sent.items() if sample != (0, 3)} == {1}  # the fourth of the wave was kept
    assert read_recording(path).answers[0].tolist() == list(VOTES)


def test_equal_requests_of_a_recording_have_replies_of_their_own(tmp_path):
    numbers = iter(range(100))
    with Endpoint(lambda _: f"Answer: {next(numbers)}") as endpoint, ResponseCache(tmp_path / "cache.sqlite") as cache:
        asks = loop(endpoint, seed=None, model=models_of(endpoint, cache=cache), samples=4)
        record(questions(1), asks, tmp_path / "a.parquet")
        assert record(questions(1), asks, tmp_path / "b.parquet").cost.calls == 0
        assert len(endpoint.requests) == 4
    for name in "ab":
        assert read_recording(tmp_path / f"{name}.parquet").answers.tolist() == [["0", "1", "2", "3"]]


@pytest.mark.parametrize("parallel", [False, True])
def test_choices_of_one_request_are_recorded_with_its_cost(tmp_path, parallel):
    path = tmp_path / "r.parquet"
    with Endpoint(several) as endpoint:
        asks = loop(endpoint, wave=3, use_n=True)
        summary = record(questions(2), asks, path, parallel_rounds=parallel)
        assert len(endpoint.requests) == 2 * 3
        assert summary.cost.calls == pytest.approx(2 * 3)
    recording = read_recording(path)
    assert recording.answers[0].tolist() == list(VOTES)
    assert recording.column("cost.generator.calls")[0] == pytest.approx([1 / 3] * 6 + [1 / 2] * 2)
    assert recording.column("cost.generator.output_tokens").sum() == pytest.approx(2 * 3 * SAMPLES)


def test_choices_that_were_committed_are_not_requested_again(tmp_path):
    path = tmp_path / "r.parquet"
    broken = {(0, 4)}
    with Endpoint(several, fault=lambda body: "400" if sample_of(body) in broken else None) as endpoint:
        asks = loop(endpoint, wave=3, use_n=True)
        assert list(record(questions(2), asks, path).failed) == ["q0"]
        broken.clear()
        record(questions(2), asks, path)
        sent = Counter(sample_of(request.body) for request in endpoint.requests)
    assert sent == {(0, 1): 1, (0, 4): 2, (0, 7): 1, (1, 1): 1, (1, 4): 1, (1, 7): 1}
    assert read_recording(path).answers[0].tolist() == list(VOTES)


@pytest.mark.whole
def test_a_killed_recording_goes_on_without_repeating_a_call(tmp_path):
    killed, whole = tmp_path / "killed.parquet", tmp_path / "whole.parquet"
    with Endpoint(reply, usage="plain") as endpoint:
        endpoint.allow = 20
        child, pipe = children.told(sampling.run, endpoint.url, str(killed))
        with pipe:
            for _ in range(16):
                assert pipe.recv() == "ready"
            children.killed(child)
        safe = {
            (int(record[1][1:]), r)
            for record in read_records(killed.with_name("killed.parquet.journal"))
            if record[0] == "replies"
            for r, _, _ in record[2]
        }
        endpoint.allow = None
        record(questions(), loop(endpoint, wave=3), killed)
        sent = Counter(sample_of(request.body) for request in endpoint.requests)
        record(questions(), loop(endpoint), whole)
    assert len(safe) >= 14  # a finished question is reported, too
    assert {sent[sample] for sample in safe} == {1}
    assert len(sent) == 6 * SAMPLES
    names = ["question_id", "round", "answer", "text", "cost.generator.output_tokens"]
    tables = [read_recording(path).table.select(names) for path in (killed, whole)]
    assert tables[0].equals(tables[1])


# --- loops of one's own -------------------------------------------------------------------------------------------------


def test_the_recorder_marks_samples_of_a_loop_of_ones_own(tmp_path):
    path = tmp_path / "own.parquet"
    with Recorder(path, max_rounds=3, samples=True, normalizer="number", golds={"How many?": "18"}) as recorder:
        for answers in (["18", "18.0", "no idea"], ["17", "18", "17.00"]):
            with recorder.question("How many?") as run:
                for answer in answers:
                    run.observe(answer)
    recording = read_recording(path)
    assert recording.exchangeable
    assert policy_for(recording, "lead(2)").normalizer == "number"
    assert recording.column("match").tolist() == [[1.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    row = replay(recording, ["settled(3)"], resampling=DRAWS).row("settled(3)")
    assert row.metrics["match"] == 0.5
    with Recorder(path, max_rounds=3, samples=True, normalizer="number"):
        pass  # the same settings
    with pytest.raises(ConfigMismatchError, match="-> None"):
        Recorder(path, max_rounds=3)
    with pytest.raises(ConfigMismatchError, match="-> 'qa'"):
        Recorder(path, max_rounds=3, samples=True)


def test_a_sequential_recording_has_a_normalizer_too(tmp_path):
    path = tmp_path / "own.parquet"
    with Recorder(path, max_rounds=3, normalizer="number", golds={"How many?": "18"}) as recorder:
        for answers in (["-18", "18.0", "18"], ["17", "18", "18.00"]):
            with recorder.question("How many?") as run:
                for answer in answers:
                    run.observe(answer)
    recording = read_recording(path)
    assert (recording.exchangeable, recording.metadata["normalizer"]) == (False, "number")
    assert recording.column("match").tolist() == [[0.0, 1.0, 1.0], [0.0, 1.0, 1.0]]
    assert policy_for(recording, "answer_stable").normalizer == "number"
    with pytest.raises(ConfigMismatchError, match="normalizer"):
        Recorder(path, max_rounds=3)


def test_the_recorder_compares_samples_as_its_policy_does(tmp_path):
    policy = Policy(rule="lead(2)", selector="majority_of_samples", normalizer="letter", max_rounds=5)
    with Recorder(tmp_path / "r.parquet", policy=policy, samples=True) as recorder, recorder.question("Which?") as run:
        run.observe("(a)")
        assert run.observe("A) Paris").stop
    assert read_recording(tmp_path / "r.parquet").metadata["normalizer"] == "letter"
    for options, message in (
        ({"policy": policy, "samples": True, "normalizer": "number"}, "'letter'"),
        ({"samples": True, "normalizer": "nubmer"}, "'number'"),
    ):
        with pytest.raises(SufficeError, match=message):
            Recorder(tmp_path / "other.parquet", **options)


# --- waves in the ledger --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wave", [2, 3, 8])
def test_replay_charges_waves_as_a_live_run_pays_them(samples, wave):
    endpoint, recording = samples
    policy = policy_for(recording, "lead(2)")
    live = SamplingLoop(model=models_of(endpoint), policy=policy, wave=wave)
    outcomes = [live.run(question.question) for question in questions()]
    row = replay(recording, [policy], metrics="em", orders=1, wave=wave, resampling=DRAWS).row(policy.label)
    assert row.calls.mean == np.mean([outcome.cost.calls for outcome in outcomes])
    tokens = recording.column("cost.generator.output_tokens")
    paid = [tokens[q, : int(outcome.cost.calls)].sum() for q, outcome in enumerate(outcomes)]
    assert row.costs["output_tokens"] == pytest.approx(np.mean(paid))
    alone = replay(recording, [policy], metrics="em", orders=1, resampling=DRAWS).row(policy.label)
    assert alone.calls.mean < row.calls.mean
    assert alone.costs["seconds"] > row.costs["seconds"]  # latency against calls
    assert alone.stop_rounds == row.stop_rounds


def test_waves_in_random_orders_cost_the_same_by_either_path(samples):
    _, recording = samples
    policies = [policy_for(recording, rule) for rule in ("lead(2)", "settled(8)")]
    whole = replay(recording, policies, metrics="em", orders=20, wave=3, resampling=DRAWS)
    table = recording.table.append_column("cost.judge:x.calls", [[0.0] * recording.table.num_rows])
    judged = Recording(table, recording.metadata)  # a component on demand: policy by policy, order by order
    slow = replay(judged, policies, metrics="em", orders=20, wave=3, resampling=DRAWS)
    for policy in policies:
        one, other = whole.row(policy.label), slow.row(policy.label)
        assert one.calls.mean == pytest.approx(other.calls.mean)
        for kind in ("calls", "output_tokens", "uncached_tokens", "seconds"):
            assert one.components["generator"][kind] == pytest.approx(other.components["generator"][kind]), kind
        assert (
            one.calls.mean > replay(recording, [policy], metrics="em", orders=20, resampling=DRAWS).rows[0].calls.mean
        )
        assert any("3 at once" in note for note in whole.notes)


def test_choices_of_one_request_are_charged_as_whole_requests(tmp_path):
    path = tmp_path / "r.parquet"
    with Endpoint(several) as endpoint:
        asks = loop(endpoint, wave=4, use_n=True)
        record(questions(), asks, path)
        recording = read_recording(path)
        policy = policy_for(recording, "lead(2)")
        outcomes = [replace(asks, policy=policy).run(question.question) for question in questions()]
    for kind in ("calls", "output_tokens", "uncached_tokens"):
        mean = np.mean([getattr(outcome.cost, kind) for outcome in outcomes])
        for orders in (1, 10):
            row = replay(recording, [policy], metrics="em", orders=orders, resampling=DRAWS).row(policy.label)
            assert row.components["generator"]["calls"] >= 1  # never a part of a request
            if orders == 1:
                assert row.components["generator"][kind] == pytest.approx(mean)
    capped = replace(policy, max_rounds=3, name="up to 3")  # a request for three choices is one request, too
    for orders in (1, 10):
        row = replay(recording, [capped], metrics="em", orders=orders, resampling=DRAWS).row("up to 3")
        assert row.components["generator"]["calls"] == pytest.approx(1)
    with pytest.raises(DataError, match="4 choices"):
        replay(recording, [policy], wave=2)


def test_a_wave_needs_independent_rounds(samples):
    _, recording = samples
    ordered = Recording(recording.table, {**recording.metadata, "exchangeable": False})
    with pytest.raises(DataError, match="follow"):
        replay(ordered, ["fixed_k(2)"], metrics="em", wave=2)
    for wave in (0, True, 1.5):
        with pytest.raises(DataError, match="least 1"):
            replay(recording, ["lead(2)"], metrics="em", wave=wave)
    seconds = np.array([[1.0, 2.0, 5.0, 3.0, 1.0]])
    assert due_in_waves(seconds, "seconds", 2, before=1).tolist() == [[1.0, 2.0, 3.0, 3.0, 0.0]]
    assert due_in_waves(seconds, "calls", 2, before=1).tolist() == [[1.0, 7.0, 0.0, 4.0, 0.0]]
    assert due_in_waves(seconds, "calls", 1) is seconds


N = 12
"""Questions of the simulation."""


def in_waves(answers, seconds, cap, wave):
    """Return calls and waiting time of one question that stops at a lead of 2, as plainly as can be."""
    votes, waited, slowest, requested = Counter(), 0.0, 0.0, 0
    for number, (answer, own) in enumerate(zip(answers[:cap], seconds, strict=False)):
        if number % wave == 0:
            waited, slowest, requested = waited + slowest, 0.0, min(number + wave, len(answers), cap)
        slowest = max(slowest, own)
        votes[answer] += 1
        first, second = ([*sorted(votes.values(), reverse=True), 0])[:2]
        if first - second >= 2:
            break
    return requested, waited + slowest


@pytest.mark.parametrize(("kind", "orders"), [("independent", 1), ("exchangeable", 1), ("exchangeable", 3)])
def test_waves_cost_what_a_plain_simulation_of_them_costs(kind, orders):
    rng = np.random.default_rng(3)
    rows, logs = [], []
    for q in range(N):
        n = 10 if q == 0 else int(rng.integers(1, 11))
        answers, seconds = rng.choice(list("aab"), n).tolist(), rng.exponential(1.0, n).round(2).tolist()
        logs.append((answers, seconds))
        for r, (answer, own) in enumerate(zip(answers, seconds, strict=True)):
            # Another model each time, so each model has a component of its own.
            row = {"question_id": f"q{q}", "round": r + 1, "answer": answer, "right": float(answer == "a")}
            cost = {"cost.generator.calls": 1.0, "cost.generator.seconds": own}
            rows.append(row | cost | {"model": "xyz"[r % 3] if kind == "independent" else "x"})
    recording = Recording(build_table(rows, {"right": "metric", "model": "label"}), {kind: True})
    draws = [recording]
    if orders > 1:
        draws = [recording.reordered(places) for places in drawn_orders(recording, orders, 42)]
        logs = [
            (one.answers[q][one.seen[q]].tolist(), one.column("cost.generator.seconds")[q][one.seen[q]].tolist())
            for one in draws
            for q in range(N)
        ]
    for cap in (10, 7, 5):
        policy = Policy(rule="lead(2)", selector="majority_of_samples", max_rounds=cap, name=f"up to {cap}")
        for wave in (1, 3, 4):
            result = replay(recording, [policy], metrics="right", wave=wave, orders=orders, resampling=DRAWS)
            row = result.row(policy.label)
            calls, seconds = np.mean([in_waves(*log, cap, wave) for log in logs], axis=0)
            assert (row.calls.mean, row.costs["seconds"]) == pytest.approx((calls, seconds)), (cap, wave)
            twin = result.row(f"random({policy.label})")
            assert twin.calls.mean <= max(cap, calls) + 1e-9


def test_a_model_with_two_answers_in_a_panel_has_their_mean(tmp_path):
    path = tmp_path / "panel.parquet"
    with Endpoint(lambda body: text_of("Oslo" if body["model"] == "good" else "Lima")) as endpoint:
        models = models_of(endpoint, ["bad", "good"])
        asks = loop(endpoint, model=[models[0], models[1], models[1]], samples=3)
        record(questions(24), asks, path)
    panel = order_panel(read_recording(path), metric="em")
    assert panel.best == "good"
    assert {member.name: member.score for member in panel.members} == {"good": 1.0, "bad": 0.0}
    assert [panel.recording.objects("model")[0].tolist()] == [["good"] * 2 + ["bad"]]
    for wave in (None, 3):
        result = replay(panel.recording, ["lead(2)"], metrics="em", wave=wave, resampling=DRAWS)
        single = result.row("best_single")
        assert (single.metrics["em"], single.calls.mean) == (1.0, 1.0)  # one answer, requested by itself
        assert result.row("lead(2)").calls.mean == (wave or 2)
