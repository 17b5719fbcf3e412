"""Limits that keep the work: what is spent, one last call without tools, and an answer at every stop."""

from __future__ import annotations

import asyncio
import inspect
import json

import pytest
from agents import RunConfig, Runner
from langchain.agents import create_agent
from langchain_core.messages import AIMessage
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent, UsageLimits
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.function import FunctionModel

from suffice import Policy, Recorder, read_recording
from suffice.evaluation.replay import Price, PriceFile, replay
from suffice.hosts.langchain import stop_middleware
from suffice.hosts.langgraph import stop_node
from suffice.hosts.openai_agents import stop_hooks as openai_hooks
from suffice.hosts.pydantic_ai import decision_of, stop_capability
from suffice.hosts.runs import FINAL_REQUEST
from tests.frameworks import (
    test_autogen,
    test_google_adk,
    test_haystack,
    test_openai_agents,
    test_pydantic_ai,
    test_smolagents,
)
from tests.frameworks.acceptance import QUESTION, Script, loaded
from tests.frameworks.chat import FakeChat
from tests.frameworks.test_langchain import look_up

PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
CALL = (6 * 2.0 + 4 * 0.2 + 2 * 12.0) / 1e6
CALL_WITHOUT_CACHE = (10 * 2.0 + 2 * 12.0) / 1e6


def completions(script):
    """Return a model of a LlamaIndex workflow, as OpenAI's client answers."""

    async def complete(question):
        script.offered.append(script.calls < 2)  # the function of the last call has no tools to offer
        usage = {"prompt_tokens": 10, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 4}}
        choices = [{"message": {"content": script.next()}, "finish_reason": "stop"}]
        return {"choices": choices, "usage": usage}

    return complete


def langchain(script):
    return {"model": FakeChat(script=script, tool="look_up"), "tools": [look_up]}


ADAPTERS = {
    "autogen": lambda script: {"model": test_autogen.Fake(script)},
    "google_adk": lambda script: {
        "model": test_google_adk.Fake(model="m", script=script),
        "tools": [test_google_adk.look_up],
    },
    "haystack": lambda script: {"model": test_haystack.fake(script), "tools": [test_haystack.look_up]},
    "langchain": langchain,
    "langgraph": lambda script: {"model": FakeChat(script=script)},
    "llama_index": lambda script: {"complete": completions(script)},
    "openai_agents": lambda script: {"model": test_openai_agents.Fake(script), "tools": [test_openai_agents.look_up]},
    "pydantic_ai": lambda script: {"model": test_pydantic_ai.fake(script), "tools": [test_pydantic_ai.look_up]},
    "smolagents": lambda script: {"model": test_smolagents.Fake(script), "tools": [test_smolagents.look_up]},
}
MODELS = {"autogen": "model.create", "haystack": "model.run", "langgraph": "model.invoke", "llama_index": "complete"}
NO_TOOLS = {"autogen", "langgraph", "llama_index"}  # their models are the caller's own


class Bare(Script):
    """A model that calls tools as long as it is offered any."""

    def next(self):
        self.calls += 1
        return "" if self.offered[-1] else "The Tempest"


@pytest.fixture
def runner():
    with asyncio.Runner() as loop:
        yield loop


def asked(name, folder, runner, script, rule, *, arguments="", max_rounds=50, **names):
    """Return the answer and the decision of the lines to paste under a rule."""
    Policy(rule=rule, max_rounds=max_rounds).save(folder / "policy.json")
    lines = loaded(name, folder, arguments=arguments, **ADAPTERS[name](script), **names)
    value = (test_google_adk.asked(lines) if name == "google_adk" else lines["ask"])(QUESTION)
    text, decision = runner.run(value) if inspect.isawaitable(value) else value
    json.dumps(decision)
    return text, decision


def with_final_call(name):
    return f"final_call={MODELS.get(name, 'True')}"


