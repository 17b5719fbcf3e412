"""Recordings of one configuration merged into one, and what is refused."""

import shutil

import pytest

from suffice import Policy, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import ConfigMismatchError, DataError, ModelError
from suffice.evaluation.search.data import by_prompt
from suffice.loops.retrieval import PoolBM25
from suffice.recordings import Journal, Recording, merge_recordings, write_recording
from suffice_papers.tasr import read_tasr
from tests.suffice.evaluation.test_search import tasr_file
from tests.support.cli_tools import cli, dataset
from tests.support.endpoint import Endpoint
from tests.support.recording import questions
from tests.support.shared import recording_of

MEASURED = ("recorded_at", "seconds")


def answering(question, passages):
    """A reply by question and number of passages."""
    return f"{question} {len(passages)}"


def loop(model=None, **changes):
    model = model or ScriptedModel(answering)
    return RetrievalLoop(model=model, retriever=PoolBM25(), policy=Policy(**{"max_rounds": 3, **changes}))


def rows_of(path):
    """The rows without what is measured by a clock."""
    table = read_recording(path).table
    names = [name for name in table.column_names if name.rsplit(".", 1)[-1] not in MEASURED]
    return sorted(table.select(names).to_pylist(), key=lambda row: (row["question_id"], row["round"]))


@pytest.fixture
def shards(tmp_path):
    """Two halves of ten questions, recorded apart."""
    listed = questions(10)
    paths = [tmp_path / "a.parquet", tmp_path / "b.parquet"]
    for path, half in zip(paths, (listed[:6], listed[6:]), strict=True):
        record(half, loop(), path)
    return paths


def test_merged_shards_equal_one_recording_which_goes_on(shards, tmp_path):
    summary = merge_recordings(tmp_path / "all.parquet", shards)
    assert (summary.questions, summary.rounds, summary.failed, summary.notes) == (10, 29, 0, ())
    record(questions(10), loop(), tmp_path / "one.parquet")
    assert rows_of(tmp_path / "all.parquet") == rows_of(tmp_path / "one.parquet")
    merged, one = (read_recording(tmp_path / name).metadata for name in ("all.parquet", "one.parquet"))
    assert {key for key in one if merged.get(key) != one[key]} == {"dataset"}
    assert merged["dataset"]["questions"] == 10
    assert [entry["file"] for entry in merged["merged"]] == ["a.parquet", "b.parquet"]
    model = ScriptedModel(answering)
    assert record(questions(12), loop(model), tmp_path / "all.parquet").questions == 12
    assert len({question for question, _ in model.requests}) == 2  # only those that are new


def test_a_merged_file_may_be_merged_again_and_replaced_by_another_merge(shards, tmp_path):
    record(questions(12)[10:], loop(), tmp_path / "c.parquet")
    merge_recordings(tmp_path / "ab.parquet", shards)
    merge_recordings(tmp_path / "abc.parquet", [tmp_path / "ab.parquet", tmp_path / "c.parquet"])
    assert read_recording(tmp_path / "abc.parquet").shape[0] == 12
    merge_recordings(tmp_path / "abc.parquet", shards)
    assert read_recording(tmp_path / "abc.parquet").shape[0] == 10


