"""The sampling loop over a scripted endpoint: seeds, votes, waves, cancelled calls, requests for several choices."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from dataclasses import replace

import pytest

from suffice import ChatModel, Passage, Policy, SamplingLoop
from suffice.errors import ConfigMismatchError, DataError, LogprobsUnavailableError, ModelError
from suffice.loops.course import RoundResult
from suffice.loops.models.prompts import ANSWER_FIRST, NO_CONFIDENCE, PREFILLED
from suffice.loops.sampling_loop import sample_seed
from suffice.loops.waves import Surplus, Wave
from suffice.policy.rounds import Cost, Round
from suffice.recordings import ResponseCache
from tests.support.endpoint import Endpoint
from tests.support.sampling import SAMPLES, TOWER, VOTES, loop, models_of, reply, sample_of, several

# --- one answer after the other -------------------------------------------------------------------------------------


def test_the_loop_asks_until_the_vote_is_settled_and_returns_the_majority():
    with Endpoint(reply) as endpoint:
        outcome = loop(endpoint, "lead(2)").run(TOWER)
    assert [r.answer for r in outcome.rounds] == ["Oslo", "Lima", "Oslo.", None, "oslo"]
    assert outcome.answer in ("Oslo", "Oslo.", "oslo")
    assert (outcome.decision.reason, outcome.decision.stop_round) == ("rule", 5)
    assert outcome.cost.calls == len(endpoint.requests) == 5  # the one that cannot be read is paid, and casts no vote
    assert "surplus" not in outcome.costs


def test_a_sample_that_was_cut_casts_no_vote():
    texts = iter([("Oslo", "length"), ("Lima", "stop"), ("Oslo", "content_filter"), ("Lima", "stop")])

    def say(_):
        text, reason = next(texts)
        return {"choices": [{"message": {"content": f"Answer: {text}"}, "finish_reason": reason}]}

    with Endpoint(say) as endpoint:
        outcome = loop(endpoint, "lead(2)").run(TOWER)
    assert [r.answer for r in outcome.rounds] == [None, "Lima", None, "Lima"]
    assert (outcome.answer, outcome.decision.stop_round) == ("Lima", 4)


def test_each_sample_has_its_seed_and_the_temperature_of_the_loop():
    with Endpoint(reply) as endpoint:
        loop(endpoint, temperature=0.9).run(TOWER)
        loop(endpoint, temperature=None, seed=None, model=models_of(endpoint, temperature=0.3, seed=7), samples=2)
        bodies = [request.body for request in endpoint.requests]
    assert [body["seed"] for body in bodies] == [sample_seed(0, TOWER, r) for r in range(1, SAMPLES + 1)]
    assert len({body["seed"] for body in bodies}) == SAMPLES
    assert {body["temperature"] for body in bodies} == {0.9}
    assert sample_seed(0, TOWER, 1) != sample_seed(1, TOWER, 1) != sample_seed(0, "Where is tower 1?", 1)
    assert all(0 <= sample_seed(s, TOWER, r) < 2**31 for s in range(50) for r in range(50))
    with Endpoint("Answer: Oslo") as endpoint:
        model = models_of(endpoint, temperature=0.3, seed=7)
        loop(endpoint, temperature=None, seed=None, model=model, samples=2).run(TOWER)
        bodies = [request.body for request in endpoint.requests]
    assert all(body["temperature"] == 0.3 and "seed" not in body for body in bodies)  # a shared seed: equal samples


def test_equal_requests_have_replies_of_their_own_in_the_response_cache(tmp_path):
    numbers = iter(range(100))
    with Endpoint(lambda _: f"Answer: {next(numbers)}") as endpoint, ResponseCache(tmp_path / "cache.sqlite") as cache:
        asks = loop(endpoint, seed=None, model=models_of(endpoint, cache=cache), samples=4)
        first = asks.run(TOWER)
        assert [r.answer for r in first.rounds] == ["0", "1", "2", "3"]
        assert [r.answer for r in asks.run(TOWER).rounds] == ["0", "1", "2", "3"]
        assert len(endpoint.requests) == len(cache) == 4
        model = models_of(endpoint, cache=cache, temperature=0.7)[0]
        # What older releases stored has no index: it is the first sample.
        assert model.complete(ANSWER_FIRST.messages(TOWER)).text == "Answer: 0"
        assert model.complete(ANSWER_FIRST.messages(TOWER), sample=1).text == "Answer: 1"
        assert len(endpoint.requests) == 4


def test_every_sample_sees_the_contexts():
    contexts = [Passage(passage_id="1", title="Tower", text="The tower is in Oslo.")]
    with Endpoint(reply) as endpoint:
        outcome = loop(endpoint, samples=2).run(TOWER, contexts)
        assert all("The tower is in Oslo." in request.prompt for request in endpoint.requests)
    assert outcome.rounds[1].passages == tuple(contexts)
    with pytest.raises(DataError, match="as Passage"):
        loop(endpoint).run(TOWER, ["The tower is in Oslo."])


def test_models_and_prompts_answer_in_turn():
    with Endpoint("Answer: Oslo") as endpoint:
        models = models_of(endpoint, ["cheap", "dear"])
        other = replace(NO_CONFIDENCE, name="other")
        panel = loop(endpoint, model=[models[0], models[0], models[1]], prompts=[NO_CONFIDENCE, other], samples=7)
        panel.run(TOWER)
        assert [request.body["model"] for request in endpoint.requests] == ["cheap", "cheap", "dear"] * 2 + ["cheap"]
        assert [panel.cells(r)["prompt_id"].partition("@")[0] for r in range(1, 8)] == [
            *["no_confidence"] * 3,
            *["other"] * 3,
            "no_confidence",
        ]
    assert not panel.exchangeable
    assert panel.depends["model"] == "cheap + dear"
    assert loop(endpoint).exchangeable
    assert loop(endpoint, model=[models[0], models[0]]).exchangeable
    assert not loop(endpoint, prompts=[NO_CONFIDENCE, other]).exchangeable


def test_what_cannot_work_is_refused_before_the_first_call():
    with Endpoint(reply) as endpoint:
        cold = models_of(endpoint)
        for message, made in (
            ("temperature 0", lambda: loop(endpoint, temperature=0)),
            ("temperature 0", lambda: loop(endpoint, temperature=None)),
            ("2 samples", lambda: loop(endpoint, temperature=0, model=[cold[0], cold[0]], samples=2)),
            ("'seed'", lambda: loop(endpoint, model=models_of(endpoint, extra_body={"seed": 1}))),
            ("prefilled", lambda: loop(endpoint, prompts=[ANSWER_FIRST, PREFILLED])),
            ("last sample", lambda: SamplingLoop(model=cold, policy=Policy(rule="lead(2)"))),
            ("start_round=1", lambda: SamplingLoop(model=cold, policy=Policy(start_round=0))),
        ):
            with pytest.raises(DataError, match=message):
                made().run(TOWER)
        with pytest.raises(ConfigMismatchError, match="reads answers"):
            loop(endpoint, model=ChatModel("m", base_url=endpoint.url, api_key="k", prompt=PREFILLED)).run(TOWER)
        with pytest.raises(LogprobsUnavailableError):
            loop(endpoint, "answer_margin > 1").run(TOWER)
        assert loop(endpoint, temperature=0, model=models_of(endpoint, ["a", "b"]), samples=2).run(TOWER).answer
        assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model": []}, "ChatModel"),
        ({"model": ["gpt"]}, "ChatModel"),
        ({"wave": 0}, "wave"),
        ({"wave": True}, "wave"),
        ({"seed": 1.5}, "seed"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"prompts": ["Answer briefly."]}, "are Prompt"),
        ({"use_n": True}, "give wave=N"),
        ({"use_n": True, "wave": 2, "prompts": [ANSWER_FIRST, NO_CONFIDENCE]}, "one model"),
    ],
)
def test_wrong_fields_are_refused(options, message):
    with pytest.raises(DataError, match=message):
        loop("http://127.0.0.1:1/v1", **options)


# --- waves ------------------------------------------------------------------------------------------------------------


def backwards(width):
    """Return a reply function and when to hold: of each wave the last sample is answered first."""
    answered = set()

    def held(body):
        r = sample_of(body)[1]
        return r % width != 0 and r < SAMPLES and r + 1 not in answered

    def scripted(body):
        answered.add(sample_of(body)[1])
        return reply(body)

    return {"reply": scripted, "holds": held}


def test_a_wave_runs_together_and_decides_in_request_order():
    arrival = backwards(4)
    held = lambda body: len(endpoint.requests) < 4 or arrival["holds"](body)  # noqa: E731
    with Endpoint(arrival["reply"], holds=held) as endpoint:
        outcome = loop(endpoint, "round >= 6", wave=4).run(TOWER)
        assert endpoint.most_running == 4
    assert [r.answer for r in outcome.rounds] == list(VOTES[:6])
    assert outcome.decision.stop_round == 6
    assert outcome.surplus.cost.calls == 2
    assert outcome.cost.calls == 8


def test_the_same_vote_is_settled_whichever_answer_arrives_first():
    for arrival in ({"reply": reply}, backwards(3)):
        with Endpoint(**arrival) as endpoint:
            outcome = loop(endpoint, "lead(2)", wave=3).run(TOWER)
        assert (outcome.decision.stop_round, len(outcome.rounds)) == (5, 5)


def left_by(endpoint, clients):
    """Wait until so many clients have gone away before their answer."""
    for _ in range(6000):
        if endpoint.abandoned == clients:
            return True
        time.sleep(0.01)
    return False


def test_what_is_in_flight_is_cancelled_and_counted():
    # The first two are answered when all four have arrived: the server does not see who leaves before.
    held = lambda body: sample_of(body)[1] in (3, 4) or len(endpoint.requests) < 4  # noqa: E731
    with Endpoint("Answer: Oslo", holds=held) as endpoint:
        outcome = loop(endpoint, "lead(2)", wave=4).run(TOWER)
        assert left_by(endpoint, 2)
    assert outcome.decision.stop_round == 2
    assert outcome.surplus.cancelled == 2
    assert outcome.costs["surplus"].calls == 2
    assert math.isnan(outcome.costs["surplus"].tokens)  # what they had generated is unknown, not nothing
    assert outcome.costs["generator"].calls == 2
    assert outcome.costs["generator"].tokens > 0
    assert outcome.tables()[-1].notes == (
        "requested beyond the stop: 2 samples, 2 cancelled in flight, whose tokens are unknown",
    )


def made(seconds, answers="Oslo", fails=()):
    """Return a function that makes the rounds of a wave, with these seconds, and the numbers of those made."""
    numbers = []

    async def make(r):
        numbers.append(r)
        await asyncio.sleep(0)
        if r in fails:
            raise ModelError("it broke")
        cost = Cost(calls=1.0, output_tokens=5.0, seconds=seconds[r - 1])
        return RoundResult(observed=Round(index=r, answer=answers, costs={"generator": cost}))

    return make, numbers


def test_a_sample_costs_the_seconds_it_adds_to_its_wave():
    async def run(width):
        make, numbers = made([2.0, 5.0, 3.0, 1.0, 0.0])
        wave = Wave(width, 5, make)
        waited = [(await wave.result(r)).observed.costs["generator"].seconds for r in range(1, 6)]
        assert await wave.end() == Surplus()
        assert numbers == [1, 2, 3, 4, 5]
        return waited

    assert asyncio.run(run(3)) == [2.0, 3.0, 0.0, 1.0, 0.0]
    assert asyncio.run(run(1)) == [2.0, 5.0, 3.0, 1.0, 0.0]


def test_surplus_samples_cost_their_tokens_without_waiting():
    async def run():
        make, _ = made([1.0] * 5, fails=(4,))
        wave = Wave(5, 5, make)
        await wave.result(1)
        for _ in range(5):
            await asyncio.sleep(0)
        return await wave.end()

    surplus = asyncio.run(run())
    assert surplus == Surplus(
        Cost(calls=3.0, output_tokens=15.0), samples=3
    )  # the failed one has no cost, as elsewhere
    assert surplus.notes == ("requested beyond the stop: 3 samples",)


def test_a_failure_in_the_middle_of_a_wave_keeps_what_was_paid():
    def scripted(body):
        if sample_of(body)[1] == 3:
            return "400"
        return None

    with Endpoint(reply, fault=scripted) as endpoint:
        outcome = loop(endpoint, wave=4).run(TOWER)
    assert [r.answer for r in outcome.rounds] == ["Oslo", "Lima"]
    assert isinstance(outcome.error, ModelError)
    assert outcome.answer in ("Oslo", "Lima")
    assert outcome.cost.calls == 3  # the fourth had been sent, too


def test_a_stream_that_is_left_cancels_its_wave():
    async def leave(endpoint):
        stream = loop(endpoint, wave=3).stream_async(TOWER)
        observed, _ = await anext(stream)
        await stream.aclose()
        return observed

    held = lambda body: sample_of(body)[1] > 1 or len(endpoint.requests) < 3  # noqa: E731
    with Endpoint("Answer: Oslo", holds=held) as endpoint:
        assert asyncio.run(leave(endpoint)).index == 1
        assert left_by(endpoint, 2)


def test_a_wave_is_answered_from_synchronous_code_round_by_round():
    with Endpoint(reply) as endpoint:
        steps = list(loop(endpoint, "lead(2)", wave=2).stream(TOWER))
    assert [observed.index for observed, _ in steps[:-1]] == [1, 2, 3, 4, 5]
    assert steps[-1][1].surplus.cost.calls == 1


# --- one request for several choices ----------------------------------------------------------------------------------


@pytest.mark.parametrize("blocking", [True, False])
def test_a_wave_is_one_request_where_the_endpoint_has_n(blocking):
    with Endpoint(several) as endpoint:
        asks = loop(endpoint, "round >= 7", wave=3, use_n=True)
        outcome = asks.run(TOWER) if blocking else asyncio.run(asks.run_async(TOWER))
        assert [request.body.get("n") for request in endpoint.requests] == [3, 3, 2]
    assert [r.answer for r in outcome.rounds] == list(VOTES[:7])
    assert [r.costs["generator"].calls for r in outcome.rounds] == pytest.approx([1 / 3] * 6 + [1 / 2])
    assert outcome.cost.calls == pytest.approx(3)
    assert outcome.cost.output_tokens == pytest.approx(3 * 8)
    assert (outcome.surplus.samples, outcome.surplus.cancelled) == (1, 0)  # it came with the seventh
    assert outcome.surplus.cost.output_tokens == 3
    assert [bool(r.costs["generator"].seconds) for r in outcome.rounds] == [True, False, False] * 2 + [True]


@pytest.mark.parametrize("most", [1, 2])
def test_choices_that_do_not_come_are_requested_by_themselves_with_a_warning(caplog, most):
    with Endpoint(lambda body: several(body, most)) as endpoint, caplog.at_level(logging.WARNING):
        asks = loop(endpoint, wave=4, use_n=True)
        outcome = asks.run(TOWER)
        asks.run(TOWER)
        assert [request.body.get("n") for request in endpoint.requests] == [4, *[None] * (2 * SAMPLES - most)]
    assert [r.answer for r in outcome.rounds] == list(VOTES)
    assert outcome.cost.calls == pytest.approx(SAMPLES + 1 - most)
    assert [r.getMessage() for r in caplog.records if "choices of one request" in r.getMessage()] == [
        f"{endpoint.url} returned {most} of the 4 choices of one request (n): the others are requested by themselves"
    ]


def test_an_endpoint_that_refuses_n_is_an_error_with_a_remedy():
    with Endpoint(several, fault="400") as endpoint:
        outcome = loop(endpoint, wave=4, use_n=True).run(TOWER)
    assert outcome.answer is None
    assert "no such parameter" in str(outcome.error)
    assert "leave out use_n" in str(outcome.error)
    with Endpoint(several, fault="500") as endpoint:
        assert "use_n" not in str(loop(endpoint, wave=4, use_n=True).run(TOWER).error)


def test_choices_of_one_request_are_cached_together(tmp_path):
    with Endpoint(several) as endpoint, ResponseCache(tmp_path / "cache.sqlite") as cache:
        asks = loop(endpoint, wave=4, use_n=True, model=models_of(endpoint, cache=cache))
        assert asks.run(TOWER).answer == asks.run(TOWER).answer
        assert len(endpoint.requests) == 2
        with pytest.raises(DataError, match="n must be"):
            asks.models[0].complete_several("Hello.", 0)
        with pytest.raises(DataError, match="sample must"):
            asks.models[0].complete("Hello.", sample=-1)
