"""OpenAI Agents: the lines to paste, runs side by side, typed output, and plain replies."""

import asyncio
from uuid import uuid4

import pytest
from agents import Agent, ItemHelpers, Runner, function_tool, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText
from openai.types.responses.response_usage import InputTokensDetails
from pydantic import BaseModel

from suffice import Policy, Recorder, read_recording
from suffice.errors import DataError
from suffice.hosts.openai_agents import stop_hooks
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

set_tracing_disabled(True)


@function_tool
def look_up() -> str:
    """Look something up."""
    return "nothing new"


class Fake(Model):
    def __init__(self, script, form="{}", *, tool="look_up"):
        self.script, self.form, self.tool = script, form, tool

    async def get_response(self, *arguments, **options):
        self.script.log.append(arguments or options)
        tools = options["tools"] if options else arguments[3]
        self.script.offered.append(bool(tools))
        text = self.form.replace("{}", self.script.next())
        number = uuid4().hex
        part = ResponseOutputText.model_validate(
            {"text": text, "type": "output_text", "annotations": [], "logprobs": tokens_of(text)}
        )
        said = ResponseOutputMessage(
            id=f"m{number}", content=[part], role="assistant", status="completed", type="message"
        )
        call = ResponseFunctionToolCall(arguments="{}", call_id=f"c{number}", name="look_up", type="function_call")
        details = InputTokensDetails(cached_tokens=4, cache_write_tokens=0)
        usage = Usage(requests=1, input_tokens=10, output_tokens=2, total_tokens=12, input_tokens_details=details)
        return ModelResponse([said, *([call] if self.tool and tools else [])], usage=usage, response_id=None)

    async def stream_response(self, *arguments, **options):
        raise NotImplementedError
        yield


def agent_of(model, stop, **options):
    return Agent("writer", model=model, tools=[look_up], tool_use_behavior=stop.after_tools, **options)


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("openai_agents", folder, model=Fake(script), tools=[look_up])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("openai_agents", folder, model=Fake(script), tools=[look_up])["ask"])
    assert script.calls == 10


def test_what_the_framework_returns_is_the_best_answer_too(folder):
    stop = stop_hooks(folder / "policy.json")
    result = Runner.run_sync(agent_of(Fake(Script()), stop), QUESTION, hooks=stop)
    assert result.final_output == "The Tempest"
    capped = Runner.run_sync(
        agent_of(Fake(Script(CAPPED)), stop), QUESTION, hooks=stop, error_handlers=stop.handlers, max_turns=5
    )
    assert capped.final_output == "The Tempest"


@pytest.mark.parametrize(("answers", "reason", "calls"), [(SCRIPT, "rule", 4), (CAPPED, "cancelled", 5)])
def test_one_call_puts_the_hooks_into_all_their_places(folder, answers, reason, calls):
    script = Script(answers)
    agent = Agent("writer", model=Fake(script), tools=[look_up])
    text, decision = asyncio.run(stop_hooks(folder / "policy.json").run(agent, QUESTION, max_turns=5))
    assert (text, decision["reason"], script.calls) == ("The Tempest", reason, calls)


def test_runs_side_by_side_do_not_meet(folder):
    stop = stop_hooks(folder / "policy.json")

    async def both():
        runs = (Runner.run(agent_of(Fake(Script()), stop), QUESTION, hooks=stop) for _ in range(5))
        return await asyncio.gather(*runs)

    for result in asyncio.run(both()):
        check_stop(Script(calls=4), *stop.ended(result))


def test_an_agent_that_ends_itself_is_exhausted_and_returns_its_best_answer(folder):
    class Gives(Fake):
        async def get_response(self, *arguments, **options):
            self.tool = "look_up" if self.script.calls < 2 else None
            return await super().get_response(*arguments, **options)

    with Recorder(folder / "runs.parquet", policy=folder / "policy.json") as recorder:
        stop = stop_hooks(folder / "policy.json", recorder=recorder)
        result = Runner.run_sync(agent_of(Gives(Script(SCRIPT)), stop), QUESTION, hooks=stop)
    assert read_recording(folder / "runs.parquet").ends.tolist() == ["exhausted"]
    assert result.final_output == "Macbeth"
    output, decision = stop.ended(result)
    assert (output, decision["reason"], decision["rounds"]) == ("The Tempest", "exhausted", 3)


class Play(BaseModel):
    title: str


@pytest.mark.parametrize("max_turns", [4, 10])
def test_a_typed_output_is_handed_back_as_its_type(folder, max_turns):
    stop = stop_hooks(folder / "policy.json")
    script = Script() if max_turns == 10 else Script(CAPPED)
    agent = agent_of(Fake(script, '{"title": "{}"}'), stop, output_type=Play)
    result = Runner.run_sync(agent, QUESTION, hooks=stop, error_handlers=stop.handlers, max_turns=max_turns)
    assert result.final_output == Play(title="The Tempest")
    assert stop.ended(result)[0] == Play(title="The Tempest")


def test_measures_get_the_question_and_costs_are_those_of_the_responses(folder):
    asked = []

    def measure(question, text):
        asked.append((question, text))
        return {}

    stop = stop_hooks(Policy(rule="tokens > 20"), measure=measure)
    result = Runner.run_sync(agent_of(Fake(Script()), stop), QUESTION, hooks=stop)
    assert stop.ended(result)[1]["signals"] == {"tokens": 24}
    assert asked == [(QUESTION, "Titus Andronicus"), (QUESTION, "The Tempest")]
    assert ItemHelpers.text_message_outputs(result.new_items).startswith("Titus Andronicus")


def test_a_run_with_other_hooks_is_an_error():
    result = Runner.run_sync(Agent("writer", model=Fake(Script(), tool=None)), QUESTION)
    with pytest.raises(DataError, match="not observed"):
        stop_hooks("answer_stable | (round >= 5)").ended(result)


@pytest.mark.parametrize("is_same_process", [True, False])
def test_a_run_that_was_interrupted_for_approvals_goes_on(folder, is_same_process):
    @function_tool(name_override="look_up", needs_approval=True)
    def guarded() -> str:
        """Look something up."""
        return "nothing new"

    script, stop = Script(), stop_hooks(folder / "policy.json")
    for question in (QUESTION, "Another?"):
        script.rewind()
        agent = Agent("writer", model=Fake(script), tools=[guarded], tool_use_behavior=stop.after_tools)
        result = Runner.run_sync(agent, question, hooks=stop)
        while result.interruptions:
            state = result.to_state()
            for interruption in result.interruptions:
                state.approve(interruption)
            if not is_same_process and script.calls == 2:
                stop = stop_hooks(folder / "policy.json")
                agent.tool_use_behavior = stop.after_tools
            result = Runner.run_sync(agent, state, hooks=stop)
        output, decision = stop.ended(result)
        assert result.final_output == output == "The Tempest"
        check_stop(script, output, decision)
        assert not stop._waiting
