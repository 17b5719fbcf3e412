"""The model that thinks about puzzles, over llama.cpp's own server: a live chain stops as its recording says."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from training.thinker.puzzles import WHOLE, questions

from suffice import ChatModel, Policy, ThinkingLoop, read_recording, record
from suffice.loops.retrieval import Question
from suffice.policy.session import stops
from tests.support.llamacpp import start_server, stored_model

STORED = Path(__file__).resolve().parents[2] / "data" / "thinker"
N, ROUNDS = 6, 24

pytestmark = pytest.mark.whole


@pytest.fixture(scope="module")
def thinker(tmp_path_factory):
    return stored_model(tmp_path_factory.mktemp("thinker") / "model", STORED)


@pytest.fixture(scope="module")
def thoughts(thinker, tmp_path_factory):
    """Record chains that are sampled with a seed, so that a live chain is the same again."""
    asked = [
        Question(question_id=item["id"], question=item["question"], answers=tuple(item["answers"]))
        for item in islice(questions(seed=11), N)
    ]
    path = tmp_path_factory.mktemp("thoughts") / "t.parquet"
    with start_server(thinker) as server:
        settings = {"temperature": 1.0, "seed": 3, "extra_body": WHOLE, "max_retries": 0}
        model = ChatModel("thinker", base_url=server.url, api="completions", **settings)
        loop = ThinkingLoop(model=model, policy=Policy(max_rounds=ROUNDS), every=16, trial_tokens=8, answer_tokens=16)
        record(asked, loop, path, concurrency=1)
        yield loop, read_recording(path)
        model.close()


@pytest.mark.parametrize("rule", ["dynasor(2)", "deer(0.9)", "token_budget(48)", "thinking_hesitation > 0"])
def test_a_sampled_chain_stops_live_as_replayed(thoughts, rule):
    loop, recording = thoughts
    policy = Policy(rule=rule, max_rounds=ROUNDS)
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    for place, question_id in enumerate(recording.question_ids):
        outcome = replace(loop, policy=policy).run(recording.objects("question")[place, 0])
        assert outcome.decision.stop_round == replayed.rounds[place], question_id
        answered = replayed.answer_position[place]
        assert outcome.answer == (recording.answers[place, answered] if answered >= 0 else None)


def test_chains_compute_and_trials_come_from_the_prefix_cache(thoughts):
    _, recording = thoughts
    assert recording.ends.tolist() == ["exhausted"] * N
    texts = ["".join(filter(None, row)) for row in recording.objects("thinking")]
    assert all(" So " in text and text.endswith(" Done") for text in texts)
    thought = recording.column("cost.trial.calls") > 0
    cached, tokens = recording.column("cost.trial.cached_tokens"), recording.column("thinking_tokens")
    assert (cached[thought] >= tokens[thought]).all()
    assert np.nanmean(recording.column("em")) > 0.5


def test_llamacpp_continues_a_thought_as_transformers_does(thinker):
    import torch

    tokenizer, network = thinker.tokenizer(), thinker.transformers()
    with start_server(thinker) as server:
        model = ChatModel("thinker", base_url=server.url, api="completions")
        loop = ThinkingLoop(model=model)
        for item in islice(questions(seed=12), 3):
            text = loop.prompt.text(item["question"])
            ids = torch.tensor([tokenizer.encode(text).ids])
            with torch.no_grad():
                chain = network.generate(ids, max_new_tokens=40, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
            assert model.complete(text, max_tokens=40).text == tokenizer.decode(
                chain.tolist(), skip_special_tokens=False
            )
        model.close()
