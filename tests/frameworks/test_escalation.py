"""The lines of an escalation in real frameworks: each attempt is a run with another model, and the stop is the judged one."""

import pytest
from pydantic_ai.messages import ModelResponse, TextPart
from pydantic_ai.models.function import FunctionModel

from suffice import Policy
from suffice.hosts.lines import attempt_lines
from tests.frameworks.acceptance import Script
from tests.frameworks.chat import FakeChat
from tests.frameworks.test_openai_agents import Fake

ANSWERS = {"m0": "Bern", "m1": "Oslo", "m2": "Oslo", "m3": "Rome"}


def pydantic_model(answer):
    return FunctionModel(lambda messages, info: ModelResponse([TextPart(answer)]))


MADE = {
    "langchain": lambda answer: FakeChat(script=Script((answer,))),
    "langgraph": lambda answer: FakeChat(script=Script((answer,))),
    "openai_agents": lambda answer: Fake(Script((answer,)), tool=None),
    "pydantic_ai": pydantic_model,
}


@pytest.mark.parametrize("name", MADE)
def test_the_lines_ask_one_model_after_the_other_until_two_agree(name, tmp_path):
    policy = Policy(rule="answer_stable", max_rounds=4, depends={"attempts": [*ANSWERS]})
    policy.save(tmp_path / "policy.json")
    space = {"tools": []}
    exec(attempt_lines(policy, tmp_path / "policy.json", name), space)
    assert space["MODELS"] == [*ANSWERS]
    made = {model: MADE[name](answer) for model, answer in ANSWERS.items()}
    if name == "langgraph":  # which names models in its configuration
        space["chat_model"] = made.__getitem__
    else:
        space["MODELS"] = [*made.values()]
    answer, decision = space["ask"]("Where?")
    assert (answer, decision.stop_round, decision.reason) == ("Oslo", 3, "rule")
