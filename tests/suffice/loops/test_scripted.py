from __future__ import annotations

import asyncio
import json
import time

import pytest

from suffice.errors import DataError, LogprobsUnavailableError, ModelError, ModelTimeoutError
from suffice.loops.models.protocols import Answerer
from suffice.loops.models.scripted import ScriptedModel
from suffice.policy.rounds import Cost, Passage, Reply

PASSAGES = [Passage(passage_id=str(i), title=f"T{i}", text="three words here") for i in range(3)]


def test_lines_follow_the_number_of_passages_and_the_last_one_stays():
    model = ScriptedModel({"Q?": [None, "a", "b"]})
    assert [model.answer("Q?", PASSAGES[:k]).answer for k in range(4)] == [None, "a", "b", "b"]
    assert model.calls == 4
    assert model.requests[2] == ("Q?", tuple(PASSAGES[:2]))


def test_sync_and_async_say_the_same():
    model = ScriptedModel(lambda question, passages: f"{question} {len(passages)}")
    assert asyncio.run(model.answer_async("Q?", PASSAGES)) == model.answer("Q?", PASSAGES)
    assert isinstance(model, Answerer)


def test_a_reply_with_costs_is_returned_as_it_is():
    reply = Reply(answer="a", text="Answer: a", signals={"p": 0.5}, costs={"generator": Cost(calls=2.0)})
    assert ScriptedModel({"Q?": [reply]}).answer("Q?") is reply


def test_costs_count_words_and_what_an_earlier_round_held_is_cached():
    cost = ScriptedModel({"Q?": ["two words"]}, latency_s=0.01).answer("Q?", PASSAGES[:2]).costs["generator"]
    assert cost == Cost(calls=1.0, uncached_tokens=3.0, cached_tokens=4.0, output_tokens=2.0, seconds=0.01)


def test_planned_failures_are_raised_and_counted():
    model = ScriptedModel({"Q?": ["a"]}, failures={2: ModelTimeoutError("slow")})
    assert model.answer("Q?").answer == "a"
    with pytest.raises(ModelTimeoutError):
        asyncio.run(model.answer_async("Q?"))
    assert model.answer("Q?").answer == "a"
    assert model.calls == 3
    with pytest.raises(ModelError):
        ScriptedModel({"Q?": ["a"]}, failures=lambda n: ModelError(str(n))).answer("Q?")


def test_an_unknown_question_and_an_empty_script_are_errors():
    with pytest.raises(ModelError, match="Other"):
        ScriptedModel({"Q?": ["a"]}).answer("Other?")
    for lines in ([], "a"):
        with pytest.raises(DataError, match="one line"):
            ScriptedModel({"Q?": lines})


def test_latency_is_kept_without_blocking_the_loop():
    model = ScriptedModel({"Q?": ["a"]}, latency_s=0.1)

    async def many() -> None:
        calls = [asyncio.create_task(model.answer_async("Q?")) for _ in range(10)]
        await asyncio.sleep(0)  # each has begun, and a call that held the loop would have ended
        assert not any(call.done() for call in calls)
        await asyncio.gather(*calls)

    started = time.perf_counter()
    asyncio.run(many())
    assert time.perf_counter() - started >= 0.1


def test_capabilities_are_what_the_test_says():
    model = ScriptedModel({"Q?": ["a"]}, capabilities={"logprobs"}, name="x")
    assert (model.name, model.capabilities) == ("x", frozenset({"logprobs"}))
    model.verify(frozenset({"logprobs"}))
    with pytest.raises(LogprobsUnavailableError):
        ScriptedModel({"Q?": ["a"]}).verify(frozenset({"logprobs"}))


def test_fingerprints_tell_scripts_apart():
    prints = [
        ScriptedModel({"Q?": ["a"]}),
        ScriptedModel({"Q?": ["b"]}),
        ScriptedModel({"Q?": [Reply(answer="a")]}),
        ScriptedModel({"Q?": ["a"]}, name="other"),
    ]
    assert len({json.dumps(model.fingerprint(), sort_keys=True) for model in prints}) == 4
    assert ScriptedModel({"Q?": ["a"]}).fingerprint() == prints[0].fingerprint()
