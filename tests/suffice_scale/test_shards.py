"""Recordings in shards: any number of processes, in any order, give the recording of a single one, or an error that says what is missing."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import Phase, given, settings, strategies as st

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, read_recording, record, replay
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.loops.retrieval import PoolBM25, Question, load_questions, load_share
from suffice.recordings import compact_recording, merge_recordings, write_recording
from suffice.recordings.recording import open_recording
from suffice.recordings.shards import (
    DATASET_INDEX,
    MANIFEST_FILE,
    Shard,
    listed_shards,
    n_shards_at,
    shard_files_beside,
)
from suffice_scale.sharded import complete_shards
from tests.support.cli_tools import cli, dataset
from tests.support.endpoint import Endpoint
from tests.support.replayed import replay_in_blocks

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "shards"
CLOCKS = ("recorded_at", "seconds")


def questions(ids):
    """Questions whose passages, types and golds differ."""
    return [
        Question(
            question_id=name,
            question=f"Where is {name}?",
            answers=() if i % 3 == 0 else (f"{name} {i % 4}",),
            type="bridge" if i % 4 == 1 else None,
            passages=tuple(
                Passage(passage_id=f"{name}#{p}", title=f"{name} {p}", text=f"{name} {p}") for p in range(1 + i % 3)
            ),
        )
        for i, name in enumerate(ids)
    ]


def answering(question, passages):
    return f"{question} {len(passages)}"


def loop(model=None, **changes):
    policy = Policy(**{"max_rounds": 3, **changes})
    return RetrievalLoop(model=model or ScriptedModel(answering), retriever=PoolBM25(), policy=policy)


def columns_of(path):
    """Every column of a recording, but for what is measured by a clock."""
    table = read_recording(path).table
    names = sorted(name for name in table.column_names if name.rsplit(".", 1)[-1] not in CLOCKS)
    return {name: table.column(name).to_pylist() for name in names}


def record_shards(items, folder, n, order=None, **changes):
    for index in order or range(1, n + 1):
        summary = record(items, loop(**changes), folder, shard=Shard(index, n))
    return summary


@pytest.fixture
def ten(tmp_path):
    """Ten questions and their recording in four shards."""
    items = questions([f"q{i}" for i in range(10)])
    record_shards(items, tmp_path / "ten", 4)
    return items, tmp_path / "ten"


@given(st.text(max_size=30), st.integers(1, 50))
def test_a_question_falls_into_exactly_one_shard(question_id, n):
    assert sum(Shard(index, n).takes(question_id) for index in range(1, n + 1)) == 1


@given(st.integers(1, 10**5), st.integers(1, 10**5))
def test_a_shard_is_read_back_from_its_text_and_from_its_part(one, other):
    shard = Shard(min(one, other), max(one, other))
    assert Shard.parse(str(shard)) == Shard.of_part(f"folder/{shard.part_name}") == shard


@pytest.mark.parametrize(
    ("out", "part"),
    [
        ("folder", "folder/part-0002-of-0008.parquet.journal"),
        ("j.parquet", "j.parquet.part-0003-of-0008.sqlite"),
        ("q[1].states", "q[1].states/part-0001-of-0008"),
    ],
)
def test_the_number_of_shards_is_known_from_their_parts(tmp_path, out, part):
    assert n_shards_at(tmp_path / out) is None
    (tmp_path / part).mkdir(parents=True)
    assert n_shards_at(tmp_path / out) == 8


def test_files_of_shards_stand_beside_the_file(tmp_path):
    out = tmp_path / "j[1].parquet"
    files = [Shard(index, 12).beside(out, ".sqlite") for index in (2, 10)]
    for file in (*files, tmp_path / "j1.parquet.part-0001-of-0012.sqlite"):
        file.touch()
    assert shard_files_beside(out, ".sqlite") == files


def test_shards_have_names_and_words():
    assert Shard(3, 8).part_name == "part-0003-of-0008.parquet"
    assert Shard.of_part("part-20260101-host-1.parquet") is None
    assert listed_shards([Shard(5, 8), Shard(2, 8)]) == "2 and 5 of 8"
    assert listed_shards([Shard(7, 7)]) == "7 of 7"
    assert listed_shards([Shard(index, 99) for index in range(1, 12)]) == "1, 2, 3, 4, 5, 6, 7 and 4 more of 99"
    for wrong in ("0/8", "9/8", "0/0", "-1/8", "3", "3/8/9", "a/b", "3.0/8", ""):
        with pytest.raises(DataError, match="shard"):
            Shard.parse(wrong)


@settings(max_examples=5, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(ids=st.lists(st.text("abcé/# 7", min_size=1, max_size=4), min_size=1, max_size=7, unique=True), data=st.data())
def test_shards_in_any_order_are_the_recording_of_one_process(tmp_path_factory, ids, data):
    folder = tmp_path_factory.mktemp("law")
    items = questions(ids)
    n = data.draw(st.integers(1, 4))
    summary = record_shards(items, folder / "shards", n, data.draw(st.permutations(range(1, n + 1))))
    record(items, loop(), folder / "one.parquet")
    assert not summary.incomplete
    assert columns_of(folder / "shards") == columns_of(folder / "one.parquet")
    merge_recordings(folder / "merged.parquet", [folder / "shards"])
    assert columns_of(folder / "merged.parquet") == columns_of(folder / "one.parquet")
    one, sharded, merged = (read_recording(folder / name) for name in ("one.parquet", "shards", "merged.parquet"))
    assert sharded.metadata == {key: value for key, value in one.metadata.items() if key not in ("format", "version")}
    assert sharded.data_hash == one.data_hash
    assert {
        key for key in one.metadata.keys() | merged.metadata.keys() if merged.metadata.get(key) != one.metadata.get(key)
    } == {"merged"}
    streamed = [
        sum(table.num_rows for table in open_recording(folder / name).tables(3, ["answer"]))
        for name in ("one.parquet", "shards")
    ]
    assert streamed[0] == streamed[1]


@pytest.mark.whole
def test_shards_by_xargs_equal_the_recording_of_one_process(tmp_path):
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    asked = [dataset(tmp_path / "q.jsonl", n=4), "--max-rounds", "2"]
    options = [*map(str, asked), "-o", "shards"]
    subprocess.run(["sh", EXAMPLES / "xargs.sh", "2", "2", *options], check=True, cwd=tmp_path, env=environment)
    assert cli("record", *asked, "-o", tmp_path / "one.parquet").code == 0
    assert cli("merge", tmp_path / "shards", "-o", tmp_path / "merged.parquet").code == 0
    names = ("one.parquet", "shards", "merged.parquet")
    for name in names[1:]:
        assert columns_of(tmp_path / name) == columns_of(tmp_path / "one.parquet")
    results = [replay(read_recording(tmp_path / name), ["answer_stable"]).to_dict() for name in names]
    assert len({json.dumps(result["rows"][0]["deltas"]["f1"]) for result in results}) == 1
    streams = [replay_in_blocks(tmp_path / name, "answer_stable") for name in names]
    for stream in streams:
        assert [row.metrics for row in stream.rows] == [row.metrics for row in streams[0].rows]  # times are measured


@pytest.mark.whole
def test_each_task_of_a_cluster_records_its_own_shard(tmp_path):
    (tmp_path / "suffice").write_text('#!/bin/sh\necho "$@"\n')
    (tmp_path / "suffice").chmod(0o755)
    line = re.search(r"- (suffice record .*)", (EXAMPLES / "kubernetes.yaml").read_text())
    for command, variables in (
        (["bash", str(EXAMPLES / "slurm.sh"), "q.jsonl", "-o", "log"], {"SLURM_ARRAY_TASK_ID": "64"}),
        (["sh", "-c", line[1]], {"JOB_COMPLETION_INDEX": "63"}),
    ):
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", **variables}
        output = subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout
        assert "-o " in output
        assert Shard.parse(output.partition("--shard ")[2]) == Shard(64, 64)


def test_the_page_shows_the_scripts_as_they_are():
    page = (EXAMPLES.parent.parent / "docs" / "how-to" / "many-questions.md").read_text()
    for script in EXAMPLES.iterdir():
        assert f"\n{script.read_text()}```" in page


def test_a_folder_without_some_shards_is_an_error_that_names_them(tmp_path):
    items, folder = questions([f"q{i}" for i in range(30)]), tmp_path / "log"
    summary = record_shards(items, folder, 8, [1, 3, 4, 6, 7, 8])
    assert "shards 2 and 5 of 8 are missing" in summary.incomplete
    for read in (read_recording, open_recording, lambda path: merge_recordings(tmp_path / "m.parquet", [path])):
        with pytest.raises(DataError, match="2 and 5"):
            read(folder)
    for command in (
        ["replay", folder, "--rule", "answer_stable"],
        ["decide", folder],
        ["merge", folder, "-o", tmp_path / "m.parquet"],
    ):
        assert "2 and 5" in cli(*command).error
    assert read_recording(folder / "part-0006-of-0008.parquet").shape[0]


def test_an_unfinished_shard_is_named_and_goes_on_from_its_journal(tmp_path):
    items, folder = questions([f"q{i}" for i in range(12)]), tmp_path / "log"
    record_shards(items, folder, 2, [1])
    own = [item for item in items if Shard(2, 2).takes(item.question_id)]

    class Interrupted(BaseException):
        pass

    def interrupt(progress):
        if progress.done == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        record(items, loop(), folder, shard=Shard(2, 2), concurrency=1, on_progress=interrupt)
    with pytest.raises(DataError, match="2 unfinished"):
        read_recording(folder)
    model = ScriptedModel(answering)
    assert not record(items, loop(model), folder, shard=Shard(2, 2)).incomplete
    assert len({question for question, _ in model.requests}) == len(own) - 2
    assert read_recording(folder).shape[0] == 12


def test_a_shard_without_questions_is_valid_and_is_recorded_again(tmp_path):
    items, folder = questions(["alone"]), tmp_path / "log"
    for _ in range(2):
        assert not record_shards(items, folder, 3).incomplete
    assert sorted(open_recording(part).n_rows for part in folder.glob("part-*")) == [0, 0, 1]
    assert read_recording(folder).question_ids == ["alone"]
    assert read_recording(folder).metadata["dataset"]["questions"] == 1
    empty = next(part for part in folder.glob("part-*") if not open_recording(part).n_rows)
    with pytest.raises(DataError, match="no rounds"):
        read_recording(empty)
    more = questions(["alone", *(f"q{i}" for i in range(9))])
    assert not record_shards(more, folder, 3).incomplete
    assert read_recording(folder).question_ids == [item.question_id for item in more]


def test_a_larger_data_set_reruns_shards_but_asks_only_new_questions(ten, tmp_path):
    _items, folder = ten
    more = questions([f"q{i}" for i in range(14)])
    summary = record_shards(more, folder, 4, [2])
    assert "different data sets" in summary.incomplete
    assert "1, 3 and 4 of 4 of" in summary.incomplete
    with pytest.raises(ConfigMismatchError, match="data sets"):
        read_recording(folder)
    model = ScriptedModel(answering)
    for index in (1, 3, 4):
        record(more, loop(model), folder, shard=Shard(index, 4))
    assert len({question for question, _ in model.requests}) == sum(
        not Shard(2, 4).takes(item.question_id) for item in more[10:]
    )
    record(more, loop(), tmp_path / "one.parquet")
    assert columns_of(folder) == columns_of(tmp_path / "one.parquet")
    assert not record_shards(more[4:], folder, 4).incomplete  # a smaller one: what it lacks comes last, as in a file
    assert set(read_recording(folder).question_ids) == {item.question_id for item in more}
    assert read_recording(folder).question_ids[:10] == [item.question_id for item in more[4:]]


def test_failed_questions_are_completed_by_the_same_shard(ten, tmp_path):
    items, folder = questions([f"q{i}" for i in range(8)]), tmp_path / "log"

    broken = ["q3"]

    def reply(question, passages):
        return 1 / 0 if any(name in question for name in broken) else answering(question, passages)

    for index in (1, 2):
        record(items, loop(ScriptedModel(reply)), folder, shard=Shard(index, 2))
    assert list(read_recording(folder).metadata["failed"]) == ["q3"]
    broken.clear()
    for shard in (Shard(1, 2), Shard(2, 2)):
        if shard.takes("q3"):
            record(items, loop(ScriptedModel(reply)), folder, shard=shard)
    record(items, loop(ScriptedModel(reply)), tmp_path / "one.parquet")
    assert read_recording(folder).metadata["failed"] == {}
    assert columns_of(folder) == columns_of(tmp_path / "one.parquet")


@pytest.mark.parametrize("harm", ["removed", "changed", "truncated", "flipped", "foreign", "manifest"])
def test_a_part_that_differs_from_the_manifest_is_named(ten, harm):
    _, folder = ten
    part = folder / "part-0002-of-0004.parquet"
    content = part.read_bytes()
    if harm == "removed":
        part.unlink()
    elif harm == "changed":
        with open_recording(part) as opened:
            (table,) = opened.tables()
            write_recording(part, table.slice(1), opened.metadata)
    elif harm == "truncated":
        part.write_bytes(content[:-20])
    elif harm == "flipped":
        part.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    elif harm == "foreign":
        part.write_bytes((folder / "part-0001-of-0004.parquet").read_bytes())
    else:
        (folder / MANIFEST_FILE).write_text("{}")
    with pytest.raises(SchemaError, match="part-0002-of-0004" if harm != "manifest" else "manifest.json"):
        read_recording(folder)
    assert ("part-0002-of-0004" if harm != "manifest" else "manifest.json") in cli(
        "replay", folder, "--rule", "answer_stable"
    ).error


@pytest.mark.parametrize("of", ["another shard", "no shard"])
def test_a_part_with_the_name_of_another_shard_counts_no_question_twice(of, tmp_path):
    items, folder, model = questions([f"q{i}" for i in range(6)]), tmp_path / "log", ScriptedModel(answering)
    record_shards(items, folder, 2, [1])
    record(items, loop(), tmp_path / "one.parquet")
    source = folder / "part-0001-of-0002.parquet" if of == "another shard" else tmp_path / "one.parquet"
    copied = folder / "part-0002-of-0002.parquet"
    shutil.copy(source, copied)
    says = "copied or renamed"
    with pytest.raises(SchemaError, match=says):
        read_recording(folder)
    assert re.search(says, record(items, loop(model), folder, shard=Shard(1, 2)).incomplete)
    with pytest.raises(SchemaError, match=says):
        record(items, loop(model), folder, shard=Shard(2, 2))
    assert not model.requests
    assert not (folder / MANIFEST_FILE).exists()
    copied.unlink()
    assert not record_shards(items, folder, 2, [2]).incomplete
    assert columns_of(folder) == columns_of(tmp_path / "one.parquet")


def test_a_shard_interrupted_before_its_manifest_runs_again(ten):
    _, folder = ten
    manifest = (folder / MANIFEST_FILE).read_bytes()
    more, model = questions([f"q{i}" for i in range(14)]), ScriptedModel(answering)
    record_shards(more, folder, 4)
    (folder / MANIFEST_FILE).write_bytes(manifest)
    with pytest.raises(SchemaError, match=r"shard \d/4"):
        read_recording(folder)
    record(more, loop(model), folder, shard=Shard(1, 4))
    assert not model.requests
    assert read_recording(folder).shape[0] == 14


@pytest.mark.parametrize("change", [{"rows": 1}, {"questions": 9}, {"shards": 5}, {"parts": []}, {"dataset": {}}])
def test_a_manifest_that_was_edited_is_an_error(change, ten):
    _, folder = ten
    path = folder / MANIFEST_FILE
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SchemaError, match="damaged"):
        read_recording(folder)


def test_a_manifest_with_a_missing_part_is_an_error(ten):
    _, folder = ten
    content = json.loads((folder / MANIFEST_FILE).read_text())
    last = content["parts"].pop()
    (folder / last["file"]).unlink()
    totals = {key: content[key] - last[key] for key in ("rows", "questions")}
    (folder / MANIFEST_FILE).write_text(json.dumps({**content, **totals, "shards": 3}))
    with pytest.raises(SchemaError, match="damaged"):
        read_recording(folder)


def test_parts_of_another_number_of_shards_are_refused_before_anything_is_asked(ten, tmp_path):
    items, folder = ten
    model = ScriptedModel(answering)
    with pytest.raises(ConfigMismatchError, match="same number"):
        record(items, loop(model), folder, shard=Shard(1, 5))
    with pytest.raises(ConfigMismatchError, match="max_rounds"):
        record(items, loop(model, max_rounds=2), folder, shard=Shard(1, 4))
    shutil.copy(folder / "part-0001-of-0004.parquet", folder / "part-0001-of-0005.parquet")
    with pytest.raises(ConfigMismatchError, match="part-0001-of-0005"):
        read_recording(folder)
    (folder / "part-0001-of-0005.parquet").unlink()
    with pytest.raises(ConfigMismatchError, match="max_rounds"):
        record(items, loop(model, max_rounds=2), folder, shard=Shard(3, 4))
    assert not model.requests
    other = tmp_path / "other"
    record_shards(items, other, 4, max_rounds=2)
    shutil.copy(other / "part-0003-of-0004.parquet", folder)
    with pytest.raises(SchemaError, match="part-0003-of-0004"):
        read_recording(folder)
    assert "part-0003-of-0004.parquet' were recorded with different settings" in complete_shards(folder)
    with pytest.raises(ConfigMismatchError, match="part-0003-of-0004"):
        read_recording(folder)


def test_the_manifest_is_written_last_and_is_the_same_whoever_writes_it(ten):
    items, folder = ten
    manifest = (folder / MANIFEST_FILE).read_bytes()
    (folder / MANIFEST_FILE).unlink()
    with pytest.raises(DataError, match="not written"):
        read_recording(folder)
    for index in (4, 1):
        record(items, loop(), folder, shard=Shard(index, 4))
        assert (folder / MANIFEST_FILE).read_bytes() == manifest
    content = json.loads(manifest)
    assert (content["shards"], content["rows"], content["questions"]) == (4, read_recording(folder).table.num_rows, 10)
    assert sum(part["questions"] for part in content["parts"]) == 10


def test_shards_are_no_place_for_other_recordings(ten, tmp_path):
    items, folder = ten
    with pytest.raises(DataError, match="a shard"):
        record(items, loop(), tmp_path / "one.parquet", shard=Shard(1, 2))
    with pytest.raises(DataError, match="a folder"):
        record(items, loop(), folder)
    with pytest.raises(DataError, match="suffice merge"):
        compact_recording(folder)
    for text in ("0/8", "9/8", "three"):
        result = cli("record", "hotpotqa_tune", "--shard", text, "-o", tmp_path / "log", code=2)
        assert "--shard" in result.error
    assert (
        "is a file"
        in cli("record", "hotpotqa_tune", "--limit", 2, "--shard", "1/2", "-o", tmp_path / "a.parquet").error
    )


def test_merging_some_of_the_parts_says_so(ten, tmp_path):
    _, folder = ten
    parts = sorted(folder.glob("part-*.parquet"))
    some = cli("merge", parts[0], parts[2], "-o", tmp_path / "some.parquet")
    assert "without shards 2 and 4 of 4 of the same recording" in some.words
    every = cli("merge", *parts, "-o", tmp_path / "every.parquet")
    assert "without" not in every.words
    assert set(read_recording(tmp_path / "every.parquet").question_ids) == set(read_recording(folder).question_ids)


def test_a_part_alone_has_the_places_of_its_questions(ten):
    items, folder = ten
    part = read_recording(folder / "part-0003-of-0004.parquet")
    places = part.table.column(DATASET_INDEX).to_pylist()
    assert [items[place].question_id for place in places] == part.table.column("question_id").to_pylist()
    assert part.metadata["shard"]["dataset"] == read_recording(folder).metadata["dataset"]
    assert DATASET_INDEX not in read_recording(folder).table.column_names


@pytest.mark.whole
def test_killed_shards_equal_one_process_and_repeat_only_open_calls(tmp_path):
    from benchmarks import shard_kills

    result = shard_kills.run(tmp_path, kills=3, shards=3, processes=2, endings=2, questions=40)
    assert result["repeated"] <= result["most_in_flight"]


def test_replies_of_failed_questions_go_from_the_shards_into_the_merged_file(tmp_path):
    items, folder = questions([f"q{i}" for i in range(8)]), tmp_path / "log"
    broken = [2]  # rounds with so many passages fail

    def reply(question, passages):
        return 1 / 0 if len(passages) in broken else answering(question, passages)

    for index in (1, 2):
        record(items, loop(ScriptedModel(reply)), folder, shard=Shard(index, 2))
    assert merge_recordings(tmp_path / "merged.parquet", [folder]).failed
    broken.clear()
    model = ScriptedModel(reply)
    record(items, loop(model), tmp_path / "merged.parquet")
    assert model.requests
    assert all(len(passages) >= 2 for _, passages in model.requests)
    record(items, loop(ScriptedModel(reply)), tmp_path / "one.parquet")
    assert columns_of(tmp_path / "merged.parquet") == columns_of(tmp_path / "one.parquet")


def test_a_process_holds_only_its_own_questions(tmp_path):
    for index in (1, 2):
        shard = Shard(index, 2)
        share = load_share(
            "2wiki_tune", shard.takes, limit=5, change=lambda item: replace(item, passages=item.passages[:3])
        )
        record(share, loop(), tmp_path / "log", shard=shard)
    items = [replace(item, passages=item.passages[:3]) for item in load_questions("2wiki_tune", limit=5)]
    record(items, loop(), tmp_path / "one.parquet")
    assert len(share) < len(items)
    assert columns_of(tmp_path / "log") == columns_of(tmp_path / "one.parquet")
    assert (
        read_recording(tmp_path / "log").metadata["dataset"]
        == read_recording(tmp_path / "one.parquet").metadata["dataset"]
    )
    empty = load_share("2wiki_tune", lambda _: False, limit=5)
    with pytest.raises(DataError, match="one question"):
        record([], loop(), tmp_path / "none", shard=Shard(1, 2))
    assert record(empty, loop(), tmp_path / "empty", shard=Shard(1, 2)).questions == 0


@pytest.mark.whole
def test_shards_of_samples_without_passages_compare_answers_alike(tmp_path):
    golds = [["7"], ["12"], ["5"], ["Oslo"], ["8"], ["9"]]
    lines = [
        {"id": f"q{i}", "question": f"What is {i}?", "answers": gold, "paragraphs": [{"text": "t"}]}
        for i, gold in enumerate(golds)
    ]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    with Endpoint("Answer: 7") as endpoint:
        options = ["--model", "m", "--base-url", endpoint.url, "--samples", 2, "--set=closed-book=true"]
        for place in ("--shard 1/3 -o log", "--shard 2/3 -o log", "--shard 3/3 -o log", "-o one.parquet"):
            words = [tmp_path / word if word in ("log", "one.parquet") else word for word in place.split()]
            cli("sample", "record", tmp_path / "q.jsonl", *words, *options, code=0)
    assert read_recording(tmp_path / "log").metadata == {
        key: value
        for key, value in read_recording(tmp_path / "one.parquet").metadata.items()
        if key not in ("format", "version")
    }
