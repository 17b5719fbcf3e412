"""The lines of every framework on the raw replies of a log: they stop at the round, with the answer, that `decide` judged."""

import asyncio
import inspect
from contextlib import nullcontext

import dspy
import pytest

from tests.frameworks import test_dspy, test_google_adk, test_haystack, test_smolagents, test_strands
from tests.frameworks.acceptance import Script, loaded
from tests.frameworks.test_recorder import ADAPTERS
from tests.support.raw_replies import OF_FORMS, POSITIONS, judged

OTHERS = {
    "dspy": lambda script: {},
    "google_adk": lambda script: {
        "model": test_google_adk.Fake(model="m", script=script),
        "tools": [test_google_adk.look_up],
    },
    "haystack": lambda script: {"model": test_haystack.fake(script), "tools": [test_haystack.look_up]},
    "smolagents": lambda script: {"model": test_smolagents.Fake(script), "tools": [test_smolagents.look_up]},
    "strands": lambda script: {"model": test_strands.Fake(script), "tools": [test_strands.look_up]},
}
ASKED = 15


@pytest.fixture(scope="module", params=[*POSITIONS, *OF_FORMS])
def log(request, tmp_path_factory):
    return judged(request.param, tmp_path_factory.mktemp(request.param))


@pytest.mark.parametrize("name", [*ADAPTERS, *OTHERS])
def test_lines_on_raw_replies_stop_and_answer_as_decided(name, log, tmp_path):
    log.policy.save(tmp_path / "policy.json")
    script = Script()
    lm = dspy.context(lm=dspy.LM("fake/m", engine=test_dspy.Fake(script), cache=False))
    with lm if name == "dspy" else nullcontext(), asyncio.Runner() as runner:
        lines = loaded(name, tmp_path, **{**ADAPTERS, **OTHERS}[name](script))
        ask = test_google_adk.asked(lines) if name == "google_adk" else lines["ask"]
        for number, (replies, stop, answered, answer) in enumerate(log.questions[:ASKED]):
            script.answers, script.calls = tuple(replies), 0
            result = ask(f"Question {number}?")
            _, decision = runner.run(result) if inspect.isawaitable(result) else result
            assert (decision["stop_round"], decision["answer_round"], decision["answer"]) == (stop, answered, answer)
            assert script.calls == stop
