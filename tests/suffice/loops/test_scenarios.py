"""Published scenarios as questions: told apart by shape, splits kept, usable for recording drafts."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval import dataset_hash, load_questions
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint


def scenario(number: int, **changes) -> dict:
    """One made-up scenario with the fields of the published ones."""
    return {
        "id": f"made_{number}",
        "topic_id": "bridge",
        "split": "dev" if number % 3 == 0 else "test",
        "topic": f"Tower {number}",
        "question": f"Where does tower {number} stand?",
        "initial_brief": f"Where does tower {number} stand?",
        "contexts": [
            f"Tower {number} was built in {1900 + number}.",
            "It stands in Oslo.",
            "It does not burn.",
            "End.",
        ],
        "ground_truth": "Oslo",
        "meta": {"source": "made up", "type": "bridge", "level": "hard", "n_gold": 2, "n_contexts": 4},
        **changes,
    }


def file_of(path, *scenarios):
    path.write_text(json.dumps(list(scenarios), indent=2), encoding="utf-8")
    return path


def test_a_scenario_becomes_a_question_with_its_contexts_in_order(tmp_path):
    (question,) = load_questions(file_of(tmp_path / "s.json", scenario(3)))
    assert (question.question_id, question.question) == ("made_3", "Where does tower 3 stand?")
    assert (question.answers, question.type, question.level, question.split) == (("Oslo",), "bridge", "hard", "dev")
    assert [passage.text for passage in question.passages] == scenario(3)["contexts"]
    assert [passage.passage_id for passage in question.passages] == [f"made_3#{i}" for i in range(4)]
    assert {passage.title for passage in question.passages} == {""}
    assert question.supporting == frozenset()


def test_the_smaller_form_without_meta_reads_too(tmp_path):
    plain = {key: value for key, value in scenario(1).items() if key not in ("meta", "initial_brief")}
    (question,) = load_questions(file_of(tmp_path / "s.json", plain | {"split": "train"}))
    assert (question.type, question.level, question.split) == (None, None, "train")
    unknown = scenario(2, ground_truth=None, contexts=[])
    (bare,) = load_questions(file_of(tmp_path / "s.json", unknown))
    assert (bare.answers, bare.passages) == ((), ())


def test_splits_are_kept_and_limits_count_within_them(tmp_path):
    path = file_of(tmp_path / "s.json", *map(scenario, range(12)))
    whole, dev, test = (load_questions(path, split=split) for split in (None, "dev", "test"))
    assert [len(part) for part in (whole, dev, test)] == [12, 4, 8]
    assert [question.split for question in whole] == ["dev", "test", "test"] * 4
    assert sorted(q.question_id for q in dev + test) == sorted(q.question_id for q in whole)
    assert [q.question_id for q in load_questions(path, split="test", limit=2)] == ["made_1", "made_2"]
    with pytest.raises(DataError, match="'train'"):
        load_questions(path, split="train")
    with pytest.raises(DataError, match="not split"):
        load_questions("hotpotqa_tune", split="dev")


def test_json_lines_may_name_a_split_and_hash_as_before(tmp_path):
    lines = [{"id": f"q{i}", "question": "Who?", "split": split} for i, split in enumerate(("dev", "test"))]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [q.question_id for q in load_questions(tmp_path / "q.jsonl", split="test")] == ["q1"]
    bare = [{"id": line["id"], "question": "Who?"} for line in lines]
    (tmp_path / "bare.jsonl").write_text("".join(json.dumps(line) + "\n" for line in bare))
    assert dataset_hash(load_questions(tmp_path / "q.jsonl")) == dataset_hash(load_questions(tmp_path / "bare.jsonl"))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"contexts": "one text"}, "'one text'"),
        ({"contexts": ["a", 3]}, "list of texts"),
        ({"id": ""}, "id is ''"),
        ({"question": None}, "question is None"),
        ({"ground_truth": {"a": "Oslo"}}, "ground_truth"),
        ({"meta": "hard"}, "found str"),
        ({"split": 3}, "split is 3"),
    ],
)
def test_a_broken_scenario_is_named_with_its_place(tmp_path, changes, message):
    with pytest.raises(DataError, match=message):
        load_questions(file_of(tmp_path / "s.json", scenario(0, **changes)))
    with pytest.raises(SchemaError, match="published scenarios"):
        load_questions(file_of(tmp_path / "s.txt", scenario(0)))


def test_drafts_of_one_split_are_recorded_from_its_contexts(tmp_path):
    path = file_of(tmp_path / "s.json", *map(scenario, range(6)))
    with Endpoint("It stands in Oslo.") as endpoint:
        arguments = (
            "draft",
            "record",
            path,
            "--split",
            "dev",
            "-o",
            tmp_path / "dev.parquet",
            "--base-url",
            endpoint.url,
        )
        done = cli(*arguments, "--model", "m", "--max-rounds", 2, "--set=embedder=none")
        asked = [json.dumps(request.body) for request in endpoint.requests]
    assert done.code == 0, done
    recording = read_recording(tmp_path / "dev.parquet")
    assert sorted(recording.question_ids) == ["made_0", "made_3"]
    assert recording.objects("golds")[0, 0] == ["Oslo"]
    assert np.isfinite(recording.column("em")).all()
    assert all("It does not burn." in text for text in asked)
    wrong = cli(*arguments[:4], "train", *arguments[5:], "--model", "m")
    assert "'train'" in wrong.error


def test_a_retrieval_loop_reveals_contexts_without_titles_one_by_one(tmp_path):
    path = file_of(tmp_path / "s.json", *map(scenario, range(3)))
    with Endpoint("Answer: Oslo\nConfidence: 3") as endpoint:
        arguments = ("record", path, "--split", "test", "-o", tmp_path / "r.parquet", "--base-url", endpoint.url)
        done = cli(*arguments, "--model", "m", "--max-rounds", 4)
    assert done.code == 0, done
    assert read_recording(tmp_path / "r.parquet").shape == (2, 4)
