"""What each adapter records, with its framework: what the model said, no more and no less; and what it refuses."""

from __future__ import annotations

import asyncio
import inspect
import math

import pytest
from autogen_agentchat.teams import RoundRobinGroupChat

from suffice import Policy, Recorder, read_recording
from suffice.errors import UnknownSignalError
from tests.frameworks import (
    test_agent_framework,
    test_autogen,
    test_google_adk,
    test_haystack,
    test_openai_agents,
    test_pydantic_ai,
    test_smolagents,
)
from tests.frameworks.acceptance import CAPPED, QUALITY, QUESTION, SCRIPT, Script, loaded, tokens_of
from tests.frameworks.chat import FakeChat
from tests.frameworks.test_langchain import look_up

OTHER = "Which play has Ariel?"


def completions(script):
    """Return a model of a LlamaIndex workflow: it returns what OpenAI's client does, as a dict."""

    async def complete(question):
        answer = script.next()
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
        choice = {"message": {"content": answer}, "finish_reason": "stop", "logprobs": {"content": tokens_of(answer)}}
        return {"choices": [choice], "usage": usage}

    return complete


ADAPTERS = {
    "agent_framework": lambda script: {"client": test_agent_framework.Fake(script)},
    "autogen": lambda script: {"model": test_autogen.Fake(script)},
    "google_adk": lambda script: {
        "model": test_google_adk.Fake(model="m", script=script),
        "tools": [test_google_adk.look_up],
    },
    "haystack": lambda script: {"model": test_haystack.fake(script), "tools": [test_haystack.look_up]},
    "langchain": lambda script: {"model": FakeChat(script=script, tool="look_up"), "tools": [look_up]},
    "langgraph": lambda script: {"model": FakeChat(script=script)},
    "llama_index": lambda script: {"complete": completions(script)},
    "openai_agents": lambda script: {"model": test_openai_agents.Fake(script), "tools": [test_openai_agents.look_up]},
    "pydantic_ai": lambda script: {"model": test_pydantic_ai.fake(script), "tools": [test_pydantic_ai.look_up]},
    "smolagents": lambda script: {"model": test_smolagents.Fake(script), "tools": [test_smolagents.look_up]},
}
NO_LOGPROBS = {"autogen", "google_adk", "haystack", "smolagents"}
NO_CACHE = {"autogen"}
NO_FINISH_REASON = {*NO_LOGPROBS, "openai_agents"}


@pytest.fixture
def recorder(folder):
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json", golds={QUESTION: ["The Tempest"]}) as sink:
        yield sink


@pytest.fixture
def runner():
    with asyncio.Runner() as loop:
        yield loop


def asked(runner, lines, question):
    value = (lines.get("ask") or test_google_adk.asked(lines))(question)
    return runner.run(value) if inspect.isawaitable(value) else value


