"""Chains of thought over transformers' own server, which needs fastapi: live equals replayed."""

from __future__ import annotations

import socket
import time
from dataclasses import replace

import pytest

from suffice import ChatModel, Policy, ThinkingLoop, read_recording, record
from suffice.loops.retrieval import Question
from suffice.loops.thinking_loop import ThinkingPrompt
from suffice.policy.session import stops
from tests.support.llamacpp import questions


@pytest.fixture(scope="module")
def server(taught_model):
    """Serve in a thread: a process would import torch again, which takes longer than all that it is asked."""
    from transformers.cli.serve import Serve

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    name = str(taught_model.directory)
    serving = Serve(name, host="127.0.0.1", port=port, device="cpu", dtype="float32", non_blocking=True)
    try:
        for _ in range(2400):
            if serving.server.started:
                break
            time.sleep(0.05)
        yield name, f"http://127.0.0.1:{port}/v1"
    finally:
        serving.kill_server()
        serving._thread.join(600)


@pytest.mark.whole
def test_a_chain_over_transformers_stops_live_as_replayed(server, tmp_path):
    name, url = server
    turn = "<|im_start|>user\nQuestion: {question}<|im_end|>\n<|im_start|>assistant\n"
    prompt = ThinkingPrompt(name="tiny", version=1, system="", start=turn, end="\n</think>\n", cue="Answer:")
    model = ChatModel(name, base_url=url, api_key="key", api="completions", max_retries=0, top_logprobs=None)
    policy = Policy(max_rounds=6)
    loop = ThinkingLoop(model=model, policy=policy, prompt=prompt, every=4, trial_tokens=8, answer_tokens=8)
    asked = [
        Question(question_id=q.question_id, question=q.question, answers=(q.answer,)) for q in questions(4, seed=3)
    ]
    record(asked, loop, tmp_path / "t.parquet", concurrency=1)
    recording = read_recording(tmp_path / "t.parquet")
    assert recording.column("thinking_tokens")[0, :3].tolist() == [4, 8, 12]
    for rule in ("answer_stable", "token_budget(6)", "dynasor(2)", "fixed_k(6)"):
        decides = Policy(rule=rule, max_rounds=6)
        replayed = stops(decides, recording.rounds(decides.raw_columns))
        for place in range(len(asked)):
            outcome = replace(loop, policy=decides).run(asked[place].question)
            answered = replayed.answer_position[place]
            assert outcome.decision.stop_round == replayed.rounds[place]
            assert outcome.answer == (recording.answers[place, answered] if answered >= 0 else None)
