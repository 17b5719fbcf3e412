"""Checkpoints at paragraphs and words: where trials are asked, live and along recorded chains, and that replay says the same."""

from __future__ import annotations

import json
import math
import re

import pytest

from suffice import ChatModel, Policy, read_recording, record
from suffice.errors import ConfigMismatchError, DataError
from suffice.evaluation.replay import policy_for
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.hosts.lines import own_lines
from suffice.loops.asked_chains import FinishedChain, RecordedChainLoop, chain_questions
from suffice.loops.boundaries import last_boundary
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import CHATML, ThinkingLoop
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

CHAIN = (
    "six sevens are many.\n\nIt is 40 or so. Wait, it is 42 I think.\n\nHmm, yes. Alternatively add them up: it is 42."
)
WORDS = re.findall(r"\s*\S+", CHAIN)
UP_TO = {
    "paragraph": ["six sevens are many.", "Wait, it is 42 I think."],
    "words": ["It is 40 or so.", "it is 42 I think.", "Hmm, yes."],
    "it": ["six sevens are many.", "It is 40 or so. Wait,"],
}
"""How the chain ends at each checkpoint before its own end, if the loop looks after every four words."""


def reply(body: dict) -> dict:
    """Think on by so many words, and answer with the number that was named last."""
    prompt = body["prompt"]
    chain = prompt.partition("<think>\n")[2].partition(CHATML.end)[0]
    if CHATML.end in prompt:
        named = re.findall(r"\d+", chain)
        cue = "" if prompt.endswith(CHATML.cue) else "Answer: "
        return completion(f"{cue}{named[-1] if named else 0}\n", "stop", prompt)
    done = len(re.findall(r"\S+", chain))
    assert "".join(WORDS[:done]) == chain, "the chain goes on where it was"
    text = "".join(WORDS[done : done + body["max_tokens"]])
    return completion(text, "stop" if done + body["max_tokens"] >= len(WORDS) else "length", prompt)


def completion(text: str, finish: str, prompt: str) -> dict:
    words = text.split()
    logprobs = {
        "tokens": [f" {word}" for word in words],
        "token_logprobs": [-0.5] * len(words),
        "top_logprobs": [{" x": -1.0, f" {word}": -0.5} for word in words],
    }
    usage = {"prompt_tokens": len(prompt.split()), "completion_tokens": len(words)}
    return {"model": "m", "choices": [{"text": text, "finish_reason": finish, "logprobs": logprobs}], "usage": usage}


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint(reply) as running:
        yield running


def loop(endpoint: Endpoint, boundary: str, policy: Policy | None = None, kind=ThinkingLoop) -> ThinkingLoop:
    model = ChatModel("m", base_url=endpoint.url, api_key="key", api="completions", max_retries=0)
    return kind(model=model, policy=policy or Policy(max_rounds=9), every=4, boundary=boundary)


def recorded(endpoint: Endpoint, boundary: str, folder):
    before = len(endpoint.requests)
    question = Question(question_id="q", question="6 times 7?", answers=("42",))
    record([question], loop(endpoint, boundary), folder / "t.parquet")
    prompts = [request.body["prompt"] for request in endpoint.requests[before:]]
    trials = [prompt.partition("<think>\n")[2] for prompt in prompts if prompt.endswith(CHATML.cue)]
    return read_recording(folder / "t.parquet"), [trial.removesuffix(CHATML.end + CHATML.cue) for trial in trials]


@pytest.fixture(scope="module")
def by_boundary(endpoint, tmp_path_factory):
    """A recording with each kind of boundary, and the chains of which it asked a trial."""
    return {boundary: recorded(endpoint, boundary, tmp_path_factory.mktemp(boundary)) for boundary in UP_TO}


@pytest.mark.parametrize("boundary", UP_TO)
def test_trials_are_asked_at_the_last_boundary_that_was_seen(by_boundary, boundary):
    recording, trials = by_boundary[boundary]
    assert [trial for trial, end in zip(trials, UP_TO[boundary], strict=False) if trial.endswith(end)] == trials[:-1]
    assert len(trials) == len(UP_TO[boundary]) + 1
    assert trials[-1] == CHAIN
    thoughts = [text for text in recording.objects("thinking")[0] if text]
    assert "".join(thoughts) == CHAIN
    for r, trial in enumerate(trials, start=1):  # causal: nothing is read that was not yet thought
        assert "".join(thoughts[:r]).startswith(trial)


