"""CrewAI: the lines to paste, as a guardrail of a task."""

from crewai import BaseLLM

from tests.frameworks.acceptance import CAPPED, Script, check, check_cap, loaded


class Fake(BaseLLM):
    def __init__(self, script):
        super().__init__(model="fake")
        self._script = script

    def call(self, messages, *arguments, **options):
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
