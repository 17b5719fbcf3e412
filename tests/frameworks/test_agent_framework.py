"""Microsoft Agent Framework: the lines to paste, and runs side by side."""

import asyncio
import json

import pytest
from agent_framework import (
    Agent,
    AgentLoopMiddleware,
    BaseChatClient,
    ChatResponse,
    Content,
    FunctionInvocationLayer,
    Message,
    tool,
)

from suffice import Policy, Recorder, read_recording
from suffice.errors import DataError
from suffice.hosts.agent_framework import stop_loop_middleware
from tests.frameworks.acceptance import (
    CAPPED,
    QUESTION,
    SCRIPT,
    Script,
    check,
    check_cap,
    check_stop,
    loaded,
    tokens_of,
)


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

    stop = stop_loop_middleware(Policy(rule="tokens > 20"), measure=measure)
    agent = Agent(Fake(Script()), middleware=[stop, AgentLoopMiddleware(stop.should_continue)])
    response = asyncio.run(agent.run(QUESTION))
    assert response.additional_properties["suffice"]["signals"] == {"tokens": 24}
    assert asked == [(QUESTION, "Titus Andronicus"), (QUESTION, "The Tempest")]


def test_a_stream_is_refused_because_it_shows_drafts_too_early(folder):
    agent = loaded("agent_framework", folder, client=Fake(Script()))["agent"]

    async def stream():
        async for _ in agent.run(QUESTION, stream=True):
            raise AssertionError

    with pytest.raises(DataError, match="drafts"):
        asyncio.run(stream())


class Asking(Fake):
    """Its second reply waits for an approval."""

    def _inner_get_response(self, *, messages, stream, options, **others):
        if self.script.calls != 1 or self.script.log[-1] == ["waiting"]:
            return super()._inner_get_response(messages=messages, stream=stream, options=options, **others)
        self.script.log.append(["waiting"])

        async def respond():
            call = Content.from_function_call("call_1", "look_up", arguments="{}")
            request = Content.from_function_approval_request("call_1", call)
            return ChatResponse(messages=[Message("assistant", [request])])

        return respond()


def test_a_run_that_waits_for_an_approval_goes_on_in_its_session(folder):
    script = Script()

    async def both(recorder):
        stop = stop_loop_middleware(folder / "policy.json", recorder=recorder)
        agent = Agent(Asking(script), middleware=[stop, AgentLoopMiddleware(stop.should_continue)])
        session = agent.create_session()
        waiting = await agent.run(QUESTION, session=session)
        (request,) = waiting.user_input_requests
        json.dumps(session.to_dict())
        answer = Message("user", [request.to_function_approval_response(approved=True)])
        return await agent.run(answer, session=session)

    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        response = asyncio.run(both(recorder))
    check_stop(script, response.text, response.additional_properties["suffice"])
    recording = read_recording(folder / "runs.parquet")
    assert recording.answers.tolist() == [list(SCRIPT[:4])]
    assert recording.objects("question")[0, 0] == QUESTION


@pytest.mark.parametrize("return_final_only", [True, False])
def test_the_last_draft_at_the_limit_is_paid_for_and_can_win(folder, return_final_only):
    script = Script(SCRIPT[:2])
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        stop = stop_loop_middleware(folder / "policy.json", recorder=recorder)
        loop = AgentLoopMiddleware(stop.should_continue, max_iterations=2, return_final_only=return_final_only)
        response = asyncio.run(Agent(Fake(script), middleware=[stop, loop]).run(QUESTION))
    assert response.text == "The Tempest"
    assert response.additional_properties["suffice"]["answer_round"] == 2
    recording = read_recording(folder / "runs.parquet")
    assert recording.column("cost.generator.output_tokens").tolist() == [[2, 2]]


def test_each_call_of_the_model_within_a_run_of_the_agent_counts():
    @tool(approval_mode="never_require")
    def look_up() -> str:
        """Look something up."""
        return "nothing new"

    class Calling(FunctionInvocationLayer, BaseChatClient):
        calls = 0

        def _inner_get_response(self, *, messages, stream, options, **others):
            Calling.calls += 1
            looks = Calling.calls % 2
            call = Content.from_function_call(f"call_{Calling.calls}", "look_up", arguments="{}")

            async def respond():
                return ChatResponse(messages=[Message("assistant", [call] if looks else ["The Tempest"])])

            return respond()

    stop = stop_loop_middleware(Policy(rule="calls >= 4"))
    agent = Agent(Calling(), tools=[look_up], middleware=[stop, AgentLoopMiddleware(stop.should_continue)])
    response = asyncio.run(agent.run(QUESTION))
    assert (Calling.calls, response.additional_properties["suffice"]["signals"]) == (4, {"calls": 4.0})
