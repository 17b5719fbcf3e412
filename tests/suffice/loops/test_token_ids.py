"""Chains of thought as token ids: what an endpoint with a tokenizer of its own is asked, and that ids, not text, continue a chain."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

import pytest

from suffice import ChatModel, Policy, read_recording, record, record_async
from suffice.errors import DataError, ModelError, SufficeError
from suffice.evaluation.replay.baselines import run_policy
from suffice.evaluation.replay.prepared import PreparedRecording
from suffice.loops.models import chat
from suffice.loops.models._wire import Completion
from suffice.loops.models.token_ids import ids_of_text
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import CHATML, ThinkingLoop
from suffice.policy.rounds import Cost, Round, Token
from suffice.recordings.shards import Shard
from tests.support.cli_tools import cli
from tests.support.endpoint import FAULTS, Endpoint

# The model generates " t", "ow", "er", which the tokenizer would read as the one token " tower".
WORDS = {"<s>": 1, " t": 2, "ow": 3, "er": 4, " tower": 5, " is": 6, " 42": 7, "\n": 8, "</think>": 9, "Answer:": 10}
CHAIN = [[2, 3], [4, 6], [7]]
BEFORE = [[], [2, 3], [2, 3, 4, 6], [2, 3, 4, 6, 7]]
TEXTS = {number: text for text, number in WORDS.items()}


def divide(text: str) -> list[int]:
    """Return token ids, the longest text first; all else is one token for each character."""
    ids = []
    while text:
        word = max((word for word in WORDS if text.startswith(word)), key=len, default=text[0])
        ids.append(WORDS.get(word, 1000 + ord(word[0])))
        text = text[len(word) :]
    return ids


CUE, END = divide(CHATML.end + CHATML.cue), divide(CHATML.end)


def generated(ids: list[int], finish: str, prompt: list[int], *, shown: int | None = None) -> dict:
    """Return a completion in vLLM's words."""
    texts = [TEXTS[number] for number in ids]
    logprobs = {
        "tokens": texts,
        "token_logprobs": [-0.5] * len(ids),
        "top_logprobs": [{text: -0.5, " x": -1.0} for text in texts],
    }
    choice = {"text": "".join(texts[:shown]), "finish_reason": finish, "logprobs": logprobs, "token_ids": ids}
    return {"model": "m", "choices": [choice], "usage": {"prompt_tokens": len(prompt), "completion_tokens": len(ids)}}


def reply(body: dict) -> dict:
    prompt = body["prompt"]
    if prompt == "Reply with one word.":  # whether log-probabilities arrive
        return generated([7], "stop", [1])
    assert all(isinstance(number, int) for number in prompt), "everything is asked as token ids"
    assert body["return_token_ids"] is True
    if prompt[-len(CUE) :] == CUE:
        return generated([7, 8], "stop", prompt)
    if prompt[-len(END) :] == END:
        return generated([10, 7], "stop", prompt)
    thought = [number for number in prompt if number in (2, 3, 4, 6, 7)] if WORDS["</think>"] not in prompt else []
    done = next((i for i in range(len(CHAIN)) if BEFORE[i] == thought), 0)
    if done == len(CHAIN) - 1:
        return generated([*CHAIN[done], 8, 9], "stop", prompt, shown=2)  # the stop word's tokens, but not its text
    return generated(CHAIN[done], "length", prompt)


def starts(text: str) -> list[int]:
    """Divide a text; only the words of chains and of the template's end have tokens of their own."""
    return [1, *range(100, 100 + len(text) % 7)] if "im_start" in text else divide(text)


def loop(endpoint: Endpoint, policy: Policy | None = None, **more) -> ThinkingLoop:
    model = ChatModel("m", base_url=endpoint.url, api_key="key", api="completions", max_retries=0)
    return ThinkingLoop(model=model, policy=policy or Policy(max_rounds=9), every=2, **more)


@pytest.fixture
def endpoint():
    with Endpoint(reply, tokenizer=starts) as running:
        yield running


def test_a_chain_is_continued_from_ids_whose_text_divides_otherwise(endpoint, tmp_path):
    asked = Question(question_id="q", question="How tall?", answers=("42",))
    thinking = loop(endpoint)
    record([asked], thinking, tmp_path / "t.parquet")
    recording = read_recording(tmp_path / "t.parquet")
    assert divide(" tower is 42") != BEFORE[-1]
    begins = starts(CHATML.text("How tall?"))
    prompts = [request.body["prompt"] for request in endpoint.requests]
    stretches = [prompt for prompt in prompts if prompt[-1] not in (CUE[-1], END[-1])][-len(CHAIN) :]
    assert stretches == [begins + BEFORE[i] for i in range(len(CHAIN))]
    trials = [prompt for prompt in prompts if prompt[-len(CUE) :] == CUE]
    assert trials == [begins + BEFORE[i + 1] + ([8] if i == 2 else []) + CUE for i in range(len(CHAIN))]
    ids = [list(stretch) for stretch in recording.objects("thinking_ids")[0][: len(CHAIN)]]
    assert ids == [[2, 3], [4, 6], [7, 8]]
    assert "".join(recording.objects("thinking")[0][: len(CHAIN)]) == " tower is 42\n"
    assert "notes" not in recording.metadata
    assert recording.metadata["config"]["token_ids"] is True