@pytest.mark.parametrize("name", ADAPTERS)
def test_what_is_recorded_is_what_the_model_said(name, folder, recorder, runner):
    script = Script()
    lines = loaded(name, folder, recorder=recorder, **ADAPTERS[name](script))
    for question in (QUESTION, OTHER, QUESTION):
        script.rewind()
        text, decision = asked(runner, lines, question)
        assert (text, decision["rounds"], script.calls) == ("The Tempest", 4, 4)
    recording = read_recording(recorder.path)
    assert recording.objects("question")[:, 0].tolist() == [QUESTION, OTHER, QUESTION]
    assert len(set(recording.clusters.tolist())) == 2
    assert recording.answers.tolist() == recording.objects("text").tolist() == [list(SCRIPT[:4])] * 3
    assert recording.ends.tolist() == ["rule"] * 3
    assert recording.column("quality").tolist() == [[QUALITY[answer] for answer in SCRIPT[:4]]] * 3
    em = recording.column("em").tolist()
    assert em[0] == em[2] == [0, 1, 0, 0]
    assert all(map(math.isnan, em[1]))  # nobody gave gold answers
    costs = {kind: recording.column(f"cost.generator.{kind}").tolist() for kind in ("calls", "output_tokens")}
    assert costs == {"calls": [[1] * 4] * 3, "output_tokens": [[2] * 4] * 3}
    cached = 0 if name in NO_CACHE else 4
    assert recording.column("cost.generator.cached_tokens").tolist() == [[cached] * 4] * 3
    assert recording.column("cost.generator.uncached_tokens").tolist() == [[10 - cached] * 4] * 3
    if name not in NO_LOGPROBS:
        assert recording.column("answer_margin").tolist() == [[1.5] * 4] * 3
    reason = None if name in NO_FINISH_REASON else "stop"
    assert recording.objects("finish_reason").tolist() == [[reason] * 4] * 3


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_failing_model_keeps_recorded_rounds_and_the_next_question_is_separate(name, folder, recorder, runner):
    script = Script(fails_at=3)
    lines = loaded(name, folder, recorder=recorder, **ADAPTERS[name](script))
    with pytest.raises(Exception, match="down"):
        asked(runner, lines, QUESTION)
    script.rewind()
    script.fails_at = None
    if name == "autogen":  # a team that broke down is one message behind for good
        lines["team"] = RoundRobinGroupChat([lines["writer"]], termination_condition=lines["stop"])
    text, decision = asked(runner, lines, OTHER)
    assert (text, decision["stop_round"]) == ("The Tempest", 4)
    recording = read_recording(recorder.path)
    assert recording.answers.tolist() == [[*SCRIPT[:2], None, None], list(SCRIPT[:4])]
    assert recording.ends.tolist() == ["failed", "rule"]


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - {"llama_index"}))
def test_every_reply_is_recorded_if_the_frameworks_own_limit_ends_the_run(name, folder, recorder, runner):
    script = Script(CAPPED)
    lines = loaded(name, folder, recorder=recorder, **ADAPTERS[name](script))
    text, decision = asked(runner, lines, QUESTION)
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "cancelled", script.calls)
    recording = read_recording(recorder.path)
    assert recording.answers.tolist() == [list(CAPPED[: script.calls])]
    assert recording.ends.tolist() == ["max_rounds"]


@pytest.mark.parametrize("name", ADAPTERS)
def test_replies_without_a_text_are_rounds_without_an_answer(name, folder, recorder, runner):
    script = Script(("", *SCRIPT[:2], "", *SCRIPT[2:]))
    text, decision = asked(runner, loaded(name, folder, recorder=recorder, **ADAPTERS[name](script)), QUESTION)
    assert (text, decision["rounds"], decision["answer_round"]) == ("The Tempest", 6, 3)
    recording = read_recording(recorder.path)
    assert recording.answers.tolist() == [[None, *SCRIPT[:2], None, *SCRIPT[2:4]]]
    assert recording.column("cost.generator.calls").tolist() == [[1] * 6]


@pytest.mark.parametrize("name", ["agent_framework", "autogen", "langchain", "langgraph"])
def test_a_run_without_any_answer_says_that_it_failed(name, folder, recorder, runner):
    script = Script(("",))
    text, decision = asked(runner, loaded(name, folder, recorder=recorder, **ADAPTERS[name](script)), QUESTION)
    assert text == ("not run: the loop ended (failed)" if name == "langchain" else "")
    assert (decision["reason"], decision["answer"], decision["rounds"]) == ("failed", None, script.calls)
    assert read_recording(recorder.path).ends.tolist() == ["max_rounds"]


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_policy_on_signals_no_reply_carries_is_refused_before_calls(name, folder, runner):
    for rule in ("critic_approved > 0.5", *(["answer_margin > 1"] if name in NO_LOGPROBS else [])):
        Policy(rule=rule).save(folder / "policy.json")
        script = Script()
        with pytest.raises(UnknownSignalError, match="measure="):
            asked(runner, loaded(name, folder, **ADAPTERS[name](script)), QUESTION)
        assert script.calls == 0


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - NO_LOGPROBS))
def test_a_policy_on_log_probabilities_decides(name, folder, runner):
    Policy(rule="answer_margin > 1").save(folder / "policy.json")
    script = Script()
    text, decision = asked(runner, loaded(name, folder, **ADAPTERS[name](script)), QUESTION)
    assert (text, decision["signals"], script.calls) == (SCRIPT[0], {"answer_margin": 1.5}, 1)
