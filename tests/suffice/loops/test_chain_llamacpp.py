"""The whole chain over HTTP, on llama.cpp's own server: record, calibrate, replay, answer; live equals replayed."""

from __future__ import annotations

import json
from dataclasses import fields, replace

import httpx
import numpy as np
import pytest

from suffice import ChatModel, Policy, RetrievalLoop, ThinkingLoop, read_recording, record
from suffice.loops.asked_chains import FinishedChain, RecordedChainLoop, chain_questions
from suffice.loops.retrieval import PoolBM25, Question, load_questions
from suffice.loops.thinking_loop import ThinkingPrompt
from suffice.policy.session import stops
from tests.support.cli_tools import cli
from tests.support.llamacpp import questions, start_server

TUNE, EVAL, ROUNDS = 14, 8, 5


@pytest.fixture(scope="module")
def server(taught_model):
    with start_server(taught_model) as running:
        yield running


@pytest.fixture(scope="module")
def chain(server, tmp_path_factory):
    """Run record (tune and eval) and calibrate by the command line; return the folder of their files."""
    folder = tmp_path_factory.mktemp("chain")
    for split, n, seed in (("tune", TUNE, 21), ("eval", EVAL, 22)):
        lines = [
            {
                "id": question.question_id,
                "question": question.question,
                "answers": [question.answer],
                "paragraphs": [{"title": p.title, "text": p.text} for p in question.passages],
            }
            for question in questions(n, seed=seed)
        ]
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        arguments = ("record", folder / f"{split}.jsonl", "-o", folder / f"{split}.parquet", "--base-url", server.url)
        cli(*arguments, "--model", "tiny", "--set=max-tokens=24", "--set=concurrency=1", code=0)
    assert cli("calibrate", folder / "tune.parquet", "-o", folder / "tasr.json", "--rule", "tasr").code == 0
    return folder


def test_the_recording_holds_real_margins_confidences_and_cached_tokens(chain):
    recording = read_recording(chain / "eval.parquet")
    assert recording.shape == (EVAL, ROUNDS)
    margins = recording.column("answer_margin")
    assert np.isfinite(margins).mean() > 0.95
    assert margins.std() > 0.5
    assert np.isfinite(recording.column("answer_margin_min")).mean() > 0.95
    assert set(np.unique(recording.column("verbal_confidence"))) <= {1, 2, 3, 4, 5}
    cached = recording.column("cost.generator.cached_tokens")
    assert (cached[:, 1:] > cached[:, :1].min()).all()
    assert 0.2 < recording.column("em").mean() < 0.95


def test_a_reply_that_the_server_cuts_is_no_answer(server):
    question = questions(1, seed=21)[0]
    whole = ChatModel("tiny", base_url=server.url, max_tokens=24).answer(question.question, question.passages)
    n_tokens = len(whole.tokens)
    cut = ChatModel("tiny", base_url=server.url, max_tokens=n_tokens - 1).answer(question.question, question.passages)
    assert (whole.finish_reason, cut.finish_reason) == ("stop", "length")
    assert whole.answer is not None
    assert whole.answer_tokens
    assert f"Answer: {whole.answer}\n" in cut.text
    assert (cut.answer, cut.answer_tokens) == (None, None)
    assert np.isnan(cut.signals["verbal_confidence"])


@pytest.mark.parametrize("rule", ["tasr", "tasr_guarded", "answer_stable", "margin"])
def test_replay_equals_a_live_run_question_by_question(chain, server, rule):
    path = chain / f"{rule}.json"
    assert cli("calibrate", chain / "tune.parquet", "-o", path, "--rule", rule).code == 0
    policy = Policy.load(path)
    recording = read_recording(chain / "eval.parquet")
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    model = ChatModel("tiny", base_url=server.url, max_tokens=24, max_retries=0)  # no response cache
    loop = RetrievalLoop(model=model, retriever=PoolBM25(), policy=policy)
    outcomes = [loop.run(question.question, question.passages) for question in load_questions(chain / "eval.jsonl")]
    model.close()
    answers = recording.answers[np.arange(EVAL), replayed.answer_rounds - 1]
    assert [outcome.decision.stop_round for outcome in outcomes] == replayed.rounds.tolist()
    assert [outcome.answer for outcome in outcomes] == answers.tolist()
    assert [outcome.decision.reason for outcome in outcomes] == replayed.reasons(recording.ends, policy.max_rounds)
    assert len(set(replayed.rounds.tolist())) > 1  # it decides, question by question


def test_replay_by_the_command_line_shows_the_policy_beside_every_baseline(chain):
    told = cli("replay", chain / "eval.parquet", "--policy", chain / "tasr.json", "--set=resamples=100", "--json").json
    rows = {row["label"]: row for row in told["rows"]}
    assert 2 <= rows["tasr"]["calls"]["mean"] < ROUNDS
    assert {"fixed_k(1)", "fixed_k(5)", "oracle_best", "tasr_guarded"} <= set(rows)
    assert rows["tasr"]["costs"]["cached_tokens"] > 0


def test_answer_runs_the_same_policy_over_a_folder(chain, server, tmp_path):
    docs = tmp_path / "docs"
    docs.mkdir()
    (question,) = questions(1, seed=5)
    for passage in question.passages:
        (docs / f"{passage.title}.txt").write_text(passage.text)
    told = cli(
        *("answer", question.question, "--corpus", docs, "--policy", chain / "tasr.json", "--base-url", server.url),
        *("--model", "tiny", "--set=max-tokens=24", "--json"),
    ).json
    assert told["reason"] in ("rule", "max_rounds")
    assert told["answer"]
    assert told["signals"]["p_correct"] is not None
    assert len(told["rounds"]) == told["stop_round"]


