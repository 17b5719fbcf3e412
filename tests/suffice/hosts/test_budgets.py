"""Budgets of thought as a server keeps them: the lines ask for one, and notice a server that ignores it."""

from __future__ import annotations

import json

import pytest

from suffice import ChatModel, Policy
from suffice.errors import DataError, ModelError
from suffice.hosts import check_thinking_budget
from suffice.hosts.budgets import budget_of
from suffice.hosts.lines import budget_lines, own_lines
from suffice.loops.thinking_loop import THINKING_PROMPTS
from tests.support.cli_tools import cli
from tests.support.endpoint import FAULTS, Endpoint

LONG = "so " * 100


def made_for(prompt: str = "chatml_thinking_continued@1", **more) -> dict:
    return {"model": "m", "temperature": 0.6, "prompt_id": prompt, "every": 16, "trial_tokens": 64} | more


def reply(thoughts: str, *, counted: bool) -> dict:
    """Return a chat completion with so many thoughts, which the server counts or not."""
    n = len(thoughts.split())
    details = {"completion_tokens_details": {"reasoning_tokens": n}} if counted else {}
    message = {"role": "assistant", "content": "Answer: Oslo", "reasoning": thoughts}
    usage = {"prompt_tokens": 8, "completion_tokens": n + 2, **details}
    return {"model": "m", "choices": [{"message": message, "finish_reason": "stop"}], "usage": usage}


def honours(body: dict, *, counted: bool = True) -> dict:
    words = LONG.split()[: body["thinking_token_budget"]]
    return reply(" ".join(words), counted=counted)


def asked(policy: Policy, folder, endpoint: Endpoint, monkeypatch) -> tuple:
    """Ask a question by the lines that deploy prints."""
    policy.save(folder / "judged.json")
    done = cli("deploy", folder / "judged.json", "-o", folder / "policy.json", "--to", "vllm", "--json", code=0)
    monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
    monkeypatch.setenv("OPENAI_API_KEY", "key")
    names: dict = {}
    exec(compile(json.loads(done.out)["lines"], "lines", "exec"), names)
    return names["ask"]("Where is the harbour?")


@pytest.mark.parametrize(
    ("rule", "tokens"),
    [
        ("token_budget(20)", 32),
        ("thinking_tokens > 32", 48),
        ("fixed_k(3)", 48),
        ("round > 2", 48),
        ("never()", 128),
        ("token_budget(9000)", 128),
        ("token_budget(0)", 16),
    ],
)
def test_a_budget_ends_at_the_checkpoint_where_the_policy_stops(rule, tokens):
    assert budget_of(Policy(rule=rule, max_rounds=8, depends=made_for())) == tokens


@pytest.mark.parametrize("counted", [True, False])
def test_the_lines_ask_a_server_that_keeps_to_the_budget(tmp_path, monkeypatch, counted):
    policy = Policy(rule="token_budget(20)", max_rounds=8, depends=made_for())
    with Endpoint(lambda body: honours(body, counted=counted), tokenizer=str.split) as endpoint:
        answer, _ = asked(policy, tmp_path, endpoint, monkeypatch)
        (request,) = endpoint.requests
    assert answer == "Oslo"
    assert request.body["thinking_token_budget"] == 32
    assert request.body["max_tokens"] == 32 + 64
    system = THINKING_PROMPTS["chatml_continued"].system
    assert request.body["messages"] == [
        {"role": "system", "content": system},
        {"role": "user", "content": "Where is the harbour?"},
    ]


def test_the_template_without_a_system_turn_puts_its_task_last(tmp_path, monkeypatch):
    policy = Policy(rule="fixed_k(2)", max_rounds=2, depends=made_for("deepseek_r1_thinking_continued@1"))
    with Endpoint(honours) as endpoint:
        asked(policy, tmp_path, endpoint, monkeypatch)
        (message,) = endpoint.requests[0].body["messages"]
    assert message["role"] == "user"
    assert message["content"].startswith("Where is the harbour?\n\nEnd with")