@pytest.mark.parametrize("name", ADAPTERS)
def test_rules_read_live_spending_with_cached_and_reasoning_tokens_priced(name, folder, runner):
    script = Script(("Oslo",) * 20)
    rule = "(spend > 0.0001) & (since_change >= 2) & (context_tokens >= 10)"
    text, decision = asked(name, folder, runner, script, rule, arguments="price=price", price=PRICE)
    call = CALL_WITHOUT_CACHE if name == "autogen" else CALL
    assert (text, decision["reason"], script.calls) == ("Oslo", "rule", 3)
    assert decision["signals"]["spend"] == pytest.approx(3 * call)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_stop_with_only_tool_calls_ends_with_one_last_call(name, folder, runner):
    script = Script(("", "", "The Tempest", "Macbeth"))
    text, decision = asked(name, folder, runner, script, "round >= 3", arguments=with_final_call(name))
    assert (text, decision["answer"], decision["final_call"]) == ("The Tempest", "The Tempest", "answered")
    assert (decision["reason"], decision["rounds"], script.calls) == ("rule", 3, 3)  # it had room in the budget
    if name not in NO_TOOLS:
        assert script.offered == [True, True, False]
    if name != "llama_index":
        assert "final answer" in str(script.log[-1][-1] if name != "openai_agents" else script.log[-1])


@pytest.mark.parametrize("name", ADAPTERS)
def test_the_last_call_is_paid_for_and_recorded_and_replays_alike(name, folder, runner):
    script = Script(("", "", "The Tempest"))
    Policy(rule="spend > 0.0001", max_rounds=50).save(folder / "policy.json")
    arguments = f"price=price, {with_final_call(name)}"
    with Recorder(
        folder / "runs.parquet", policy=folder / "policy.json", golds={QUESTION: ["The Tempest"]}
    ) as recorder:
        text, decision = asked(
            name, folder, runner, script, "spend > 0.0001", arguments=arguments, price=PRICE, recorder=recorder
        )
    assert (text, decision["reason"], decision["answer_round"]) == ("The Tempest", "rule", 3)
    recording = read_recording(folder / "runs.parquet")
    call = CALL_WITHOUT_CACHE if name == "autogen" else CALL
    assert recording.column("spend").tolist() == [[pytest.approx(n * call) for n in (1, 2, 3)]]
    assert recording.column("cost.generator.calls").tolist() == [[1, 1, 1]]
    assert recording.ends.tolist() == ["rule"]
    (row,) = [row for row in replay(recording, "spend > 0.0001", metrics="em").rows if row.kind == "rule"]
    assert (row.metrics["em"], row.calls.mean, row.stop_rounds) == (1.0, 3.0, {3: 1.0})


@pytest.mark.parametrize("name", ADAPTERS)
@pytest.mark.parametrize("first", ["", "The Tempest"])
def test_a_failing_last_call_ends_without_an_exception(name, first, folder, runner):
    script = Script((first, "", "Macbeth"), fails_at=3)
    text, decision = asked(name, folder, runner, script, "round >= 3", arguments=with_final_call(name))
    assert (text, decision["answer"]) == (first, first or None)
    assert (decision["reason"], decision["final_call"]) == ("cancelled" if first else "failed", "failed")
    assert (decision["rounds"], script.calls) == (2, 3)


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_stop_before_any_answer_is_answered_beyond_the_budget(name, folder, runner):
    script = Script(("", "The Tempest"))
    rule = "tokens > 5"  # one call costs more than all that is allowed
    text, decision = asked(name, folder, runner, script, rule, arguments=with_final_call(name))
    assert (text, decision["reason"], decision["rounds"], script.calls) == ("The Tempest", "rule", 1, 2)
    assert decision["signals"]["tokens"] == 24


@pytest.mark.parametrize("name", ADAPTERS)
def test_a_stop_without_an_answer_ends_every_adapter_with_the_reason(name, folder, runner):
    script = Script(("",) * 50)
    text, decision = asked(name, folder, runner, script, "round >= 2")
    assert (decision["reason"], decision["answer"], decision["rounds"]) == ("failed", None, 2)
    assert script.calls == 2
    assert text == ("not run: the loop ended (failed)" if name == "langchain" else "")


@pytest.mark.parametrize("name", sorted(ADAPTERS.keys() - NO_TOOLS))
def test_the_frameworks_own_limit_is_answered_by_a_last_call(name, folder, runner):
    script = Bare()
    text, decision = asked(name, folder, runner, script, "never()", arguments=with_final_call(name))
    assert (text, decision["reason"], decision["final_call"]) == ("The Tempest", "cancelled", "answered")
    assert script.offered[-1] is False