def test_a_policy_of_another_model_is_refused_there(chain, server, tmp_path):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.txt").write_text("The tower is in Oslo.")
    arguments = ("answer", "Where?", "--corpus", tmp_path / "docs", "--policy", chain / "tasr.json")
    assert "calibrate" in cli(*arguments, "--base-url", server.url, "--model", "other").error


@pytest.mark.parametrize("rule", ["answer_stable", "token_budget(6)", "dynasor(2)", "deer(0.9)", "fixed_k(6)"])
def test_a_chain_of_thought_stops_live_as_replayed(thoughts, rule):
    loop, recording = thoughts
    policy = Policy(rule=rule, max_rounds=6)
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    for place, question_id in enumerate(recording.question_ids):
        outcome = replace(loop, policy=policy).run(recording.objects("question")[place, 0])
        assert outcome.decision.stop_round == replayed.rounds[place], question_id
        answered = replayed.answer_position[place]
        assert outcome.answer == (recording.answers[place, answered] if answered >= 0 else None)


@pytest.fixture(scope="module")
def thoughts(server, tmp_path_factory):
    """Record chains of a model that does not think: its replies, four tokens at a time."""
    turn = "<|im_start|>user\nQuestion: {question}<|im_end|>\n<|im_start|>assistant\n"
    prompt = ThinkingPrompt(name="tiny", version=1, system="", start=turn, end="\n</think>\n", cue="Answer:")
    model = ChatModel("tiny", base_url=server.url, api="completions", max_retries=0)
    policy = Policy(max_rounds=6)
    loop = ThinkingLoop(model=model, policy=policy, prompt=prompt, every=4, trial_tokens=8, answer_tokens=8)
    asked = [
        Question(question_id=q.question_id, question=q.question, answers=(q.answer,)) for q in questions(6, seed=3)
    ]
    path = tmp_path_factory.mktemp("thoughts") / "t.parquet"
    record(asked, loop, path, concurrency=1)
    return loop, read_recording(path)


def test_the_server_continues_a_chain_from_its_prefix_cache(thoughts):
    _, recording = thoughts
    assert recording.column("thinking_tokens")[0, :3].tolist() == [4, 8, 12]
    assert (recording.column("cost.generator.cached_tokens")[:, 1:3] > 0).all()
    assert (recording.column("cost.trial.calls")[:, :3] == 1).all()
    assert "exhausted" in recording.ends.tolist()


def test_text_continues_a_chain_unless_it_was_divided_otherwise(server, thoughts):
    loop, recording = thoughts
    root = server.url.removesuffix("/v1")

    def asked(path, **body):
        return httpx.post(f"{root}/{path}", json=body, headers={"connection": "close"}, timeout=60).json()

    def ids(text):
        return asked("tokenize", content=text)["tokens"]

    # What the model itself generated is divided as the text is, so that the chain goes on as it would have.
    for place, text in enumerate(recording.objects("question")[:, 0]):
        start = loop.prompt.text(text)
        goes_on = recording.column("thinking_ended")[place] == 0
        chain = "".join(recording.objects("thinking")[place][goes_on])
        tokens = recording.column("thinking_tokens")[place][goes_on][-1]
        assert len(ids(start + chain)) - len(ids(start)) == tokens
    # Sampling may divide it otherwise: the text of these two tokens is read as a single one.
    tower = ids(" tower")
    letters = [token for letter in " tower" for token in ids(letter)]
    assert len(tower) < len(letters)
    assert asked("detokenize", tokens=letters)["content"] == " tower"
    assert ids(asked("detokenize", tokens=letters)["content"]) == tower != letters
    # Continued from ids, the server reads each of them, and from text the single one.
    begins = loop.model.tokenize(start, begins=True)
    for thought, more in (
        (letters, loop.model.complete((*begins, *letters), max_tokens=1)),
        (tower, loop.model.complete(f"{start} tower", max_tokens=1)),
    ):
        assert more.cost.uncached_tokens + more.cost.cached_tokens == len(begins) + len(thought)


def test_trials_along_a_finished_chain_are_those_asked_while_it_was_thought(thoughts, tmp_path):
    loop, recording = thoughts
    chains = [
        FinishedChain(
            chain_id=name,
            cluster=name,
            question=recording.objects("question")[place, 0],
            golds=("Oslo",),
            thinking="".join(filter(None, recording.objects("thinking")[place])),
            reply="Answer: Oslo",
        )
        for place, name in enumerate(recording.question_ids)
    ]
    asking = RecordedChainLoop(**{item.name: getattr(loop, item.name) for item in fields(loop)})
    record(chain_questions(chains), asking, tmp_path / "asked.parquet", concurrency=1)
    asked = read_recording(tmp_path / "asked.parquet")
    ended = (recording.column("thinking_ended") == 1).argmax(axis=1)
    for place, last in enumerate(ended):  # the whole chain has the same trial, whoever thought it
        own = (asked.column("thinking_ended")[place] == 1).argmax()
        assert asked.answers[place, own] == recording.answers[place, last]
        # The log does not have the token that ended the chain.
        tokens = recording.column("thinking_tokens")[place, last]
        assert asked.column("thinking_tokens")[place, own] == pytest.approx(tokens, abs=1)
    assert (asked.column("cost.trial.cached_tokens")[:, 1] > 10).all()
    assert asked.metadata["trials"] == "asked afterwards"
