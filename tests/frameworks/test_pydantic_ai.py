"""Pydantic AI: the lines to paste, typed output, revision, and limits."""

import asyncio

import pytest
from pydantic import BaseModel
from pydantic_ai import Agent, DeferredToolRequests, DeferredToolResults, ImageUrl, Tool, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, ToolReturnPart
from pydantic_ai.models.function import DeltaToolCall, FunctionModel
from pydantic_ai.usage import RequestUsage

from suffice import Recorder, read_recording
from suffice.errors import DataError
from suffice.hosts.pydantic_ai import decision_of, stop_capability
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


class Play(BaseModel):
    title: str


def look_up() -> str:
    """Look something up."""
    return "nothing new"


def fake(script, *, tool="look_up", typed=False):
    def respond(messages, info):
        script.log.append(list(messages))
        script.offered.append(bool(info.function_tools))
        answer = script.next()
        usage = RequestUsage(input_tokens=10, cache_read_tokens=4, output_tokens=2)
        if typed:
            parts = [ToolCallPart(info.output_tools[0].name, {"title": answer})]
        else:
            parts = [TextPart(answer), *([ToolCallPart(tool, {})] if tool and info.function_tools else [])]
        details = {"logprobs": tokens_of(answer)}
        return ModelResponse(parts, usage=usage, provider_details=details, finish_reason="stop")

    return FunctionModel(respond)


def asked(agent, **options):
    def ask(question):
        result = agent.run_sync(question, **options)
        return result.output, decision_of(result)

    return ask


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("pydantic_ai", folder, model=fake(script), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("pydantic_ai", folder, model=fake(script), tools=[look_up])["ask"])
    assert script.calls == 10


@pytest.mark.parametrize("limits", [UsageLimits(total_tokens_limit=100), UsageLimits(tool_calls_limit=5)])
def test_any_other_limit_does_too(folder, limits):
    script = Script(CAPPED)
    agent = Agent(fake(script), tools=[look_up], capabilities=[stop_capability(folder / "policy.json")])
    check_cap(script, asked(agent, usage_limits=limits))


def test_a_typed_output_is_handed_back_through_its_tool(folder):
    script = Script()
    capability = stop_capability(folder / "policy.json", revise="Improve your answer.")
    agent = Agent(fake(script, typed=True), output_type=Play, capabilities=[capability], retries={"output": 10})
    for question in (QUESTION, "Another?"):
        script.rewind()
        result = agent.run_sync(question)
        assert result.output == Play(title="The Tempest")
        assert (script.calls, decision_of(result)["answer_round"], decision_of(result)["stop_round"]) == (4, 2, 4)


def test_text_in_place_of_typed_output_is_a_round_without_answer(folder):
    replies = iter([ModelResponse([TextPart("Macbeth")])])

    def respond(messages, info):
        if (first := next(replies, None)) is not None:
            return first
        return ModelResponse([ToolCallPart(info.output_tools[0].name, {"title": "The Tempest"})])

    agent = Agent(FunctionModel(respond), output_type=Play, capabilities=[stop_capability(folder / "policy.json")])
    result = agent.run_sync(QUESTION)
    decision = decision_of(result)
    assert result.output == Play(title="The Tempest")
    assert (decision["answer_round"], decision["rounds"], decision["reason"]) == (2, 2, "exhausted")


def test_a_run_that_would_end_is_asked_to_revise(folder):
    script = Script()
    capability = stop_capability(folder / "policy.json", revise="Improve your answer.")
    agent = Agent(fake(script, tool=None), capabilities=[capability], retries={"output": 10})
    check(script, asked(agent))
    assert "Improve your answer." in str(script.log[-1][-1])


def test_when_retries_run_out_the_best_answer_is_handed_back(folder):
    script = Script(("The Tempest", "Hamlet", "Hamlet", "Hamlet"))
    capability = stop_capability(folder / "policy.json", revise="Improve your answer.")
    agent = Agent(fake(script, tool=None), capabilities=[capability], retries={"output": 2})
    text, decision = asked(agent)(QUESTION)
    assert (text, decision["reason"], decision["rounds"]) == ("The Tempest", "cancelled", 3)


def test_a_run_that_ends_by_itself_is_exhausted(folder):
    agent = Agent(fake(Script(SCRIPT[1:]), tool=None), capabilities=[stop_capability(folder / "policy.json")])
    text, decision = asked(agent)(QUESTION)
    assert (text, decision["reason"], decision["signals"]) == ("The Tempest", "exhausted", {"quality": 0.9})


def test_no_tool_call_is_left_open(folder):
    agent = loaded("pydantic_ai", folder, model=fake(Script()), tools=[look_up])["agent"]
    messages = agent.run_sync(QUESTION).all_messages()
    called = [part for message in messages for part in message.parts if isinstance(part, ToolCallPart)]
    closed = [part for message in messages for part in message.parts if isinstance(part, ToolReturnPart)]
    assert [part.tool_call_id for part in called] == [part.tool_call_id for part in closed]
    assert len(closed) == 3


def test_a_result_without_a_decision_is_an_error():
    with pytest.raises(DataError, match="no message"):
        decision_of(Agent(fake(Script(), tool=None)).run_sync(QUESTION))


def test_streamed_events_are_decided_but_streamed_text_is_refused(folder):
    script = Script()

    async def stream(messages, info):
        answer = script.next()
        yield answer[:3]
        yield answer[3:]
        yield {0: DeltaToolCall(name="look_up", json_args="{}", tool_call_id=f"call_{script.calls}")}

    async def listen(ctx, events):
        async for _ in events:
            pass

    capability = stop_capability(folder / "policy.json")
    agent = Agent(FunctionModel(stream_function=stream), tools=[look_up], capabilities=[capability])
    check(script, asked(agent, event_stream_handler=listen))

    async def first_text():
        async with agent.run_stream(QUESTION) as result:
            return decision_of(result)

    with pytest.raises(DataError, match="run_stream"):
        asyncio.run(first_text())


def test_a_question_in_parts_is_recorded_as_its_text(folder):
    image = ImageUrl("https://example.org/tempest.png")
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        capability = stop_capability(folder / "policy.json", recorder=recorder)
        Agent(fake(Script()), tools=[look_up], capabilities=[capability]).run_sync([QUESTION, image])
    assert read_recording(folder / "runs.parquet").objects("question")[0, 0] == QUESTION


def test_a_run_that_was_interrupted_for_approvals_goes_on(folder):
    script = Script()
    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        agent = Agent(
            fake(script),
            tools=[Tool(look_up, requires_approval=True)],
            output_type=[str, DeferredToolRequests],
            capabilities=[stop_capability(folder / "policy.json", recorder=recorder)],
        )
        result = agent.run_sync(QUESTION)
        while isinstance(result.output, DeferredToolRequests):
            approved = DeferredToolResults(approvals={call.tool_call_id: True for call in result.output.approvals})
            result = agent.run_sync(message_history=result.all_messages(), deferred_tool_results=approved)
    check_stop(script, result.output, decision_of(result))
    recording = read_recording(folder / "runs.parquet")
    assert recording.objects("question")[:, 0].tolist() == [QUESTION] * 4
    (ended,) = [q for q, end in enumerate(recording.ends) if end == "rule"]  # the parts before it count as failed
    assert recording.answers.tolist()[ended] == list(SCRIPT[:4])
    assert recording.column("cost.generator.cached_tokens").tolist()[ended] == [4] * 4
