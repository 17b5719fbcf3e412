"""LangChain: the lines to paste, with tools and without."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ModelCallLimitMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.memory import InMemorySaver
from pydantic import BaseModel

from suffice import Policy, Recorder, read_recording
from suffice.hosts.langchain import stop_middleware
from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded, measured
from tests.frameworks.chat import FakeChat


def look_up():
    """Look something up."""
    return "nothing new"


def asked(agent, **config):
    def ask(question):
        state = agent.invoke({"messages": [("user", question)]}, config)
        return state["messages"][-1].text, state["messages"][-1].response_metadata["suffice"]

    return ask


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("langchain", folder, model=FakeChat(script=script, tool="look_up"), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(
        script, loaded("langchain", folder, model=FakeChat(script=script, tool="look_up"), tools=[look_up])["ask"]
    )


@pytest.mark.parametrize("limit", range(5, 30))
def test_no_recursion_limit_raises_where_one_round_fits(folder, limit):
    script = Script(CAPPED)
    agent = create_agent(
        FakeChat(script=script, tool="look_up"), [look_up], middleware=[stop_middleware(folder / "policy.json")]
    )
    state = agent.invoke({"messages": [("user", QUESTION)]}, {"recursion_limit": limit})
    assert state["messages"][-1].response_metadata["suffice"]["reason"] == "cancelled"


def test_a_limit_of_calls_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    middleware = [ModelCallLimitMiddleware(run_limit=6), stop_middleware(folder / "policy.json")]
    check_cap(script, asked(create_agent(FakeChat(script=script, tool="look_up"), [look_up], middleware=middleware)))


def test_no_tool_call_is_left_open(folder):
    agent = loaded("langchain", folder, model=FakeChat(script=Script(), tool="look_up"), tools=[look_up])["agent"]
    messages = agent.invoke({"messages": [("user", QUESTION)]})["messages"]
    called = {call["id"] for message in messages if isinstance(message, AIMessage) for call in message.tool_calls}
    closed = [message.tool_call_id for message in messages if isinstance(message, ToolMessage)]
    assert sorted(closed) == sorted(called) == [f"call_{r}" for r in (1, 2, 3, 4)]
    assert closed[-1] == "call_4"
    assert messages[-2].text == "not run: the loop ended (rule)"


def test_an_agent_that_would_end_is_asked_to_revise(folder):
    script = Script()
    middleware = stop_middleware(folder / "policy.json", revise="Improve your answer.")
    agent = create_agent(FakeChat(script=script), middleware=[middleware])
    check(script, asked(agent))
    assert [m.text for m in script.log[-1] if isinstance(m, HumanMessage)][1:] == ["Improve your answer."] * 3


def test_an_agent_that_ends_itself_is_exhausted_without_repeating_its_message(folder):
    script = Script(SCRIPT[1:])
    agent = create_agent(FakeChat(script=script), middleware=[stop_middleware(folder / "policy.json")])
    messages = agent.invoke({"messages": [("user", QUESTION)]})["messages"]
    assert [message.text for message in messages] == [QUESTION, "The Tempest"]
    decision = messages[-1].response_metadata["suffice"]
    assert (decision["reason"], decision["answer_round"], decision["rounds"]) == ("exhausted", 1, 1)


async def asynchronous(agent, question):
    state = await agent.ainvoke({"messages": [("user", question)]})
    return state["messages"][-1].text, state["messages"][-1].response_metadata["suffice"]


def test_it_works_asynchronously_and_measures(folder):
    script = Script()
    middleware = stop_middleware(
        Policy(rule="patience((marks < 0.5), 2)"), measure=lambda question, text: {"marks": measured(text)}
    )
    agent = create_agent(FakeChat(script=script, tool="look_up"), [look_up], middleware=[middleware])
    text, decision = asyncio.run(asynchronous(agent, QUESTION))
    assert (text, decision["stop_round"], decision["signals"]) == ("King Lear", 4, {"marks": 0.2})


def test_structured_output_is_left_alone_and_still_says_why_it_ended(folder):
    class Play(BaseModel):
        title: str

    class Typed(FakeChat):
        def _generate(self, messages, stop=None, run_manager=None, **kwargs):
            calls = [{"name": "Play", "args": {"title": self.script.next()}, "id": "call_1"}]
            return ChatResult(generations=[ChatGeneration(message=AIMessage("", tool_calls=calls))])

    middleware = stop_middleware("answer_stable | (round >= 5)")
    agent = create_agent(Typed(script=Script()), middleware=[middleware], response_format=ToolStrategy(Play))
    state = agent.invoke({"messages": [("user", QUESTION)]})
    assert state["structured_response"] == Play(title="Titus Andronicus")
    assert [message.type for message in state["messages"]] == ["human", "ai", "tool"]
    assert state["messages"][1].response_metadata["suffice"]["reason"] == "failed"


@pytest.mark.parametrize(("limit", "calls"), [(5, 4), (6, 5), (7, 5), (8, 5), (9, 6), (30, 13)])
def test_a_resumed_thread_ends_exactly_at_its_new_limit(folder, limit, calls):
    script = Script(CAPPED, fails_at=4)
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        middleware = stop_middleware(folder / "policy.json", recorder=recorder)
        model = FakeChat(script=script, tool="look_up")
        agent = create_agent(model, [look_up], middleware=[middleware], checkpointer=InMemorySaver())
        thread = {"configurable": {"thread_id": "1"}}
        with pytest.raises(RuntimeError, match="down"):
            agent.invoke({"messages": [("user", QUESTION)]}, thread)
        script.fails_at, script.calls = None, 3
        final = agent.invoke(None, {**thread, "recursion_limit": limit})["messages"][-1]
    decision = final.response_metadata["suffice"]
    assert (final.text, decision["reason"], decision["rounds"]) == ("The Tempest", "cancelled", script.calls)
    assert script.calls == calls
    assert read_recording(folder / "runs.parquet").answers.tolist() == [list(CAPPED[:calls])]