@pytest.mark.parametrize("counted", [True, False])
def test_the_lines_notice_a_server_that_ignores_the_budget(tmp_path, monkeypatch, counted):
    policy = Policy(rule="token_budget(20)", max_rounds=8, depends=made_for())
    with (
        Endpoint(
            lambda _: reply(LONG, counted=counted), tokenizer=lambda text: [*range(len(text.split()))]
        ) as endpoint,
        pytest.raises(ModelError, match="ignores thinking_token_budget"),
    ):
        asked(policy, tmp_path, endpoint, monkeypatch)


def test_thoughts_that_nobody_counts_are_an_error():
    unparsed = reply("", counted=False)
    unparsed["choices"][0]["message"] = {"role": "assistant", "content": f"{LONG}</think>Answer: Oslo"}
    unparsed["usage"]["completion_tokens"] = 102
    with Endpoint(lambda _: unparsed, tokenizer=lambda _: FAULTS["404"]) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api_key="key", max_retries=0)
        completion = model.complete([{"role": "user", "content": "x"}])
        with pytest.raises(ModelError, match="cannot be checked"):
            check_thinking_budget(model, completion, 20)
        assert check_thinking_budget(model, completion, 200) == 102


@pytest.mark.parametrize(("output", "key"), [(102, "ignores"), (None, "cannot be checked")])
def test_hidden_thoughts_are_what_the_reply_does_not_show(output, key):
    hidden = reply("", counted=False)
    hidden["usage"] = None if output is None else {"prompt_tokens": 8, "completion_tokens": output}
    with Endpoint(lambda _: hidden, tokenizer=lambda text: [*range(len(text.split()))]) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api_key="key", max_retries=0)
        completion = model.complete([{"role": "user", "content": "x"}])
        with pytest.raises(ModelError, match=key):
            check_thinking_budget(model, completion, 20)


def message(text: str | None, finish: str = "stop", *, output: int | None = 102, counted: int | None = None, **more):
    """Return a chat completion with a text, so many tokens of output, and a count of thoughts."""
    details = {} if counted is None else {"completion_tokens_details": {"reasoning_tokens": counted}}
    usage = {"prompt_tokens": 8, "completion_tokens": output, **details}
    choice = {"message": {"role": "assistant", "content": text, **more}, "finish_reason": finish}
    return {"model": "m", "choices": [choice], "usage": usage}


def checked(reply: dict, budget: int) -> int:
    with Endpoint(lambda _: reply, tokenizer=lambda text: [*range(len(text.split()))]) as endpoint:
        model = ChatModel("m", base_url=endpoint.url, api_key="key", max_retries=0)
        return check_thinking_budget(model, model.complete([{"role": "user", "content": "x"}]), budget)


@pytest.mark.parametrize(
    "reply",
    [
        message("Answer: Oslo", reasoning=LONG, counted=0),
        message(f"<think>{LONG}</think>Answer: Oslo", counted=0),
        message(f"{LONG}</think>Answer: Oslo", reasoning="so", counted=1),
        message(f"<think>a</think>b<think>{LONG}</think>Answer: Oslo"),
        message(f"<think>{LONG}"),
        message(f"[THINK]{LONG}[/THINK]Answer: Oslo"),
        message("Ans", "length"),
        message(LONG, "length", counted=0),
    ],
)
def test_thoughts_in_a_reply_count_whatever_the_server_counts(reply):
    with pytest.raises(ModelError, match="ignores thinking_token_budget"):
        checked(reply, 20)


def test_a_long_reply_without_marks_of_thought_cannot_be_checked():
    with pytest.raises(ModelError, match="cannot be checked"):
        checked(message(LONG), 20)
    assert checked(message(LONG, counted=0), 20) == 0
    assert checked(message("word " * 30, output=30), 20) == 30


@pytest.mark.parametrize("counted", [None, 0, 20])
def test_a_long_answer_after_few_thoughts_passes(counted):
    text = f"<think>{'so ' * 20}</think>{LONG}"
    assert checked(message(text, output=122, counted=counted), 20) == 21


