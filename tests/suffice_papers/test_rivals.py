"""The page of rivals: its world, its lessons, its lines, and the command from end to end on a model that learned nothing."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pytest

from suffice import Policy, PoolBM25, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import DataError
from suffice.evaluation.statistics import Resampling
from suffice.loops.retrieval import Question
from suffice.policy.rounds import Passage
from suffice_papers.rivals import bench
from suffice_papers.rivals.chained_world import BRIDGES, LEAVES, make_chained_world
from suffice_papers.rivals.lines import RivalLine, fixed_lines, line_of, rivals_table
from suffice_papers.rivals.taught import (
    _LOOK_BACK,
    READER,
    TINY_CHAIN,
    TINY_SELF_ASK,
    _chain_tokenizer,
    _ChainLessons,
    rendered,
)
from tests.support.cli_tools import cli


@pytest.fixture(scope="module")
def world():
    return make_chained_world(0)


def test_each_question_is_answered_by_the_two_passages_that_support_it(world):
    for question in world.questions("eval", 80):
        words = question.question.rstrip(".").split()
        leaf, bridge, entity = words[2], words[5], words[7]
        middle = world.values[bridge, entity]
        texts = {item.text for item in question.passages if item.passage_id in question.supporting}
        assert texts == {f"The {bridge} of {entity} is {middle}.", f"The {leaf} of {middle} is {question.answers[0]}."}
        taught = [world.status[pair] == "taught" for pair in ((bridge, entity), (leaf, middle))]
        assert question.type == {(1, 1): "both", (1, 0): "first", (0, 1): "second", (0, 0): "none"}[tuple(taught)]
        assert len(question.passages) == len({item.title for item in question.passages}) == 10


def test_tune_and_eval_ask_about_other_entities(world):
    tune, evaluation = (
        {question.question.split()[-1] for question in world.questions(split, 40)} for split in ("tune", "eval")
    )
    assert not tune & evaluation
    assert Counter(question.type for question in world.questions("tune", 40)) == dict.fromkeys(
        ("both", "first", "second", "none"), 10
    )
    assert world.questions("tune", 40) == world.questions("tune", 40)


def test_lessons_without_passages_never_tell_what_is_not_taught(world):
    lessons = _ChainLessons(world)
    told = Counter()
    for _ in range(3000):
        _, text = lessons.unaided()
        for sentence in text.split(". "):
            words = sentence.split()
            if words[:1] == ["The"]:
                pair, value = (words[1], words[3]), words[5].rstrip(".")
                told[world.status[pair], value == world.values[pair]] += 1
    assert not any(status == "untaught" for status, _ in told)
    assert told["taught", False] == 0
    assert told["taught", True] > 500
    assert told["rumour", False] > 10 * told["rumour", True]


def test_lessons_end_in_the_formats_that_the_methods_read(world):
    lessons = _ChainLessons(world)
    for lesson in (lessons.unaided, lessons.reading):
        for _ in range(50):
            prompt, text = lesson()
            answer = text.removesuffix("<end>").rstrip(".").rpartition("answer is: ")[2]
            assert answer in {name for leaf in LEAVES for name in world.names[leaf]}
            assert text.startswith(" Follow up: " if prompt.endswith("\n?") else " The ")
    prompt, text = lessons.asking()
    assert prompt.partition("\n< ")[2] in prompt.partition("\n= ")[2].partition("\n<")[0]
    assert text.split()[1] == "of"
    assert any(
        bridge in TINY_CHAIN.continuing("Name the home.", (), f"The {bridge}")[-1]["content"] for bridge in BRIDGES
    )
    assert TINY_SELF_ASK.continuing("Q", (), "")[-1]["content"] == "Q\n\n?"


@pytest.mark.whole
def test_lessons_are_written_as_the_chat_template_writes_them(world):
    tokenizer = _chain_tokenizer(world)
    shown = [Passage(passage_id=str(i), title="t", text=f"The home of A{i} is B.") for i in range(2)]
    for passages in ((), shown[:1], shown):
        for messages in (
            *(
                prompt.continuing("Name it.", passages, chain)
                for prompt in (TINY_CHAIN, TINY_SELF_ASK)
                for chain in ("", "The a of")
            ),
            TINY_CHAIN.questioning("Name it.", "The a of b is c.", "c"),
        ):
            text = tokenizer.apply_chat_template(messages[1:], tokenize=False, add_generation_prompt=True)
            assert text == rendered(messages)
        answered = tokenizer.apply_chat_template(
            READER.messages("Name it.", passages)[1:], tokenize=False, continue_final_message=True
        )
        assert answered == rendered(TINY_CHAIN.continuing("Name it.", passages, ""))


@pytest.mark.whole
def test_what_a_sentence_repeats_lies_where_the_heads_look(world):
    tokenizer, lessons = _chain_tokenizer(world), _ChainLessons(world)
    names = {f"\u0120{word}" for word in (*world.entities, *BRIDGES, *LEAVES)}
    for lesson in (lessons.unaided, lessons.reading, lessons.asking):
        for _ in range(30):
            prompt, text = lesson()
            start = len(tokenizer(prompt)["input_ids"])
            tokens = tokenizer.convert_ids_to_tokens(tokenizer(prompt + text)["input_ids"])
            for i in range(start, len(tokens)):
                is_value = tokens[i - 1] in {"\u0120is", ":"} and tokens[i] not in {
                    f"\u0120{word}" for word in (*BRIDGES, *LEAVES)
                }
                if tokens[i] in names and not is_value:
                    assert tokens[i] in {tokens[i - 1 - back] for back in _LOOK_BACK if i > back}


# Lines and the table.


def line(name, kind, right, calls, tokens):
    n = len(right)
    return RivalLine(
        name=name,
        kind=kind,
        questions=tuple(map(str, range(n))),
        right=np.array(right, dtype=float),
        calls=np.full(n, float(calls)),
        tokens=np.full(n, float(tokens)),
        retrievals=np.zeros(n),
    )


def test_beside_each_line_is_the_best_fixed_number_that_costs_no_more():
    fixed = [line("0", "fixed", [0, 0, 0, 1] * 20, 1, 10), line("5", "fixed", [1, 1, 0, 1] * 20, 1, 50)]
    dear = line("better", "method", [1, 1, 1, 1] * 20, 3, 60)
    cheap = line("cheap", "method", [1, 0, 0, 1] * 20, 2, 20)
    same = line("worse", "gate", [1, 0, 0, 1] * 20, 2, 90)
    free = line("free", "method", [0, 0, 0, 0] * 20, 0, 0)
    missing = RivalLine.not_run("Self-RAG", "method", "the model has none of its tokens")
    table = rivals_table("t", [*fixed, dear, cheap, same, free, missing], Resampling(n_resamples=200))
    rows = {row[0]: row for row in table.rows}
    assert rows["better"][6:8] == ("5", 0.75)
    assert rows["better"][9] == "better"
    assert rows["cheap"][6] == "0"
    assert rows["worse"][6] == "5"
    assert rows["worse"][9] == "dominated"
    assert rows["free"][9] == "nothing fixed is as cheap"
    assert rows["Self-RAG"][9] == "not run: the model has none of its tokens"
    assert missing.to_dict()["why"]


def test_lines_on_other_questions_are_refused():
    with pytest.raises(DataError, match="different questions"):
        rivals_table("t", [line("a", "fixed", [0, 1], 1, 1), line("b", "method", [0], 1, 1)], Resampling())


def test_lines_of_a_recording_are_what_replay_says(tmp_path):
    pool = tuple(Passage(passage_id=str(i), title=str(i), text="words " * (i + 1)) for i in range(3))
    questions = [Question(question_id=f"q{i}", question=f"q{i}", answers=("yes",), passages=pool) for i in range(4)]
    script = {f"q{i}": ["no"] * (i + 1) + ["yes"] for i in range(4)}
    loop = RetrievalLoop(model=ScriptedModel(script), retriever=PoolBM25(), policy=Policy(start_round=0, max_rounds=3))
    record(questions, loop, tmp_path / "r.parquet")
    recording = read_recording(tmp_path / "r.parquet")
    lines = fixed_lines(recording)
    assert [item.right.mean() for item in lines] == [0.0, 0.25, 0.5, 0.75]
    assert all((item.calls == 1).all() for item in lines)
    assert [item.retrievals.mean() for item in lines] == [0, 1, 1, 1]
    assert lines[3].tokens.mean() > lines[1].tokens.mean() > lines[0].tokens.mean()
    full = line_of("full", "loop", recording, Policy(max_rounds=3))
    assert (full.right.mean(), full.calls.mean(), full.retrievals.mean()) == (0.75, 3, 1)


@pytest.mark.whole
def test_the_command_teaches_measures_and_writes_the_page(tmp_path, monkeypatch):
    for length, tokens in (("ASKING_LENGTH", 3), ("_READ_TOKENS", 4), ("ROUNDS", 2)):  # it learned nothing to say
        monkeypatch.setattr(bench, length, tokens)
    page = tmp_path / "rivals.md"
    arguments = (
        "demo",
        "rivals",
        "--out",
        tmp_path,
        "--set=steps=2",
        "--set=limit=2",
        f"--set=markdown={page}",
        "--json",
    )
    data = cli(*arguments).json
    kinds = Counter(item["kind"] for item in data["lines"])
    assert kinds["fixed"] == 8
    assert (kinds["method, own end"], kinds["method, our rule"]) == (10, 5)
    gates = {item["name"].partition(":")[0] for item in data["lines"] if item["kind"] in ("gate", "gate and stop")}
    assert {"Adaptive-RAG", "Probing-RAG", "CtrlA", "SeaKR", "Self-RAG"} <= gates
    text = page.read_text("utf-8")
    assert "cannot rank the methods" in text
    assert "DRAGIN" in text
    facts = json.loads((tmp_path / "model-0" / "facts.json").read_text("utf-8"))
    assert facts["steps"] == 2
    changed = (tmp_path / "model-0" / "model.safetensors").stat().st_mtime_ns
    assert cli(*arguments).json["lines"] == data["lines"]  # nothing is taught or asked again
    assert (tmp_path / "model-0" / "model.safetensors").stat().st_mtime_ns == changed


def test_the_command_refuses_a_folder_that_does_not_exist(tmp_path):
    told = cli("demo", "rivals", "--out", tmp_path, f"--set=markdown={tmp_path / 'none' / 'page.md'}")
    assert "does not exist" in told.error
