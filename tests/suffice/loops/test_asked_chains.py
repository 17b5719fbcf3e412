"""Trial answers along the finished chains of a log: what is asked, what it costs, and what is recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from suffice import ChatModel, Policy, read_recording, record
from suffice.errors import DataError
from suffice.importers.shapes.chains import read_chains
from suffice.loops.asked_chains import RecordedChainLoop, chain_questions
from suffice.loops.thinking_loop import CHATML
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint

N = 24


def thought(i: int) -> str:
    return f"Let me think of six or {i} sevens.\n\nIt is {i * 7} I think.\n\nWait, let me check once more: yes."


def tokens(text: str) -> int:
    return len(re.findall(r"\S+", text))


def reply(body: dict) -> dict:
    """Answer a trial right once the chain has named the number, and report the tokens of the prompt."""
    prompt = body["prompt"]
    assert prompt.endswith(CHATML.end + CHATML.cue), "only trials are asked"
    assert body["temperature"] == 0.0
    chain = prompt.partition("<think>\n")[2].partition(CHATML.end)[0]
    named = re.search(r"It is (\d+) ", chain)
    answer = named[1] if named else "0"
    logprobs = {"tokens": [f" {answer}"], "token_logprobs": [-0.1], "top_logprobs": [{f" {answer}": -0.1, " x": -3.0}]}
    choice = {"text": f" {answer}\n", "finish_reason": "stop", "logprobs": logprobs}
    usage = {"prompt_tokens": tokens(prompt), "completion_tokens": 1}
    return {"model": "m", "choices": [choice], "usage": usage}


@pytest.fixture(scope="module")
def endpoint():
    with Endpoint(reply) as running:
        yield running


@pytest.fixture
def asked(endpoint):
    return ("--model", "m", "--base-url", endpoint.url, "--set", "every=8")


def written(path: Path, rows: list[dict]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def in_tags(i: int) -> dict:
    said = f"<think>\n{thought(i)}\n</think>\n\nAnswer: {i * 7}"
    return {"id": f"q{i}", "question": f"{i} times 7?", "gold": str(i * 7), "response": said}


def in_messages(i: int) -> dict:
    said = {"role": "assistant", "content": f"Answer: {i * 7}", "reasoning_content": thought(i)}
    return {"id": f"q{i}", "gold": i * 7, "messages": [{"role": "user", "content": f"{i} times 7?"}, said]}


def as_call(i: int) -> dict:
    body = {"choices": [{"message": in_messages(i)["messages"][1], "finish_reason": "stop"}], "model": "m"}
    request = {"model": "m", "messages": in_messages(i)["messages"][:1]}
    return {"id": f"q{i}", "gold": str(i * 7), "request": request, "response": body}


def in_a_column(i: int) -> dict:
    return {
        "id": f"q{i}",
        "question": f"{i} times 7?",
        "gold": i * 7,
        "reasoning": thought(i),
        "output": f"Answer: {i * 7}",
    }


def inspect_sample(i: int) -> dict:
    content = [{"type": "reasoning", "reasoning": thought(i)}, {"type": "text", "text": f"Answer: {i * 7}"}]
    choice = {"message": {"role": "assistant", "content": content}, "stop_reason": "stop"}
    sample = {"id": f"q{i}", "epoch": 1, "input": f"{i} times 7?", "target": str(i * 7)}
    return {**sample, "output": {"model": "m", "choices": [choice]}, "messages": [], "events": []}


SHAPES = {"tags": in_tags, "messages": in_messages, "calls": as_call, "column": in_a_column}


def chain_log(folder: Path, shape: str, n: int = N) -> Path:
    if shape == "inspect":
        path = folder / "log.json"
        path.write_text(
            json.dumps({"eval": {"task": "t"}, "status": "success", "samples": [*map(inspect_sample, range(n))]})
        )
        return path
    return written(folder / "log.jsonl", [SHAPES[shape](i) for i in range(n)])


@pytest.mark.parametrize("shape", [*SHAPES, "inspect"])
def test_chains_of_five_shapes_are_read_alike(tmp_path, shape):
    chains, notes = read_chains(chain_log(tmp_path, shape, 3))
    assert [chain.question for chain in chains] == ["0 times 7?", "1 times 7?", "2 times 7?"]
    assert [chain.thinking for chain in chains] == [thought(0), thought(1), thought(2)]
    assert [(chain.golds, (chain.reply or "").strip()) for chain in chains] == [
        (("0",), "Answer: 0"),
        (("7",), "Answer: 7"),
        (("14",), "Answer: 14"),
    ]
    assert notes == []


def test_rows_without_a_chain_are_counted(tmp_path):
    rows = [in_tags(1), {**in_tags(2), "response": "Answer: 14"}, {**in_tags(3), "question": None}]
    chains, notes = read_chains(written(tmp_path / "log.jsonl", rows))
    assert len(chains) == 1
    assert notes == ["left out: 1 row without a chain", "left out: 1 row without a question"]
    with pytest.raises(DataError, match="no row is"):
        read_chains(written(tmp_path / "none.jsonl", rows[1:]))


def test_chains_within_conversations_are_left_out(tmp_path):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}]
    said, call = in_messages(2), as_call(3)
    said["messages"] = [*turns, *said["messages"]]
    call["request"]["messages"] = [*turns, *call["request"]["messages"]]
    chains, notes = read_chains(written(tmp_path / "log.jsonl", [in_tags(1), said, call]))
    assert [chain.chain_id for chain in chains] == ["q1"]
    assert notes == ["left out: 2 rows of several calls"]


def test_gold_answers_behind_the_marks_of_gsm8k_are_read(tmp_path):
    chains, _ = read_chains(written(tmp_path / "log.jsonl", [{**in_tags(1), "gold": "7 times 1\n#### 7"}]))
    assert chains[0].golds == ("7",)


def test_several_chains_of_a_question_are_one_cluster(endpoint, tmp_path):
    chains, _ = read_chains(written(tmp_path / "log.jsonl", [in_tags(1), in_tags(1), in_tags(2)]))
    record(chain_questions(chains), loop(endpoint), tmp_path / "t.parquet")
    clusters = read_recording(tmp_path / "t.parquet").objects("cluster")[:, 0]
    assert clusters.tolist() == ["q1", "q1", "q2"]


def test_gold_answers_come_from_another_file(tmp_path):
    rows = [{name: value for name, value in in_tags(i).items() if name != "gold"} for i in range(2)]
    golds = written(tmp_path / "golds.jsonl", [{"id": f"q{i}", "gold": f"g{i}"} for i in range(2)])
    chains, _ = read_chains(written(tmp_path / "log.jsonl", rows), golds)
    assert [chain.golds for chain in chains] == [("g0",), ("g1",)]


def loop(endpoint: Endpoint, **more) -> RecordedChainLoop:
    model = ChatModel("m", base_url=endpoint.url, api_key="key", api="completions", top_logprobs=None, max_retries=0)
    return RecordedChainLoop(model=model, policy=Policy(max_rounds=9), every=8, **more)


def test_the_recording_has_the_chain_its_trials_and_its_own_reply(endpoint, tmp_path):
    chains, _ = read_chains(chain_log(tmp_path, "tags"))
    record(chain_questions(chains), loop(endpoint), tmp_path / "t.parquet")
    recording = read_recording(tmp_path / "t.parquet")
    texts = recording.objects("thinking")[3]
    n = sum(text is not None for text in texts)
    assert "".join(texts[:n]) == thought(3)
    assert recording.answers[3, :n].tolist() == ["0", "21", "21", "21"]
    counts = [tokens("".join(texts[: k + 1])) for k in range(n - 1)]
    assert recording.column("thinking_tokens")[3, : n - 1].tolist() == counts
    assert recording.column("cost.generator.output_tokens")[3, : n - 1].sum() == counts[-1]
    assert recording.column("cost.trial.calls")[3, :n].tolist() == [1, 1, 1, 0]
    assert recording.ends.tolist() == ["exhausted"] * N


def test_a_chain_that_was_cut_has_no_reply_of_its_own(endpoint, tmp_path):
    cut = {**in_tags(3), "response": f"<think>\n{thought(3)}"}
    chains, _ = read_chains(written(tmp_path / "log.jsonl", [cut]))
    record(chain_questions(chains), loop(endpoint), tmp_path / "t.parquet")
    recording = read_recording(tmp_path / "t.parquet")
    assert recording.answers[0].tolist() == ["0", "21", "21"]
    assert recording.column("thinking_ended")[0].tolist() == [0, 0, 0]


def test_the_price_is_that_of_the_requests_that_follow(endpoint, tmp_path):
    chains, _ = read_chains(chain_log(tmp_path, "tags", 4))
    questions = chain_questions(chains)
    price = loop(endpoint).price(questions)
    before = len(endpoint.requests)
    record(questions, loop(endpoint), tmp_path / "t.parquet")
    sent = [request.body["prompt"] for request in endpoint.requests[before:]]
    assert (price.chains, price.requests, price.trials) == (4, len(sent), len(sent) - 4)
    assert price.prompt_tokens == sum(map(len, sent)) / 4
    assert price.new_tokens < 0.5 * price.prompt_tokens
    assert price.output_tokens == 32 * price.trials + 4


def test_a_server_without_usage_is_refused(tmp_path):
    def bare(body: dict) -> dict:
        return {**reply(body), "usage": None}

    chains, _ = read_chains(chain_log(tmp_path, "tags", 2))
    with Endpoint(bare) as endpoint, pytest.raises(Exception, match="no prompt tokens"):
        record(chain_questions(chains), loop(endpoint), tmp_path / "t.parquet")


def test_the_command_prints_the_price_and_pays_only_if_told(endpoint, asked, tmp_path):
    log, out = chain_log(tmp_path, "messages"), tmp_path / "t.parquet"
    prices = tmp_path / "prices.toml"
    prices.write_text("[m]\nuncached = 1.0\ncached = 0.1\noutput = 2.0\n")
    command = ("think", "ask", log, "-o", out, *asked, "--prices", prices)
    before = len(endpoint.requests)
    refused = cli(*command)
    assert (refused.code, len(endpoint.requests)) == (1, before)
    assert "give --yes" in refused.err
    assert "86 trial answers along 24 chains are 110 requests" in refused.err
    assert refused.err.count("$0.0") == 2
    cli(*command, "--yes", code=0)
    assert len(endpoint.requests) - before == 110
    assert cli(*command, "--yes").code == 0
    assert len(endpoint.requests) - before == 110
    split = cli(*command, "--yes", "--split", "dev")
    assert "leave it out" in split.err


def test_decide_gives_its_sentence_and_names_the_price_of_asking(asked, tmp_path):
    log, out = chain_log(tmp_path, "tags"), tmp_path / "t.parquet"
    assert cli("think", "ask", log, "-o", out, *asked, "--yes").code == 0
    decided = cli("decide", out, "-o", tmp_path / "d.json", "--cost", "tokens", "--json", code=0)
    verdict = json.loads(decided.out)
    assert verdict["sentence"]
    assert any("those of asking afterwards" in note for note in verdict["notes"])
    replayed = json.loads(cli("replay", out, "--rule", "dynasor(2)", "--json").out)
    assert any("those of asking afterwards" in note for note in replayed["notes"])


def test_replies_without_the_marker_are_counted_before_anything_is_paid(asked, tmp_path):
    rows = [{**in_a_column(i), "output": f"{i * 7}"} for i in range(3)]
    log, out = written(tmp_path / "log.jsonl", rows), tmp_path / "t.parquet"
    refused = cli("think", "ask", log, "-o", out, *asked)
    assert "3 of 3 replies in the log have no answer after 'Answer:'" in refused.err
    done = cli("think", "ask", log, "-o", out, *asked, "--answer-position", "whole", "--yes", code=0)
    assert "no answer" not in done.err
    recording = read_recording(out)
    assert recording.column("em")[:, -1].tolist() == [1, 1, 1]
