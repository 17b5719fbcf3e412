"""Microsoft Agent Framework: the lines to paste, and runs side by side."""

import asyncio

import pytest
from agent_framework import Agent, AgentLoopMiddleware, BaseChatClient, ChatResponse, Message

from suffice.errors import DataError
from suffice.frameworks.agent_framework import stop_loop_middleware
from tests.frameworks.acceptance import CAPPED, QUESTION, Script, check, check_cap, check_stop, loaded, tokens_of


class Fake(BaseChatClient):
    def __init__(self, script):
        super().__init__()
        self.script = script

    def _inner_get_response(self, *, messages, stream, options, **others):
        self.script.log.append([message.text for message in messages])

        async def respond():
            usage = {"input_token_count": 10, "output_token_count": 2, "cache_read_input_token_count": 4}
            answer = self.script.next()
            return ChatResponse(
                messages=[Message("assistant", [answer])],
                usage_details=usage,
                finish_reason="stop",
                additional_properties={"logprobs": {"content": tokens_of(answer)}},
            )

        return respond()


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("agent_framework", folder, client=Fake(script))["ask"])
    assert script.log[-1][-1] == "Improve your answer."


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("agent_framework", folder, client=Fake(script))["ask"])
    assert script.calls == 10


def test_runs_side_by_side_do_not_meet(folder):
    async def both():
        stop = stop_loop_middleware(folder / "policy.json")
        agents = [Agent(Fake(Script()), middleware=[stop, AgentLoopMiddleware(stop.should_continue)]) for _ in range(5)]
        return await asyncio.gather(*(agent.run(QUESTION) for agent in agents))

    for response in asyncio.run(both()):
        check_stop(Script(calls=4), response.text, response.additional_properties["suffice"])
        assert len(response.messages) == 1


def test_measures_get_the_question_and_costs_are_those_of_the_runs():
    asked = []

    def measure(question, text):
        asked.append((question, text))
        return {}

    stop = stop_loop_middleware("tokens > 20", measure=measure)
    agent = Agent(Fake(Script()), middleware=[stop, AgentLoopMiddleware(stop.should_continue)])
    response = asyncio.run(agent.run(QUESTION))
    assert response.additional_properties["suffice"]["signals"] == {"tokens": 24}
    assert asked == [(QUESTION, "Titus Andronicus"), (QUESTION, "The Tempest")]


def test_a_stream_is_refused_as_it_shows_its_drafts_before_the_best_is_known(folder):
    agent = loaded("agent_framework", folder, client=Fake(Script()))["agent"]

    async def stream():
        async for _ in agent.run(QUESTION, stream=True):
            raise AssertionError

    with pytest.raises(DataError, match="a stream has shown its drafts"):
        asyncio.run(stream())
