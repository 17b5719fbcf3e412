"""Chains of thought over an endpoint: which trials a live run asks for, and that replay says the same."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace

import pytest

from suffice import ChatModel, Policy, read_recording, record
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.hosts.lines import own_lines
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import CHATML, THINKING_PROMPTS, ThinkingLoop
from suffice.verdicts.decisions.candidates import change_text
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

CHAINS = {
    # what is thought at each checkpoint, and the trial answer there; the own answer last
    "settles": (["six sevens", "is forty two", "wait let me", "see yes"], ["40", "42", "42", "42"], "42"),
    "changes": (["one two", "three"], ["3", "3"], "4"),
    "never sure": (["a b", "c d", "e f", "g h", "i j"], ["1", "", "2", "", "3"], "5"),
}
RULES = (
    "fixed_k(9)",
    "fixed_k(2)",
    "answer_stable",
    "dynasor(2)",
    "dynasor(3)",
    "token_budget(4)",
    "token_budget(5)",
    "(thinking_tokens >= 4) & (answer_stable >= 1)",
    "(thinking_hesitation > 0.2) & (answer_stable >= 1)",
    "(thinking_tokens >= 6) | (trial_hesitates < 0.5)",
    "thinking_ended >= 1",
    "deer(0.01)",
)


def reply(body: dict) -> dict:
    """Continue a chain, or answer a trial, as the question in the prompt says."""
    prompt = body["prompt"]
    name = next((name for name in CHAINS if name in prompt), None)
    if name is None:  # whether log-probabilities arrive
        return completion("One.", "stop", prompt)
    thoughts, trials, own = CHAINS[name]
    chain = prompt.partition("<think>\n")[2].partition(CHATML.end)[0]
    done = next(i for i in range(len(thoughts) + 1) if "".join(f" {t}" for t in thoughts[:i]) == chain)
    if prompt.endswith(CHATML.end + CHATML.cue):
        text, finish = f" {trials[done - 1]}\n", "stop"
    elif prompt.endswith(CHATML.end):
        text, finish = f"So.\nAnswer: {own}", "stop"
    else:
        assert body["stop"] == ["</think>"]
        text, finish = f" {thoughts[done]}", "stop" if done == len(thoughts) - 1 else "length"
    return completion(text, finish, prompt)


def completion(text: str, finish: str, prompt: str) -> dict:
    words = text.split()
    logprobs = {
        "tokens": [f" {word}" for word in words],
        "token_logprobs": [-0.5] * len(words),
        "top_logprobs": [{" x": -1.0, f" {word}": -0.5} for word in words],
    }
    usage = {
        "prompt_tokens": len(prompt.split()),
        "completion_tokens": len(words),
        "prompt_tokens_details": {"cached_tokens": 1},
    }
    return {"model": "m", "choices": [{"text": text, "finish_reason": finish, "logprobs": logprobs}], "usage": usage}


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint(reply) as running:
        yield running


def loop(endpoint: Endpoint, policy: Policy | None = None, **more) -> ThinkingLoop:
    model = ChatModel("m", base_url=endpoint.url, api_key="key", api="completions", max_retries=0)
    return ThinkingLoop(model=model, policy=policy or Policy(max_rounds=9), every=2, **more)


@pytest.fixture(scope="module")
def recording(endpoint, tmp_path_factory):
    path = tmp_path_factory.mktemp("thinking") / "t.parquet"
    questions = [Question(question_id=name, question=f"{name}?", answers=("42",)) for name in CHAINS]
    record(questions, loop(endpoint), path)
    return read_recording(path)


def test_a_recording_has_every_checkpoint_its_trial_and_the_own_answer(recording):
    row = recording.names("signal")
    assert {"thinking_tokens", "thinking_ended", "thinking_hesitation", "thinking_novelty", "trial_hesitates"} <= set(
        row
    )
    answers = dict(zip(recording.question_ids, recording.answers.tolist(), strict=True))
    assert answers["settles"][:5] == ["40", "42", "42", "42", "42"]
    assert answers["changes"][:3] == ["3", "3", "4"]
    assert answers["never sure"][:6] == ["1", None, "2", None, "3", "5"]
    place = list(recording.question_ids).index("settles")
    assert recording.column("thinking_tokens")[place, :5].tolist() == [2, 5, 8, 10, 10]
    assert recording.column("cost.trial.calls")[place, :4].tolist() == [1, 1, 1, 1]
    assert set(recording.ends.tolist()) == {"exhausted"}


@pytest.mark.parametrize("rule", RULES)
def test_live_stops_answers_and_costs_are_those_replayed(endpoint, recording, rule):
    policy = Policy(rule=rule, max_rounds=9)
    run, stopped = run_policy(PreparedRecording.of(recording, metrics=("em",)), policy)
    live_loop = loop(endpoint, policy)
    assert sorted(recording.question_ids) == sorted(CHAINS)
    for place, name in enumerate(recording.question_ids):
        outcome = live_loop.run(f"{name}?")
        assert outcome.decision.stop_round == stopped.rounds[place], name
        answered = int(stopped.answer_position[place])
        assert outcome.answer == (recording.answers[place, answered] if answered >= 0 else None), name
        for component in ("generator", "trial"):
            for kind in ("calls", "output_tokens", "uncached_tokens", "cached_tokens"):
                paid = outcome.costs.get(component)
                live = 0.0 if paid is None else getattr(paid, kind)
                assert live == run.ledger.costs[component][kind][place], (name, component, kind)


def test_a_chain_that_runs_to_its_end_is_asked_no_trial(endpoint):
    outcome = loop(endpoint).run("settles?")
    assert outcome.answer == "42"
    assert "trial" not in outcome.costs
    assert [observed.thinking for observed in outcome.rounds] == [
        " six sevens",
        " is forty two",
        " wait let me",
        " see yes",
        "",
    ]


def test_a_selector_that_votes_asks_at_each_checkpoint(endpoint, recording):
    policy = Policy(rule="token_budget(8)", max_rounds=9, selector="majority")
    outcome = loop(endpoint, policy).run("settles?")
    assert (outcome.answer, outcome.costs["trial"].calls) == ("42", 3)


def test_asynchronous_runs_are_the_same(endpoint):
    policy = Policy(rule="dynasor(2)", max_rounds=9)
    live = loop(endpoint, policy)
    assert asyncio.run(live.run_async("settles?")).decision == live.run("settles?").decision


def test_a_trial_that_is_cut_is_undefined():
    def cut(body: dict) -> dict:
        made = reply(body)
        if body["prompt"].endswith(CHATML.cue):
            made["choices"][0] |= {"text": " a very long", "finish_reason": "length"}
        return made

    with Endpoint(cut) as endpoint:
        outcome = loop(endpoint, Policy(rule="token_budget(4)", max_rounds=9)).run("settles?")
    assert outcome.answer is None
    assert outcome.costs["trial"].calls == 2  # the one at the stop, and that before


def test_a_loop_that_cannot_work_says_so_before_it_pays(endpoint):
    chat = ChatModel("m", base_url=endpoint.url, api_key="key")
    with pytest.raises(ModelError, match="api=completions"):
        ThinkingLoop(model=chat).run("settles?")
    with pytest.raises(DataError, match="checkpoints count"):
        loop(endpoint, Policy(start_round=0)).run("settles?")
    with pytest.raises(DataError, match="every must be"):
        ThinkingLoop(model=chat, every=0)


@pytest.mark.parametrize("name", sorted(THINKING_PROMPTS))
def test_templates_end_where_the_model_begins_to_think(name):
    prompt = THINKING_PROMPTS[name]
    text = prompt.text(" What {is} it? ")
    assert text.endswith("<think>\n")
    assert "What {is} it?" in text
    assert prompt.system in text


def test_trials_without_a_cue_are_the_replies_after_a_cut(tmp_path):
    def replies(body: dict) -> dict:
        if not body["prompt"].endswith(CHATML.end):
            return reply(body)
        chain = body["prompt"].partition("<think>\n")[2].partition(CHATML.end)[0]
        return completion(f"Long words first.\nAnswer: {len(chain.split())}", "stop", body["prompt"])

    with Endpoint(replies) as continued:
        made = loop(continued, prompt=THINKING_PROMPTS["chatml_continued"], trial_tokens=64)
        record([Question(question_id="settles", question="settles?", answers=("5",))], made, tmp_path / "t.parquet")
        assert not any(request.body["prompt"].endswith(CHATML.cue) for request in continued.requests)
        recording = read_recording(tmp_path / "t.parquet")
        policy = policy_for(recording, "token_budget(5)")
        outcome = replace(made, policy=policy).run("settles?")
        with pytest.raises(ConfigMismatchError, match="prompt_id"):
            loop(continued, policy).run("settles?")
    assert recording.answers[0].tolist()[:4] == ["2", "5", "8", "10"]
    assert recording.column("cost.trial.output_tokens")[0, :4].tolist() == [5, 5, 5, 5]
    assert (outcome.answer, outcome.costs["trial"].output_tokens) == ("5", 5)


def test_a_recording_goes_on_where_a_failure_ended_it(recording, tmp_path):
    questions = [Question(question_id=name, question=f"{name}?", answers=("42",)) for name in CHAINS]
    path = tmp_path / "again.parquet"
    with Endpoint(reply, fault=[None, None, None, None, "500"]) as failing:
        record(questions, loop(failing), path, concurrency=1)
        asked = len(failing.requests)
        record(questions, loop(failing), path, concurrency=1)
        assert len(failing.requests) - asked < asked
    again = read_recording(path)
    ran = [name for name in recording.table.column_names if name != "recorded_at" and not name.endswith("seconds")]
    assert again.table.select(ran).to_pylist() == recording.table.select(ran).to_pylist()


def test_the_commands_record_replay_and_answer(endpoint, tmp_path):
    lines = [json.dumps({"id": name, "question": f"{name}?", "answers": ["42"]}) for name in CHAINS]
    (tmp_path / "q.jsonl").write_text("\n".join(lines))
    asked = ("--model", "m", "--base-url", endpoint.url, "--set", "every=2")
    cli("think", "record", tmp_path / "q.jsonl", "-o", tmp_path / "t.parquet", *asked, code=0)
    replayed = cli("replay", tmp_path / "t.parquet", "--rule", "token_budget(4)", "--json")
    answered = cli("think", "answer", "settles?", *asked, "--rule", "token_budget(4)", "--json")
    row = json.loads(replayed.out)["rows"][0]
    # One chain asks twice, since its second trial is empty, and one ends before the budget.
    assert row["components"]["trial"]["calls"] == pytest.approx((1 + 0 + 2) / 3)
    assert json.loads(answered.out)["answer"] == "42"


def test_a_template_that_there_is_not_is_named(endpoint):
    done = cli("think", "answer", "settles?", "--model", "m", "--base-url", endpoint.url, "--set", "template=none")
    assert done.code == 2
    assert "chatml, deepseek_r1" in done.err


def test_the_lines_of_deploy_stop_as_the_policy_was_judged(endpoint, recording, tmp_path, monkeypatch):
    policy = policy_for(recording, "dynasor(2)")
    policy.save(tmp_path / "judged.json")
    deployed = cli("deploy", tmp_path / "judged.json", "-o", tmp_path / "policy.json", "--json", code=0)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    names: dict = {}
    exec(compile(json.loads(deployed.out)["lines"], "lines", "exec"), names)
    _, stopped = run_policy(PreparedRecording.of(recording, metrics=("em",)), policy)
    for place, name in enumerate(recording.question_ids):
        answer, decision = names["ask"](f"{name}?")
        assert (decision.stop_round, answer) == (
            stopped.rounds[place],
            recording.answers[place, stopped.answer_position[place]],
        )
    refused = cli("deploy", tmp_path / "judged.json", "--to", "langgraph", code=1)
    assert "leave out --to" in refused.err


def test_a_template_of_your_own_is_left_to_you_in_the_lines():
    made_for = {"model": "m", "temperature": 0.0, "prompt_id": "mine@1", "every": 8, "trial_tokens": 4}
    lines = own_lines(Policy(rule="dynasor", depends=made_for), "policy.json")
    assert "prompt=PROMPT,  # your ThinkingPrompt 'mine@1'" in lines
    compile(lines, "lines", "exec")


def test_a_cap_on_checkpoints_is_said_as_a_budget_of_tokens(recording):
    policy = policy_for(recording, "fixed_k(3)", max_rounds=3)
    assert change_text(policy, 5) == "lower the budget of thought to 6 tokens"
    words = replace(policy, depends={**policy.depends, "boundary": "words"})
    assert change_text(words, 5) == "lower the cap from 5 to 3"


def test_a_trial_that_fails_keeps_what_a_later_checkpoint_cost():
    with Endpoint(reply, fault=lambda body: "500" if body["prompt"].endswith(CHATML.cue) else None) as failing:
        policy = Policy(rule="(thinking_tokens >= 4) & (answer_stable >= 1)", max_rounds=9)
        outcome = loop(failing, policy).run("settles?")
        thought = sum(not request.body["prompt"].endswith(CHATML.cue) for request in failing.requests)
    assert isinstance(outcome.error, ModelError)
    assert len(outcome.rounds) == thought == 2
    assert outcome.costs["generator"].output_tokens == 5
