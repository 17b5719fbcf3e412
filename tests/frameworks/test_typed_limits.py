"""A typed output at a stop or a limit is a value of its type, or an error with everything that was done."""

from __future__ import annotations

import pytest
from agents import Runner
from pydantic import BaseModel
from pydantic_ai import Agent as PydanticAgent, NativeOutput, UsageLimits
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.usage import RequestUsage

from suffice.errors import UnansweredError
from suffice.hosts.openai_agents import stop_hooks as openai_hooks
from suffice.hosts.pydantic_ai import decision_of, stop_capability
from tests.frameworks import test_openai_agents, test_pydantic_ai
from tests.frameworks.acceptance import QUESTION, Script


class Play(BaseModel):
    title: str


def openai_agent(script, stop, form='{"title": "{}"}'):
    return test_openai_agents.agent_of(test_openai_agents.Fake(script, form), stop, output_type=Play)


def run_openai(agent, stop, max_turns=10):
    return Runner.run_sync(agent, QUESTION, hooks=stop, error_handlers=stop.handlers, max_turns=max_turns)


@pytest.mark.parametrize(("rule", "max_turns"), [("round >= 3", 10), ("round >= 9", 3)])
def test_openai_agents_without_a_typed_reply_raise_with_all_replies(rule, max_turns):
    stop = openai_hooks(rule)
    with pytest.raises(UnansweredError, match="type Play") as raised:
        run_openai(openai_agent(Script(("Macbeth", "Othello", "Hamlet")), stop, "{}"), stop, max_turns)
    assert len(raised.value.rounds) == 3
    assert raised.value.decision["reason"] in ("failed", "rule", "cancelled")
    assert [observed.answer for observed in raised.value.rounds] == [None] * 3


@pytest.mark.parametrize(("rule", "max_turns"), [("round >= 3", 10), ("round >= 9", 3)])
def test_openai_agents_pass_over_text_that_is_no_output(rule, max_turns):
    class Mixed(test_openai_agents.Fake):
        async def get_response(self, *arguments, **options):
            self.form = '{"title": "{}"}' if self.script.calls == 1 else "{}"
            return await super().get_response(*arguments, **options)

    stop = openai_hooks(rule)
    agent = test_openai_agents.agent_of(Mixed(Script(("Macbeth", "Othello", "Hamlet"))), stop, output_type=Play)
    result = run_openai(agent, stop, max_turns)
    assert result.final_output == Play(title="Othello")
    assert stop.ended(result)[0] == Play(title="Othello")


def searching(replies, tokens=10):
    """Return a model that gives these outputs, each with a call of a tool, and then calls the tool alone."""
    given = iter(replies)

    def respond(messages, info):
        title = next(given, None)
        parts = [ToolCallPart("look_up", {})] if title is None else [TextPart(title)]
        return ModelResponse(parts, usage=RequestUsage(input_tokens=tokens, output_tokens=1))

    return FunctionModel(respond)


@pytest.mark.parametrize(
    ("rule", "limits"),
    [
        ("round >= 3", None),
        ("round >= 9", UsageLimits(request_limit=3)),
        ("round >= 9", UsageLimits(total_tokens_limit=30)),
    ],
)
def test_pydantic_ai_without_a_typed_reply_raises_with_all_replies(rule, limits):
    tools = [test_pydantic_ai.look_up]
    agent = PydanticAgent(searching([]), tools=tools, output_type=Play, capabilities=[stop_capability(rule)])
    with pytest.raises(UnansweredError, match="type Play") as raised:
        agent.run_sync(QUESTION, usage_limits=limits)
    assert len(raised.value.rounds) in (2, 3)
    assert raised.value.decision["rounds"] == len(raised.value.rounds)


def test_pydantic_ai_keeps_a_typed_output_where_retries_run_out():
    script = Script(("The Tempest", "Hamlet", "Hamlet", "Hamlet"))
    capability = stop_capability("round >= 9", revise="Improve your answer.")
    agent = PydanticAgent(
        test_pydantic_ai.fake(script, typed=True), output_type=Play, capabilities=[capability], retries={"output": 2}
    )
    result = agent.run_sync(QUESTION)
    assert result.output == Play(title="Hamlet")
    assert (decision_of(result)["reason"], decision_of(result)["rounds"]) == ("cancelled", 3)
    called = [part.tool_call_id for m in result.all_messages() for part in m.parts if part.part_kind == "tool-call"]
    closed = [part.tool_call_id for m in result.all_messages() for part in m.parts if part.part_kind == "tool-return"]
    assert called[-1] in closed


class Novel(BaseModel):
    title: str


def shout(play: Play) -> str:
    return play.title.upper()


def calling(tool, arguments):
    def respond(messages, info):
        return ModelResponse([ToolCallPart(tool, arguments)], usage=RequestUsage(input_tokens=10, output_tokens=1))

    return FunctionModel(respond)


def ended_by_tokens(tool, arguments, wanted):
    capability = stop_capability("round >= 9", revise="Improve your answer.")
    agent = PydanticAgent(
        calling(tool, arguments), output_type=wanted, capabilities=[capability], retries={"output": 9}
    )
    return agent.run_sync(QUESTION, usage_limits=UsageLimits(total_tokens_limit=25)).output


@pytest.mark.parametrize(
    ("tool", "arguments", "wanted", "expected"),
    [
        ("final_result", {"response": ["Hamlet", "Othello"]}, list[str], ["Hamlet", "Othello"]),
        ("final_result", {"response": 3}, int, 3),
        ("final_result_Novel", {"title": "Emma"}, Play | Novel, Novel(title="Emma")),
        ("final_result_Novel", {"title": "Emma"}, [Play, Novel], Novel(title="Emma")),
    ],
)
def test_pydantic_ai_returns_what_the_called_output_tool_would(tool, arguments, wanted, expected):
    assert ended_by_tokens(tool, arguments, wanted) == expected


@pytest.mark.parametrize("wanted", [shout, [Play, shout]])
def test_pydantic_ai_never_returns_what_a_function_was_to_make(wanted):
    tool = "final_result" if wanted is shout else "final_result_Play"
    with pytest.raises(UnansweredError, match="could be returned"):
        ended_by_tokens(tool, {"title": "Hamlet"}, wanted)


def test_pydantic_ai_reads_native_output_as_its_type_where_tokens_run_out():
    replies = ['{"title": "The Tempest"}', '{"title": "Hamlet"}', '{"title": "Hamlet"}']
    capability = stop_capability("round >= 9", revise="Improve your answer.")
    agent = PydanticAgent(
        searching(replies), output_type=NativeOutput(Play), capabilities=[capability], retries={"output": 9}
    )
    result = agent.run_sync(QUESTION, usage_limits=UsageLimits(total_tokens_limit=25))
    assert (result.output, decision_of(result)["reason"]) == (Play(title="Hamlet"), "cancelled")
