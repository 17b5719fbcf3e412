"""Inspect: the lines to paste, limits of a sample, and epochs that end early."""

import os

import inspect_ai
import pytest
from inspect_ai.agent import react
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageAssistant, ModelOutput, ModelUsage, get_model
from inspect_ai.scorer import match
from inspect_ai.tool import ToolCall, tool

from suffice import Policy, Recorder, read_recording
from suffice.evaluation.replay import Price
from suffice.hosts.inspect import stop_continue, stop_epochs
from tests.frameworks.acceptance import CAPPED, QUESTION, SCRIPT, Script, check, check_cap, loaded

PRICE = Price(uncached=2.0, cached=0.2, output=12.0)
CALL = (6 * 2.0 + 4 * 0.2 + 2 * 12.0) / 1e6


@pytest.fixture(autouse=True)
def quiet(monkeypatch, tmp_path):
    monkeypatch.setitem(os.environ, "INSPECT_LOG_DIR", str(tmp_path / "logs"))
    monkeypatch.setitem(os.environ, "INSPECT_DISPLAY", "none")


@tool
def look_up():
    async def execute() -> str:
        """Look something up."""
        return "nothing new"

    return execute


def said(text, calls=None):
    """Return a model's output with its usage; without one, the mock model would load a tokenizer."""
    output = ModelOutput.from_message(ChatMessageAssistant(content=text, tool_calls=calls))
    output.usage = ModelUsage(input_tokens=6, input_tokens_cache_read=4, output_tokens=2, total_tokens=12)
    return output


def fake(script):
    def respond(messages, tools, tool_choice, config):
        script.log.append(list(messages))
        script.offered.append(bool(tools))
        calls = [ToolCall(id=f"c{script.calls}", function="look_up", arguments={})] if tools else None
        return said(script.next(), calls)

    return get_model("mockllm/model", custom_outputs=respond, memoize=False)


def asked(script, **options):
    """Return the completion and the decision of one sample."""
    limits = {name: options.pop(name) for name in list(options) if name.endswith("_limit")}
    policy = options.pop("policy")
    agent = react(tools=[look_up()], on_continue=stop_continue(policy, **options))
    (log,) = inspect_ai.eval(
        inspect_ai.Task(dataset=[Sample(input=QUESTION)], solver=agent), model=fake(script), **limits
    )
    assert log.status == "success"
    (sample,) = log.samples
    assert sample.error is None
    assert sample.store["suffice"]["decision"] == sample.output.metadata["suffice"]
    return sample.output.completion, sample.output.metadata["suffice"]


def test_it_ends_with_the_best_answer_and_a_reason(folder):
    script = Script()
    check(script, loaded("inspect", folder, model=fake(script), tools=[look_up()])["ask"])


def test_its_own_limit_ends_with_the_best_answer(folder):
    script = Script(CAPPED)
    check_cap(script, loaded("inspect", folder, model=fake(script), tools=[look_up()])["ask"])
    assert script.calls == 10


@pytest.mark.parametrize("limit", [{"message_limit": 12}, {"token_limit": 70}, {"turn_limit": 4}])
def test_every_limit_of_a_sample_ends_with_the_best_answer(folder, limit):
    text, decision = asked(Script(CAPPED), policy=folder / "policy.json", **limit)
    assert (text, decision["reason"], decision["answer_round"]) == ("The Tempest", "cancelled", 2)


@pytest.mark.parametrize("limit", [{}, {"message_limit": 12}, {"token_limit": 70}, {"turn_limit": 5}])
def test_a_stop_with_only_tool_calls_ends_with_one_last_call(limit):
    class Bare(Script):
        def next(self):
            self.calls += 1
            return "" if self.offered[-1] else "The Tempest"

    script = Bare()
    text, decision = asked(script, policy="round >= 5", final_call=True, **limit)
    assert (text, decision["final_call"]) == ("The Tempest", "answered")
    assert script.offered == [True] * (script.calls - 1) + [False]
    assert script.calls <= 5


@pytest.mark.parametrize("first", ["", "The Tempest"])
def test_a_failing_last_call_ends_without_an_exception(first):
    script = Script((first, "", "Macbeth"), fails_at=3)
    text, decision = asked(script, policy="round >= 3", final_call=True)
    assert (text, decision["answer"], decision["final_call"]) == (first, first or None, "failed")


def test_rules_read_live_spending_and_rounds_are_recorded(tmp_path):
    rule = Policy(rule="(spend > 0.0001) & (since_change >= 2)")
    with Recorder(tmp_path / "runs.parquet", policy=rule) as recorder:
        text, decision = asked(Script(("Oslo",) * 9), policy=rule, price=PRICE, recorder=recorder)
    assert (text, decision["reason"]) == ("Oslo", "rule")
    recording = read_recording(tmp_path / "runs.parquet")
    assert recording.column("spend").tolist() == [[pytest.approx(n * CALL) for n in (1, 2, 3)]]
    assert recording.objects("question")[:, 0].tolist() == [QUESTION]


def test_epochs_end_when_the_policy_stops(tmp_path):
    Policy(rule="answer_stable", max_rounds=6).save(tmp_path / "policy.json")
    answers = {"one": ["Oslo", "Bern", "Bern"], "two": ["Rome", "Rome"], "three": list("abcdefgh")}
    drawn = {name: iter(each) for name, each in answers.items()}

    def respond(messages, tools, tool_choice, config):
        return said(next(drawn[messages[-1].text]))

    samples = [Sample(id=name, input=name, target=each[-1]) for name, each in answers.items()]
    stop = stop_epochs(tmp_path / "policy.json")
    task = inspect_ai.Task(dataset=samples, scorer=match(), epochs=8, early_stopping=stop)
    (log,) = inspect_ai.eval(
        task, model=get_model("mockllm/model", custom_outputs=respond, memoize=False), max_samples=1
    )
    assert log.status == "success"
    counts = {name: sum(sample.id == name for sample in log.samples) for name in answers}
    assert counts == {"one": 3, "two": 2, "three": 6}
    about = log.results.early_stopping
    assert about.manager == "suffice"
    assert {stop.id: stop.reason for stop in about.early_stops} == {"one": "rule", "two": "rule", "three": "max_rounds"}
    assert about.metadata["decisions"]["one"]["answer"] == "Bern"
    assert about.metadata["policy"] == "answer_stable >= 1"


@pytest.mark.parametrize(("script", "ended"), [(SCRIPT, 3), (["Hamlet"] * 6 + ["Macbeth"] * 2, 7)])
def test_a_rule_on_epochs_can_read_their_scores(script, ended):
    drawn = iter(script)

    def respond(messages, tools, tool_choice, config):
        return said(next(drawn))

    samples = [Sample(id="one", input=QUESTION, target="Macbeth")]
    task = inspect_ai.Task(dataset=samples, scorer=match(), epochs=8, early_stopping=stop_epochs("match >= 1"))
    (log,) = inspect_ai.eval(
        task, model=get_model("mockllm/model", custom_outputs=respond, memoize=False), max_samples=1
    )
    assert len(log.samples) == ended
    assert log.results.early_stopping.early_stops[0].metadata["fired"] == "match >= 1"