@pytest.mark.parametrize(
    ("rule", "more", "key"),
    [
        ("dynasor(2)", {}, "number of tokens"),
        ("(thinking_tokens >= 20) & (answer_stable >= 1)", {}, "number of tokens"),
        ("thinking_tokens < 20", {}, "number of tokens"),
        ("token_budget(20)", {"boundary": "words"}, "number of tokens"),
        ("token_budget(20)", {"prompt_id": "chatml_thinking@1"}, "chatml_continued"),
        ("token_budget(20)", {"prompt_id": "mine@1"}, "chatml_continued"),
    ],
)
def test_what_a_server_cannot_keep_to_is_refused(tmp_path, rule, more, key):
    Policy(rule=rule, max_rounds=8, depends=made_for(**more)).save(tmp_path / "p.json")
    refused = cli("deploy", tmp_path / "p.json", "--to", "vllm", code=1)
    assert key in refused.err
    assert "leave out --to" in refused.err


@pytest.mark.parametrize(
    ("more", "key"),
    [
        ({"every": 0}, "every = 0"),
        ({"every": True}, "every = True"),
        ({"every": 16.0}, "every = 16.0"),
        ({"trial_tokens": "1, **{}"}, "trial_tokens = '1, **{}'"),
        ({"trial_tokens": -1}, "trial_tokens = -1"),
    ],
)
def test_a_damaged_policy_is_refused_before_its_lines_are_written(tmp_path, more, key):
    Policy(rule="token_budget(20)", max_rounds=8, depends=made_for(**more)).save(tmp_path / "p.json")
    refused = cli("deploy", tmp_path / "p.json", "--to", "vllm", code=1)
    assert key in refused.err


def test_names_of_a_policy_never_become_code():
    name = "x\nraise SystemExit\n#"
    budget = budget_lines(Policy(rule="token_budget(20)", max_rounds=8, depends=made_for(model=name)), "p.json")
    depends = made_for(prompt=name, model=name, embedder={"id": name}, prober={"model": name, "layer": 1})
    chain = own_lines(Policy(rule="(p_settled > 0.5) & (semantic_novelty > 0)", depends=depends), "p.json")
    for lines in (budget, chain):
        assert repr(name) in lines
        assert "raise SystemExit" not in lines.splitlines()


def test_a_policy_that_lacks_its_model_is_refused():
    depends = made_for()
    del depends["model"]
    for lines in (budget_lines, own_lines):
        with pytest.raises(DataError, match="for which 'model'"):
            lines(Policy(rule="token_budget(20)", max_rounds=8, depends=depends), "p.json")


@pytest.mark.parametrize(("temperature", "is_noted"), [(0.6, True), (None, True), (0, False), (0.0, False)])
def test_an_answer_that_the_server_samples_is_noted(tmp_path, temperature, is_noted):
    Policy(rule="token_budget(20)", max_rounds=8, depends=made_for(temperature=temperature)).save(tmp_path / "p.json")
    done = cli("deploy", tmp_path / "p.json", "--to", "vllm", "--json")
    assert any("samples the answer" in note for note in json.loads(done.out)["needs"]) == is_noted


def test_lines_of_several_probes_load_each_of_them():
    pins = [{"model": "qwen", "layer": layer} for layer in (8, 16)]
    depends = made_for(prober={"kind": "probes", "probes": pins})
    lines = own_lines(Policy(rule="lynx(0.9)", max_rounds=8, depends=depends), "p.json")
    compile(lines, "lines", "exec")
    assert 'SettledProbe([Probe.load("probe1"), Probe.load("probe2")], ' in lines
    assert "TransformersModel('qwen', layers=(8, 16))" in lines


def test_a_policy_of_other_rounds_has_no_budget_of_thought():
    with pytest.raises(DataError, match="recorded chains"):
        budget_of(Policy(rule="fixed_k(3)"))