def test_replies_of_failed_questions_are_not_asked_for_again(tmp_path):
    listed = questions(6)

    def failing(question, passages):
        if len(passages) == 3 and "fact1" in question:
            raise ModelError("busy")
        return answering(question, passages)

    failing.__qualname__ = answering.__qualname__  # the same model, on another day
    for name, half in (("a", listed[:3]), ("b", listed[3:])):
        record(half, loop(ScriptedModel(failing)), tmp_path / f"{name}.parquet")
    summary = merge_recordings(tmp_path / "all.parquet", [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert summary.failed == 1
    assert (tmp_path / "a.parquet.journal").is_file()
    model = ScriptedModel(answering)
    assert not record(listed, loop(model), tmp_path / "all.parquet").failed
    assert [len(passages) for _, passages in model.requests] == [3]
    record(listed, loop(), tmp_path / "one.parquet")
    assert rows_of(tmp_path / "all.parquet") == rows_of(tmp_path / "one.parquet")


def test_costs_that_only_one_shard_has_are_free_in_the_other(tmp_path):
    for name, more in (("a", {"cost.judge:x.calls": 2.0}), ("b", {})):
        part = recording_of([["a", "b"]], question=f"Who {name}?", **more)
        table = part.table.set_column(0, "question_id", [[name] * 2])
        write_recording(tmp_path / name, table, {"config": {"k": 1}})
    summary = merge_recordings(tmp_path / "all", [tmp_path / "b", tmp_path / "a"])
    assert not summary.notes
    assert read_recording(tmp_path / "all").column("cost.judge:x.calls").tolist() == [[0, 0], [2, 2]]


def test_a_column_that_a_file_lacks_is_named(tmp_path):
    for name, more in (("a", {"mine": 1.0}), ("b", {})):
        part = recording_of([["a", "b"]], kinds={"mine": "metric"}, **more)
        write_recording(tmp_path / name, part.table.set_column(0, "question_id", [[name] * 2]))
    summary = merge_recordings(tmp_path / "all", [tmp_path / "a", tmp_path / "b"])
    assert summary.notes == ("b: no column 'mine'; its values are missing there",)


def test_questions_that_a_rule_cut_are_counted_beside_full_ones(tmp_path):
    paths = [tmp_path / "full.parquet", tmp_path / "cut.parquet"]
    for path, end, first in ((paths[0], "max_rounds", "a"), (paths[1], "rule", "b")):
        part = recording_of([[first, "x"], [first, "x"]], question_id=[f"{first}0", f"{first}1"], end=end)
        write_recording(path, part.table, part.metadata)
    (note,) = merge_recordings(tmp_path / "all.parquet", paths).notes
    assert note.startswith("a rule ended the recording of some questions (2 of cut.parquet)")


def test_what_is_not_one_recording_is_refused(shards, tmp_path):
    first, second = shards
    out, other, twice = (tmp_path / f"{name}.parquet" for name in ("out", "other", "twice"))
    record(questions(12)[10:], loop(max_rounds=2), other)
    with pytest.raises(ConfigMismatchError, match="max_rounds"):
        merge_recordings(out, [first, other])
    record(questions(3)[2:], loop(), twice)
    with pytest.raises(DataError, match="'q2'"):
        merge_recordings(out, [first, twice])
    for given, said in (([first], "1 recording"), ([first, second, first], "given twice")):
        with pytest.raises(DataError, match=said):
            merge_recordings(out, given)
    with pytest.raises(DataError, match="to merge"):
        merge_recordings(first, shards)
    with pytest.raises(DataError, match="merged"):
        merge_recordings(other, shards)
    with pytest.raises(DataError, match="exist"):
        merge_recordings(out, [first, tmp_path / "none.parquet"])
    with pytest.raises(DataError, match="exist"):
        merge_recordings(out, [tmp_path / "none"])
    assert not out.exists()


def test_an_unfinished_recording_is_refused(shards, tmp_path):
    config = read_recording(shards[0]).metadata["config"]
    for name in ("b.parquet", "gone.parquet"):
        journal = Journal(tmp_path / f"{name}.journal", config)
        journal.finish("q99", [{"question_id": "q99"}])
        journal.close()
        with pytest.raises(DataError, match="unfinished"):
            merge_recordings(tmp_path / "all.parquet", [shards[0], tmp_path / name])


def test_two_prompts_recorded_at_an_endpoint_become_one_recording(tmp_path):
    file = dataset(tmp_path / "q.jsonl", n=4)
    with Endpoint("Confidence: 4\nAnswer: Oslo") as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m", "--set=logprobs=false", "--max-rounds", 2)
        for prompt in ("answer_first", "confidence_first"):
            for name, more in (("half", ("--limit", 2)), ("all", ())):
                out = tmp_path / f"{prompt}-{name}.parquet"
                assert cli("record", file, "-o", out, "--prompt", prompt, *at, *more).code == 0
    wholes = [tmp_path / f"{prompt}-all.parquet" for prompt in ("answer_first", "confidence_first")]
    merged = cli("merge", tmp_path / "both.parquet", *wholes, "--json").json
    assert (merged["questions"], merged["rounds"]) == (8, 16)
    assert merged["prompts"] == [read_recording(path).metadata["depends"]["prompt_id"] for path in wholes]
    assert "8 questions with 2 prompts" in cli("merge", tmp_path / "both.parquet", *wholes).words

    recording = read_recording(tmp_path / "both.parquet")
    assert "prompt_id" not in recording.metadata["depends"]
    assert sorted(set(recording.clusters.tolist())) == sorted(read_recording(wholes[0]).question_ids)
    parts = by_prompt(recording)
    assert list(parts) == ["answer_first", "confidence_first"]
    for path, part in zip(wholes, parts.values(), strict=True):
        alone = read_recording(path)
        assert part.metadata["depends"] == alone.metadata["depends"]
        assert part.objects("answer").tolist() == alone.objects("answer").tolist()
        assert part.clusters.tolist() == alone.question_ids

    halves = [tmp_path / f"{prompt}-half.parquet" for prompt in ("answer_first", "confidence_first")]
    assert "is in" in cli("merge", tmp_path / "x.parquet", *wholes, *halves).error


def test_prompts_with_other_places_of_the_answer_are_refused(tmp_path):
    file = dataset(tmp_path / "q.jsonl", n=2)
    with Endpoint("Answer: Oslo") as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m", "--set=logprobs=false", "--max-rounds", 1)
        for name, more in (("a", ()), ("b", ("--set=answer-position=start",))):
            assert cli("record", file, "-o", tmp_path / name, *at, *more).code == 0
    assert "answer_position" in cli("merge", tmp_path / "c", tmp_path / "a", tmp_path / "b").error


def test_the_same_name_of_a_prompt_with_another_text_is_refused(tmp_path):
    for name in "ab":
        part = recording_of([["a"]], prompt_id="mine@1")
        config = {"model": {"model": "m", "prompt_id": "mine@1", "prompt_sha256": name}}
        write_recording(tmp_path / name, part.table.set_column(0, "question_id", [[name]]), {"config": config})
    with pytest.raises(ConfigMismatchError, match="'mine@1'"):
        merge_recordings(tmp_path / "c", [tmp_path / "a", tmp_path / "b"])


def test_other_questions_under_the_same_ids_are_refused(tmp_path):
    for prompt in ("a", "b"):
        part = recording_of([["x"]], prompt_id=f"{prompt}@1", question=f"Who is {prompt}?")
        write_recording(tmp_path / prompt, part.table)
    with pytest.raises(DataError, match="same questions"):
        merge_recordings(tmp_path / "c", [tmp_path / "a", tmp_path / "b"])


def test_the_published_space_of_two_prompts_is_reached_from_the_command_line(tmp_path):
    """The authors keep a file for each prompt; here each is in two halves, too."""
    for prompt in ("answer_first", "confidence_first"):
        run = read_tasr(tasr_file(tmp_path / "rounds.parquet", prompts=(prompt,)))
        table = Recording(build(run), {}).table
        ids = table.column("question_id").to_pylist()
        for half in (0, 1):
            keep = [(sum(map(ord, name)) % 2 == half) for name in ids]
            write_recording(tmp_path / f"{prompt}-{half}.parquet", table.filter(keep))
    files = sorted(tmp_path.glob("*_first-*.parquet"))
    assert len(files) == 4
    assert cli("merge", tmp_path / "all.parquet", *files).code == 0
    found = cli("search", tmp_path / "all.parquet", "--space", "tasr-381", "--set=resamples=1", "--json").json
    assert found["n_rules"] == 381
    alone = cli("search", tmp_path / "answer_first-0.parquet", "--space", "tasr-381", "--set=resamples=1")
    assert "confidence_first" in alone.error


def build(run):
    from suffice.recordings.schema import build_table

    return build_table(run.rows())


def test_a_copy_of_a_recording_is_a_repetition(shards, tmp_path):
    copy = shutil.copy(shards[0], tmp_path / "copy.parquet")
    with pytest.raises(DataError, match="is in"):
        merge_recordings(tmp_path / "all.parquet", [shards[0], copy])
