"""The model that thinks about puzzles, over llama.cpp's own server: a live chain stops as its recording says."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from training.thinker.puzzles import WHOLE, draw_chain, draw_puzzle, questions

from suffice import ChatModel, Policy, ThinkingLoop, read_recording, record
from suffice.loops.retrieval import Question
from suffice.policy.session import stops
from tests.support.llamacpp import start_server, stored_model

STORED = Path(__file__).resolve().parents[2] / "data" / "thinker"
N, ROUNDS = 4, 24

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


def test_a_chain_that_goes_on_beside_its_trials_stops_as_replayed(thinker, thoughts):
    loop, recording = thoughts
    policy = Policy(rule="deer(0.9)", max_rounds=ROUNDS)
    replayed = stops(policy, recording.rounds(policy.raw_columns))
    with start_server(thinker, slots=2) as server:
        settings = {"temperature": 1.0, "seed": 3, "extra_body": WHOLE, "max_retries": 0}
        model = ChatModel("thinker", base_url=server.url, api="completions", **settings)
        for place, question in enumerate(recording.objects("question")[:, 0]):
            outcome = replace(loop, policy=policy, model=model, overlap=True).run(question)
            assert outcome.decision.stop_round == replayed.rounds[place]
            assert outcome.answer == recording.answers[place, replayed.answer_position[place]]
            beyond = outcome.surplus
            assert beyond.samples == (outcome.decision.reason == "rule")
            assert 0 <= beyond.cost.output_tokens <= loop.every
        model.close()


def test_recorded_token_ids_are_those_of_an_uncut_chain(thinker, tmp_path):
    asked = [Question(question_id=item["id"], question=item["question"]) for item in islice(questions(seed=13), 2)]
    with start_server(thinker) as server:
        model = ChatModel("thinker", base_url=server.url, api="completions", max_retries=0)
        loop = ThinkingLoop(model=model, policy=Policy(max_rounds=5), every=16, trial_tokens=8)
        record(asked, loop, tmp_path / "t.parquet", concurrency=1)
        recording = read_recording(tmp_path / "t.parquet")
        assert recording.metadata["config"]["token_ids"] is True
        for place, question in enumerate(asked):
            ids = [number for stretch in recording.objects("thinking_ids")[place] for number in stretch]
            prompt = loop.prompt.text(question.question)
            whole = model.complete(prompt, max_tokens=len(ids))
            assert tuple(ids) == whole.token_ids
            reply = model.complete(model.tokenize(prompt, begins=True), max_tokens=len(ids))
            assert (reply.token_ids, reply.text) == (whole.token_ids, whole.text)
        model.close()


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


def test_a_taught_trial_answer_sees_only_the_chain_before_it(thinker):
    import torch
    from training.thinker.train import Texts

    texts, network = Texts(thinker.tokenizer(), seed=5), thinker.transformers()
    settings = {"longest": 5, "most": 3, "plain": 0.0}
    batch = texts.batch(1, **settings)
    lesson = Texts(thinker.tokenizer(), seed=5).draw(**settings)
    assert batch["input_ids"][0].tolist() == lesson.ids
    with torch.no_grad():
        together = network(**{name: batch[name] for name in ("input_ids", "position_ids", "attention_mask")}).logits[0]
        ends = [start for start, _ in lesson.trials[1:]] + [len(lesson.ids)]
        for (start, cut), end in zip(lesson.trials, ends, strict=True):
            alone = lesson.ids[:cut] + lesson.ids[start:end]
            logits = network(torch.tensor([alone])).logits[0]
            assert torch.allclose(together[start:end], logits[cut:], atol=1e-4)


def test_lessons_hold_the_last_stated_answer_and_slip_as_they_say():
    rng = random.Random(3)
    first_slips = []
    for _ in range(400):
        puzzle = draw_puzzle(rng)
        chain = draw_chain(puzzle, rng)
        stated = None
        for place, word in enumerate(chain.words):
            stated = int(word) if place and chain.words[place - 1] == "So" else stated
            assert chain.holds[place] == stated
        assert chain.words[-1] == "Done"
        if puzzle.kind == "arithmetic":
            first_slips.append(next(held for held in chain.holds if held is not None) != puzzle.answer)
            value = puzzle.start
            for op, digit in puzzle.steps:
                value = eval(f"({value} {op} {digit}) % 10")
        else:
            digits = [digit for _, digit in puzzle.steps]
            value = max(digits) if puzzle.word == "Largest" else min(digits)
        assert puzzle.answer == value
    assert 0.1 < sum(first_slips) / len(first_slips) < 0.4