@pytest.mark.parametrize("boundary", UP_TO)
def test_what_is_thought_beyond_a_boundary_is_charged(by_boundary, boundary):
    recording, _ = by_boundary[boundary]
    thoughts = [text for text in recording.objects("thinking")[0] if text]
    counts = [len("".join(thoughts[: r + 1]).split()) for r in range(len(thoughts))]
    assert recording.column("thinking_tokens")[0, : len(counts)].tolist() == counts
    generated = recording.column("cost.generator.output_tokens")[0]
    assert generated[: len(counts)].sum() == counts[-1]
    assert recording.column("cost.generator.calls")[0, : len(counts)].sum() == math.ceil(len(WORDS) / 4)


@pytest.mark.parametrize("rule", ["answer_stable", "token_budget(8)", "deer(0.1)", "dynasor(2)", "fixed_k(9)"])
@pytest.mark.parametrize("boundary", UP_TO)
def test_a_loop_with_boundaries_stops_live_as_replayed(endpoint, by_boundary, boundary, rule):
    recording, _ = by_boundary[boundary]
    policy = Policy(rule=rule, max_rounds=9)
    run, stopped = run_policy(PreparedRecording.of(recording, metrics=("em",)), policy)
    outcome = loop(endpoint, boundary, policy).run("6 times 7?")
    assert outcome.decision.stop_round == stopped.rounds[0]
    assert outcome.answer == recording.answers[0, int(stopped.answer_position[0])]
    for component in ("generator", "trial"):
        live = outcome.costs[component].output_tokens if component in outcome.costs else 0
        assert live == run.ledger.costs[component]["output_tokens"][0]


def test_recorded_chains_are_asked_at_the_same_kind_of_boundary(endpoint, tmp_path):
    chain = FinishedChain(
        chain_id="q", cluster="q", question="6 times 7?", golds=("42",), thinking=CHAIN, reply="Answer: 42"
    )
    before = len(endpoint.requests)
    record(chain_questions([chain]), loop(endpoint, "paragraph", kind=RecordedChainLoop), tmp_path / "t.parquet")
    asked = [request.body["prompt"].partition("<think>\n")[2] for request in endpoint.requests[before:]]
    chains = [text.removesuffix(CHATML.end + CHATML.cue) for text in asked]
    assert chains == ["", CHAIN[: CHAIN.index("\n\nIt")], CHAIN[: CHAIN.index("\n\nHmm")], CHAIN]
    tokens = read_recording(tmp_path / "t.parquet").column("thinking_tokens")[0, :3]
    assert (tokens[:2] > [len(chain.split()) for chain in chains[1:3]]).all()
    assert tokens[2] == len(WORDS)


def test_a_chain_without_boundaries_is_asked_after_eight_looks(endpoint, tmp_path, monkeypatch):
    monkeypatch.setattr("suffice.loops.thinking_loop._MOST_LOOKS", 2)
    recording, trials = recorded(endpoint, "never", tmp_path)
    assert [len(trial.split()) for trial in trials] == [8, 16, 24]
    assert recording.ends.tolist() == ["exhausted"]


def test_a_policy_is_bound_to_its_boundary(endpoint, tmp_path):
    recording, _ = recorded(endpoint, "words", tmp_path)
    policy = policy_for(recording, "dynasor(2)")
    assert policy.depends["boundary"] == "words"
    assert "    every=4,\n    boundary='words',\n" in own_lines(policy, "policy.json")
    with pytest.raises(ConfigMismatchError, match="boundary"):
        loop(endpoint, "paragraph", policy).run("6 times 7?")
    with pytest.raises(ConfigMismatchError, match="boundary"):
        loop(endpoint, "tokens", policy).run("6 times 7?")


def test_words_that_are_no_words_are_refused(endpoint):
    with pytest.raises(DataError, match="boundary is"):
        loop(endpoint, "wait,(")
    done = cli("think", "answer", "6 times 7?", "--model", "m", "--base-url", endpoint.url, "--set", "boundary=,")
    assert "words of your own" in done.err
    done = cli(
        "think", "answer", "6 times 7?", "--model", "m", "--base-url", endpoint.url, "--set", "boundary=words", "--json"
    )
    assert json.loads(done.out)["answer"] == "42"


def test_a_long_run_of_blanks_takes_no_time():
    assert last_boundary(" " * 1_000_000 + "x", "paragraph", begins=False) is None