@pytest.mark.parametrize("rule", ["fixed_k(9)", "answer_stable", "token_budget(2)", "deer(0.1)"])
def test_chains_of_ids_stop_live_as_replayed(endpoint, tmp_path, rule):
    record([Question(question_id="q", question="How tall?", answers=("42",))], loop(endpoint), tmp_path / "t.parquet")
    recording, policy = read_recording(tmp_path / "t.parquet"), Policy(rule=rule, max_rounds=9)
    run, stopped = run_policy(PreparedRecording.of(recording, metrics=("em",)), policy)
    outcome = loop(endpoint, policy).run("How tall?")
    assert outcome.decision.stop_round == stopped.rounds[0]
    assert outcome.answer == recording.answers[0, int(stopped.answer_position[0])]
    stored = [list(ids or ()) for ids in recording.objects("thinking_ids")[0]]
    live = [list(observed.thinking_ids or ()) for observed in outcome.rounds]
    assert live == stored[: len(live)]
    for component in ("generator", "trial"):
        paid = outcome.costs[component].output_tokens if component in outcome.costs else 0
        assert paid == run.ledger.costs[component]["output_tokens"][0]


def test_ids_survive_an_interruption(tmp_path):
    questions = [Question(question_id="q", question="How tall?", answers=("42",))]
    with Endpoint(reply, tokenizer=starts, fault=[None, None, None, None, "500"]) as failing:
        record(questions, loop(failing), tmp_path / "again.parquet", concurrency=1, allow_unread=True)
        record(questions, loop(failing), tmp_path / "again.parquet", concurrency=1)
    ids = read_recording(tmp_path / "again.parquet").objects("thinking_ids")[0]
    assert [list(stretch) for stretch in ids[: len(CHAIN)]] == [[2, 3], [4, 6], [7, 8]]


def test_a_trial_within_a_stretch_reads_its_beginning_as_text(endpoint, tmp_path):
    record(
        [Question(question_id="q", question="How tall?", answers=("42",))],
        loop(endpoint, boundary="is"),
        tmp_path / "t.parquet",
    )
    trials = [request.body["prompt"] for request in endpoint.requests if request.body["prompt"][-len(CUE) :] == CUE]
    assert trials[0][-len(CUE) - 1 :] == [WORDS[" tower"], *CUE]


def test_without_token_ids_text_is_used_and_a_note_says_so(tmp_path):
    from tests.suffice.loops.test_thinking_loop import reply as of_texts

    with Endpoint(of_texts) as plain:
        question = Question(question_id="settles", question="settles?", answers=("42",))
        record([question], loop(plain), tmp_path / "t.parquet")
        assert all(isinstance(request.body["prompt"], str) for request in plain.requests)
        (tmp_path / "q.jsonl").write_text('{"id": "settles", "question": "settles?", "answers": ["42"]}')
        words = ("think", "record", tmp_path / "q.jsonl", "-o", tmp_path / "c.parquet", "--model", "m", "--set=every=2")
        done = cli(*words, "--base-url", plain.url)
    recording = read_recording(tmp_path / "t.parquet")
    assert any("continued as text" in note for note in recording.metadata["notes"])
    assert "thinking_ids" not in recording.table.column_names
    assert "continued as text" in " ".join(done.err.split())


def test_ids_are_left_alone_where_that_is_asked(endpoint):
    thinking = loop(endpoint, token_ids=False)
    assert not thinking.by_ids
    assert thinking.notes == ()


def test_a_failure_while_ids_are_tested_is_no_answer(endpoint):
    with Endpoint(reply, tokenizer=starts, fault="500") as failing, pytest.raises(ModelError):
        _ = loop(failing).by_ids


@pytest.mark.parametrize("shard", [None, Shard(1, 1)])
def test_ids_are_tested_beside_the_callers_event_loop(endpoint, tmp_path, monkeypatch, shard):
    threads = []
    monkeypatch.setattr(chat, "are_exchanged", lambda _: threads.append(threading.current_thread()) is not None)
    question = Question(question_id="q", question="How tall?", answers=("42",))
    with suppress(SufficeError):  # the replies are for token ids
        asyncio.run(record_async([question], loop(endpoint), tmp_path / "t", shard=shard))
    assert len(threads) == 1
    assert threads[0] is not threading.main_thread()


def test_a_recording_that_is_refused_asks_for_no_note(endpoint, tmp_path):
    (tmp_path / "q.jsonl").write_text('{"id": "q", "question": "How tall?", "answers": ["42"]}')
    (tmp_path / "p.toml").write_text("")
    words = ("think", "record", tmp_path / "q.jsonl", "-o", tmp_path / "t.parquet", "--prices", tmp_path / "p.toml")
    done = cli(*words, "--model", "m", "--base-url", endpoint.url)
    assert (done.code, endpoint.requests) == (1, [])


def test_a_tokenizer_that_fails_leaves_chains_of_text():
    with Endpoint(reply, tokenizer=lambda _: FAULTS["500"]) as failing:
        assert not loop(failing).by_ids
    assert not failing.requests


def test_messages_of_a_chat_are_no_token_ids(endpoint):
    model = ChatModel("m", base_url=endpoint.url, api_key="key")
    assert not model.takes_token_ids
    with pytest.raises(DataError, match="raw text only"):
        model.complete((1, 2))


@pytest.mark.parametrize(
    ("text", "finish", "expected"),
    [("ab", "length", (1, 2, 3)), ("ab", "stop", (1, 2)), ("abc", "stop", (1, 2, 3)), ("a?", "stop", None)],
)
def test_ids_of_an_ended_text_are_those_that_spell_it(text, finish, expected):
    tokens = tuple(Token(letter, -0.1) for letter in "abc")
    completion = Completion(text=text, tokens=tokens, cost=Cost(), finish_reason=finish, token_ids=(1, 2, 3))
    assert ids_of_text(completion) == expected


def test_a_round_keeps_the_ids_of_what_was_thought():
    thought = Round(index=1, thinking=" tower", thinking_ids=(2, 3, 4))
    assert Round.from_dict(thought.to_dict()) == thought
