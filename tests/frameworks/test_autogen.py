"""AutoGen: the lines to paste, a critic beside the writer, and other conditions."""

import asyncio

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.conditions import MaxMessageTermination
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient, CreateResult, ModelFamily, ModelInfo, RequestUsage

from suffice import Policy
from suffice.errors import DataError
from suffice.hosts.autogen import stop_condition
from tests.frameworks.acceptance import CAPPED, QUESTION, Script, check, check_cap, check_stop, loaded


class Fake(ChatCompletionClient):
    def __init__(self, script):
        self.script = script

    async def create(self, messages, **options):
        self.script.log.append(list(messages))
        usage = RequestUsage(prompt_tokens=10, completion_tokens=2)
        return CreateResult(content=self.script.next(), finish_reason="stop", usage=usage, cached=False)

    def create_stream(self, *arguments, **options):
        raise NotImplementedError

    async def close(self):
        pass

    def actual_usage(self):
        return RequestUsage(prompt_tokens=0, completion_tokens=0)

    total_usage = actual_usage

    def count_tokens(self, messages, **options):
        return 0

    remaining_tokens = count_tokens

    @property
    def model_info(self):
        return ModelInfo(
            vision=False, function_calling=False, json_output=False, family=ModelFamily.UNKNOWN, structured_output=False
        )

    @property
    def capabilities(self):
        return self.model_info


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("autogen", folder, model=Fake(script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("autogen", folder, model=Fake(script))["ask"])
    assert script.calls == 10


def test_another_condition_ends_with_the_best_answer_too(folder):
    script = Script(CAPPED)
    stop = stop_condition(folder / "policy.json")

    async def ask(question):
        team = RoundRobinGroupChat(
            [AssistantAgent("writer", Fake(script))], termination_condition=stop | MaxMessageTermination(6)
        )
        await team.run(task=question)
        return stop.ended()

    check_cap(script, ask)
    assert script.calls == 5


def test_a_critic_between_drafts_is_paid_for_but_not_a_round(folder):
    stop = stop_condition(Policy(rule="patience((quality < 0.5), 2) | (tokens > 90)"), writer="writer")
    script, critic = Script(), Script(("Look again.",))
    agents = [AssistantAgent("writer", Fake(script)), AssistantAgent("critic", Fake(critic))]
    result = asyncio.run(RoundRobinGroupChat(agents, termination_condition=stop).run(task=QUESTION))
    text, decision = stop.ended()
    assert (script.calls, critic.calls, decision["stop_round"], text) == (4, 3, 4, "King Lear")
    assert decision["signals"] == {"quality": 0.2, "tokens": 12 * 7}
    assert result.stop_reason == "rule at round 4: round 4 is the best"


def test_a_team_that_goes_on_without_being_reset_begins_a_new_question(folder):
    script = Script()
    stop = stop_condition(folder / "policy.json")
    team = RoundRobinGroupChat([AssistantAgent("writer", Fake(script))], termination_condition=stop)

    async def both():
        for question in (QUESTION, "Another?"):
            script.rewind()
            await team.run(task=question)
            check_stop(script, *stop.ended())

    asyncio.run(both())


def test_before_the_end_there_is_nothing_to_return():
    with pytest.raises(DataError, match="team"):
        stop_condition("answer_stable | (round >= 5)").ended()
