"""Live sampling against llama.cpp's own server: seeds, waves, cancelled calls, several choices, and live = replayed.

The server has one slot, so that no other request changes the batch in which a sample is computed.
"""

from __future__ import annotations

import asyncio
import json
import math
from dataclasses import replace

import pytest

from suffice import ChatModel, EscalationLoop, Policy, SamplingLoop, read_recording, record
from suffice.evaluation.replay import policy_for
from suffice.loops.models._http import AsyncBoundedClient
from suffice.loops.retrieval import Question
from suffice.loops.sampling_loop import sample_seed
from tests.support import llamacpp
from tests.support.sampling import assert_replayed

pytestmark = pytest.mark.whole

SAMPLES = 8


@pytest.fixture(scope="module")
def server(taught_model):
    with llamacpp.start_server(taught_model, slots=1) as running:
        yield running


@pytest.fixture(scope="module")
def asked():
    """Questions of which the model knows half; about the others it guesses."""
    return [
        Question(question_id=f"q{i}", question=q.question, answers=(q.answer,))
        for i, q in enumerate(llamacpp.questions(4, seed=5))
    ]


def loop(server, **options):
    model = ChatModel(
        "tiny", base_url=server.url, max_retries=0, max_tokens=24, top_logprobs=options.pop("top_logprobs", None)
    )
    policy = Policy(
        rule=options.pop("rule", "never()"), selector="majority_of_samples", max_rounds=options.pop("samples", SAMPLES)
    )
    return SamplingLoop(model=model, policy=policy, **{"temperature": 1.2, **options})


def answers(outcome):
    return [observed.answer for observed in outcome.rounds]


def test_a_seed_repeats_its_samples_and_another_one_draws_others(server, asked):
    drawn = {seed: [answers(loop(server, seed=seed).run(q.question)) for q in asked] for seed in (0, 1)}
    assert drawn[0] == [answers(loop(server).run(q.question)) for q in asked]
    assert drawn[0] != drawn[1]
    assert any(len(set(of_question)) > 2 for of_question in drawn[0])  # samples of a question differ, too


def test_live_equals_replayed(server, asked, tmp_path):
    path = tmp_path / "r.parquet"
    record(asked, loop(server), path, concurrency=1)
    recording = read_recording(path)
    assert recording.exchangeable
    assert recording.shape == (len(asked), SAMPLES)
    stops = set()
    for rule in ("lead(2)", "adaptive_consistency(.9)", "esc(3)", "settled(8)"):
        policy = policy_for(recording, rule)
        live = replace(loop(server), policy=policy)
        outcomes = [live.run(q.question) for q in asked]
        # Which of a prompt's tokens were cached depends on what the server saw in between.
        assert_replayed(recording, policy, outcomes, kinds=("calls", "output_tokens"))
        stops |= {outcome.decision.stop_round for outcome in outcomes}
        waves = replace(live, wave=3).run(asked[0].question)
        assert waves.decision.to_dict() == outcomes[0].decision.to_dict()
    assert len(stops) > 2


def test_a_settled_vote_cancels_open_requests_and_the_server_survives(server, asked, monkeypatch):
    # No reply ends before its budget, and the one slot answers one request after the other.  On a busy machine all of
    # them may have ended before the client reads the first: the others are kept from it.
    send, first = AsyncBoundedClient.send, sample_seed(0, asked[0].question, 1)

    async def kept(client, request, **options):
        response = await send(client, request, **options)
        if json.loads(request.content)["seed"] != first:
            await asyncio.Event().wait()
        return response

    slow = loop(server, rule="round >= 1", wave=SAMPLES)
    model = ChatModel(
        "tiny", base_url=server.url, max_retries=0, max_tokens=200, top_logprobs=None, extra_body={"ignore_eos": True}
    )
    with monkeypatch.context() as patch:
        patch.setattr(AsyncBoundedClient, "send", kept)
        outcome = replace(slow, model=model).run(asked[0].question)
    assert len(outcome.rounds) == 1
    assert outcome.surplus.cost.calls == outcome.surplus.cancelled == SAMPLES - 1
    assert math.isnan(outcome.costs["surplus"].output_tokens)
    assert outcome.costs["generator"].output_tokens == 200
    assert answers(loop(server, samples=2).run(asked[0].question)) == answers(
        loop(server, samples=2).run(asked[0].question)
    )


def test_a_wave_is_one_request_for_several_choices(taught_model, asked):
    with llamacpp.start_server(taught_model, slots=4) as server:  # a choice takes a slot
        asks = loop(server, wave=4, use_n=True, temperature=1.6)
        drawn = [asks.run(q.question) for q in asked]
        assert all(len(outcome.rounds) == SAMPLES for outcome in drawn)
        assert all(outcome.cost.calls == pytest.approx(2) for outcome in drawn)
        assert asks.models[0].stats.requests_sent == 2 * len(asked)
        assert any(len(set(answers(outcome))) > 2 for outcome in drawn)  # choices differ, though they share a seed
        # The server counts the tokens of the first choice alone.
        assert math.isnan(drawn[0].cost.output_tokens)
        told = loop(server, wave=4, use_n=True, top_logprobs=5).run(asked[0].question)
        assert told.cost.output_tokens > 4 * SAMPLES
        assert [r.costs["generator"].calls for r in told.rounds] == [1 / 4] * SAMPLES


def test_live_escalations_equal_replayed_ones(server, asked, tmp_path):
    model = ChatModel("tiny", base_url=server.url, max_retries=0, max_tokens=24, top_logprobs=None)
    longer = ChatModel("tiny-again", base_url=server.url, max_retries=0, max_tokens=24, top_logprobs=None)
    asks = EscalationLoop(model=[model, model, longer], temperature=1.2, seed=3)
    record(asked, asks, tmp_path / "r.parquet", concurrency=1)
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.shape == (len(asked), 3)
    policy = policy_for(recording, "answer_stable")
    live = replace(asks, policy=policy)
    outcomes = [live.run(question.question) for question in asked]
    assert_replayed(recording, policy, outcomes, ("calls", "output_tokens"))
    assert len({outcome.decision.stop_round for outcome in outcomes}) > 1
