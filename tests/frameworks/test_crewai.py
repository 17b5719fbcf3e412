"""CrewAI: the lines to paste, as a guardrail of a task."""

import pytest
from crewai import Agent, BaseLLM, Crew, Task

from suffice import Policy, Recorder, read_recording
from suffice.errors import DataError
from suffice.evaluation.replay import Price
from suffice.hosts.crewai import StopTask
from tests.frameworks.acceptance import CAPPED, QUESTION, Script, check, check_cap, loaded

PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
CALL = (6 * 2.0 + 4 * 0.2 + 2 * 12.0) / 1e6


class Fake(BaseLLM):
    def __init__(self, script):
        super().__init__(model="fake")
        self._script = script

    def call(self, messages, *arguments, **options):
        details = {"cached_tokens": 4}
        self._track_token_usage_internal(
            {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12, "prompt_tokens_details": details}
        )
        return f"Thought: I now can give a great answer\nFinal Answer: {self._script.next()}"

    def supports_function_calling(self):
        return False


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("crewai", folder, model=Fake(script))["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("crewai", folder, model=Fake(script))["ask"])
    assert script.calls == 10


def crew_of(model, **arguments):
    writer = Agent(role="Writer", goal="Answer questions", backstory="You know plays.", llm=model)
    return Crew(agents=[writer], tasks=[Task(description="{question}", expected_output="A", agent=writer, **arguments)])


def test_rules_read_live_spending_and_drafts_are_recorded(tmp_path):
    rule, model = Policy(rule="(spend > 0.0001) & (since_change >= 2)"), Fake(Script(("Oslo",) * 20))
    with Recorder(tmp_path / "runs.parquet", policy=rule) as recorder:
        stop = StopTask(rule, price=PRICE, recorder=recorder)
        crew = crew_of(model, **stop.arguments)
        for _ in range(2):  # a model counts for its lifetime
            text, decision = stop.kickoff(crew, QUESTION)
            assert (text, decision["reason"], decision["rounds"]) == ("Oslo", "rule", 3)
    spent = read_recording(tmp_path / "runs.parquet").column("spend").tolist()
    assert spent == [[pytest.approx(n * CALL) for n in (1, 2, 3)]] * 2


def test_a_crew_without_the_policy_is_refused():
    stop, model = StopTask("answer_stable | (round >= 5)"), Fake(Script())
    with pytest.raises(DataError, match="stop.arguments"):
        stop.kickoff(crew_of(model), QUESTION)
    with pytest.raises(DataError, match="kickoff"):
        stop.arguments["guardrail"](None)