def test_prices_follow_their_file_while_a_loop_runs(folder, runner):
    file = folder / "prices.json"

    def write(factor):
        prices = {"uncached": 2.0 * factor, "cached": 0.2 * factor, "output": 12.0 * factor}
        file.write_text(json.dumps({"m": prices}), "utf-8")

    def measure(question, text):
        write(100)  # the first reply is paid at the first price, the others at the next
        return {}

    write(1)
    names = {"price": PriceFile(file, "m"), "measure": measure}
    script = Script(("Oslo",) * 20)
    arguments = "price=price, measure=measure"
    _, decision = asked("langgraph", folder, runner, script, "round >= 3 & spend > 0", arguments=arguments, **names)
    assert decision["signals"]["spend"] == pytest.approx(300 * CALL)
    write(1)
    _, decision = asked("langgraph", folder, runner, script, "round >= 2 & spend > 0", arguments="price=price", **names)
    assert decision["signals"]["spend"] == pytest.approx(2 * CALL)


class Play(BaseModel):
    title: str


def test_a_last_call_of_openai_agents_keeps_the_type_of_the_output():
    class Typed(test_openai_agents.Fake):
        async def get_response(self, *arguments, **options):
            tools = options["tools"] if options else arguments[3]
            self.form = "" if tools else '{"title": "{}"}'
            return await super().get_response(*arguments, **options)

    stop = openai_hooks("round >= 3", final_call=True)
    model = Typed(Script(("The Tempest",)))
    agent = test_openai_agents.agent_of(model, stop, output_type=Play)
    result = Runner.run_sync(agent, QUESTION, hooks=stop)
    assert result.final_output == Play(title="The Tempest")
    assert stop.ended(result)[1]["final_call"] == "answered"
    assert result.context_wrapper.usage.requests == 3


def test_the_last_call_of_openai_agents_has_the_configuration_of_the_run():
    class Other(test_openai_agents.Fake):
        async def get_response(self, *arguments, **options):
            raise AssertionError("the run's own model is in its configuration")

    stop, script = openai_hooks("round >= 3", final_call=True), Script(("", "", "The Tempest"))
    agent = test_openai_agents.agent_of(Other(Script()), stop)
    config = RunConfig(model=test_openai_agents.Fake(script))
    result = Runner.run_sync(agent, QUESTION, hooks=stop, run_config=config)
    assert (result.final_output, script.offered) == ("The Tempest", [True, True, False])


def test_a_last_call_of_pydantic_ai_keeps_the_type_of_the_output():
    def respond(messages, info):
        if info.function_tools:
            return ModelResponse([ToolCallPart("look_up", {})])
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"title": "The Tempest"})])

    capability = stop_capability("round >= 3", final_call=True)
    tools = [test_pydantic_ai.look_up]
    for limits in (None, UsageLimits(request_limit=2)):
        agent = PydanticAgent(FunctionModel(respond), tools=tools, output_type=Play, capabilities=[capability])
        result = agent.run_sync(QUESTION, usage_limits=limits)
        assert result.output == Play(title="The Tempest")
        assert (decision_of(result)["final_call"], result.usage.requests) == ("answered", 3)


@pytest.mark.parametrize("fails_at", [None, 3])
def test_the_last_call_of_langchain_is_async_where_the_agent_is(fails_at, runner):
    script = Script(("", "", "The Tempest"), fails_at=fails_at)
    middleware = [stop_middleware("round >= 3", final_call="Now answer.")]
    agent = create_agent(FakeChat(script=script, tool="look_up"), [look_up], middleware=middleware)
    state = runner.run(agent.ainvoke({"messages": [("user", QUESTION)]}))
    decision = state["messages"][-1].response_metadata["suffice"]
    assert decision["answer"] == ("The Tempest" if fails_at is None else None)
    assert "Now answer." in str(script.log[-1] if fails_at is None else state["messages"])
    answered = {message.tool_call_id for message in state["messages"] if message.type == "tool"}
    assert answered == {
        call["id"] for message in state["messages"] if message.type == "ai" for call in message.tool_calls
    }


def test_the_last_call_of_a_graph_with_one_text_gets_the_question():
    asked = []

    def complete(messages):
        asked.extend(messages)
        return AIMessage("The Tempest")

    node = stop_node("round >= 3", again="write", reply="draft", final_call=complete)
    first = node({"draft": "", "question": QUESTION})
    second = node({**first.update, "draft": "", "question": QUESTION})
    assert (second.goto, second.update["draft"]) == ("__end__", "The Tempest")
    assert [message.text for message in asked] == [QUESTION, FINAL_REQUEST]
