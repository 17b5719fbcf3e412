"""Recordings at a URL: read and written as those of this machine, whole or not at all, and what goes wrong there has a name."""

from __future__ import annotations

import contextlib
import errno
import random
import sys
import threading
import time
import uuid
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from suffice import Policy, Recorder, ScriptedModel, read_recording, record
from suffice.common.files import is_url, make_folder, place, replacing, write_file
from suffice.common.tables import render
from suffice.errors import ConfigMismatchError, DataError, MissingExtraError, NotFoundError, SchemaError
from suffice.evaluation.search import Block, Literal, Space, search
from suffice.recordings import is_recording, merge_recordings, recording_files, write_recording
from suffice.recordings.recording import open_recording
from suffice.recordings.recording_files import RecordingFiles
from suffice.recordings.shards import Shard
from tests.suffice_scale.test_shards import answering, columns_of, loop, questions, record_shards
from tests.support import recording
from tests.support.cli_tools import cli
from tests.support.endpoint import Endpoint
from tests.support.replayed import assert_same_replay, replay_in_blocks


@pytest.fixture
def bucket():
    """A place at a URL that no other test uses."""
    return f"memory://{uuid.uuid4().hex}"


def upload(folder, url):
    for file in folder.iterdir():
        (place(url) / file.name).write_bytes(file.read_bytes())


@pytest.fixture
def shards(tmp_path):
    record_shards(questions([f"q{i}" for i in range(7)]), tmp_path / "shards", 3)
    return tmp_path / "shards"


def test_a_place_is_a_path_or_a_url():
    assert place("runs/a.parquet") == Path("runs/a.parquet")
    assert (
        place("file:///runs/a b")
        == place("file://localhost/runs/a b")
        == place("local:///runs/a b")
        == Path("/runs/a b")
    )
    url = place("memory://bucket/runs/")
    assert str(url) == "memory://bucket/runs"
    assert place(url) is url
    assert (url / "a.parquet").name == "a.parquet"
    assert [is_url(path) for path in ("runs", Path("runs"), "file:///runs", url, "memory://x")] == [
        False,
        False,
        False,
        True,
        True,
    ]


def test_a_url_that_nothing_opens_says_so(monkeypatch):
    with pytest.raises(DataError, match="Protocol"):
        read_recording("nosuch://bucket/runs")
    for module in ("fsspec", "upath"):
        with monkeypatch.context() as without:
            without.setitem(sys.modules, module, None)
            with pytest.raises(MissingExtraError, match=r"\.\[cloud\]"):
                read_recording("s3://bucket/runs")
    with pytest.raises(NotFoundError, match="memory://bucket/none.parquet"):
        read_recording("memory://bucket/none.parquet")


def test_a_url_with_a_query_is_refused_and_not_shown(tmp_path):
    url = "memory://bucket/log.parquet?X-Amz-Credential=a/b&X-Amz-Signature=hunter2"
    for words in (("replay", url, "--rule", "round >= 1"), ("merge", tmp_path / "a.parquet", "-o", url)):
        error = cli(*words).error
        assert "a password or a query" in error
        assert "hunter2" not in error


@pytest.mark.parametrize("user", ["user:hunter2", "user:hun/ter2:x", ":hunter2", "user:22hunter2"])
def test_a_url_with_a_password_is_refused_and_not_shown(user, tmp_path):
    url = f"s3://{user}@bucket/runs"
    for command in (["replay", url, "--rule", "full"], ["record", "hotpotqa_tune", "--shard", "1/2", "-o", url]):
        error = cli(*command).error
        assert "must not contain a password" in error
        assert "ter2" not in error
    assert place("memory://user@bucket:80/a@b:c@d").name == "a@b:c@d"


def test_an_unreachable_storage_is_named_before_a_shard_is_recorded(bucket, monkeypatch):
    def refuse(*_args, **_kwargs):
        raise OSError(errno.ECONNREFUSED, "Connection refused")

    items, model = questions(["q1", "q2"]), ScriptedModel(answering)
    for question in ("isfile", "isdir"):
        monkeypatch.setattr(MemoryFileSystem, question, refuse)
    with pytest.raises(DataError, match="Connection refused"):
        record(items, loop(model), bucket, shard=Shard(1, 2))
    assert not model.requests


def test_a_folder_of_shards_at_a_url_is_the_same_recording(shards, bucket):
    upload(shards, bucket)
    assert is_recording(bucket)
    assert columns_of(bucket) == columns_of(shards)
    assert read_recording(bucket).metadata == read_recording(shards).metadata
    streams = [replay_in_blocks(path, "answer_stable", metrics=("agreement",)) for path in (bucket, shards)]
    assert_same_replay(*streams)
    (place(bucket) / "part-0002-of-0003.parquet").unlink()
    with pytest.raises(SchemaError, match=r"part-0002-of-0003\.parquet"):
        read_recording(bucket)
    (place(bucket) / "manifest.json").unlink()
    with pytest.raises(DataError, match="shard 2"):
        read_recording(bucket)


def test_a_file_at_a_url_is_written_whole_and_checked(shards, bucket):
    path = f"{bucket}/one.parquet"
    source = read_recording(shards)
    write_recording(path, source.table, source.metadata)
    assert read_recording(path).table.equals(source.table)
    interrupted = contextlib.ExitStack()
    interrupted.enter_context(replacing(path)).write_bytes(b"half")
    assert not interrupted.__exit__(RuntimeError, RuntimeError(), None)
    assert read_recording(path).table.equals(source.table)
    assert [item.name for item in place(bucket).iterdir()] == ["one.parquet"]
    content = place(path).read_bytes()
    value = content.index(source.question_ids[0].encode())
    for damaged in (content[:-30], content[:value] + bytes([content[value] ^ 1]) + content[value + 1 :]):
        write_file(path, damaged)
        with pytest.raises(SchemaError, match=r"one\.parquet"):
            read_recording(path)
    with pytest.raises(DataError, match="a folder"):
        write_file(bucket, "text")


def test_only_the_columns_that_are_needed_are_read(shards, bucket, monkeypatch):
    source = read_recording(shards)
    table = source.table
    texts = [random.Random(i).randbytes(20_000).hex() for i in range(table.num_rows)]
    place_of_text = table.column_names.index("text")
    write_recording(
        f"{bucket}/wide.parquet", table.set_column(place_of_text, table.schema.field("text"), [texts]), source.metadata
    )
    read = []
    opened = MemoryFileSystem._open

    def counted(self, *arguments, **options):
        file = opened(self, *arguments, **options)
        original = file.read
        monkeypatch.setattr(file, "read", lambda *size: read.append(data := original(*size)) or data, raising=False)
        return file

    monkeypatch.setattr(MemoryFileSystem, "_open", counted)
    with open_recording(f"{bucket}/wide.parquet") as opened_recording:
        assert len(list(opened_recording.tables(columns=["question_id", "answer"]))) == 1
        narrow = sum(map(len, read))
        read.clear()
        opened_recording.table()
    assert 0 < narrow < sum(map(len, read)) / 4


def test_what_a_storage_raises_names_the_url(shards, bucket, monkeypatch):
    upload(shards, bucket)

    class Unreachable(Exception):
        pass

    def fail(*_, **__):
        raise Unreachable("no route")

    monkeypatch.setattr(MemoryFileSystem, "_open", fail)
    with pytest.raises(DataError, match="Unreachable"):
        read_recording(bucket)
    monkeypatch.setattr(MemoryFileSystem, "put_file", fail)
    with pytest.raises(DataError, match="credentials"):
        write_file(f"{bucket}/a.json", "{}")


def test_an_uploaded_log_is_read_with_journals_and_recorders_stay_local(tmp_path, bucket):
    recorder = Recorder(tmp_path / "log", policy=Policy(rule="answer_stable", max_rounds=3), part_questions=2)
    for q in range(5):
        with recorder.question(f"Who is {q}?", question_id=f"q{q}") as run:
            while not run.done:
                run.observe("a")
    for thread in threading.enumerate():
        if thread.name == "suffice-seal":
            thread.join()  # it turns full parts into files, while the folder is to be copied
    assert list((tmp_path / "log").glob("*.rounds"))
    upload(tmp_path / "log", bucket)
    assert columns_of(bucket) == columns_of(tmp_path / "log")
    recorder.close()
    with pytest.raises(DataError, match="suffice merge FOLDER"):
        Recorder(f"{bucket}/log")


def test_a_search_by_parts_reads_a_url_as_the_folder(tmp_path, bucket):
    shards = tmp_path / "shards"
    record_shards(questions([f"q{i}" for i in range(60)]), shards, 2)
    upload(shards, f"{bucket}/shards")
    rules = (Literal(signal="answer_stable", comparison=">", thresholds=(0.5,)),)
    space = Space(name="answers", blocks=(Block(form="dnf", literals=rules),))
    make_folder(f"{bucket}/shards")
    results = [search(place(path), space, metric="agreement") for path in (f"{bucket}/shards", shards)]
    tables = [render(result.tables(), "md") for result in results]
    assert tables[0] == tables[1]


def test_every_command_takes_the_url_of_a_recording_and_refuses_another_one(shards, bucket, tmp_path, monkeypatch):
    upload(shards, f"{bucket}/shards")
    monkeypatch.chdir(tmp_path)
    merged = cli("merge", f"{bucket}/shards", "-o", f"{bucket}/one.parquet", code=0)
    assert f"{bucket}/one.parquet: 7 questions" in merged.words
    assert columns_of(f"{bucket}/one.parquet") == columns_of(shards)
    for command in (
        ["replay", f"{bucket}/shards", "--rule", "answer_stable", "--metric", "agreement"],
        ["replay", f"{bucket}/shards", "--rule", "answer_stable", "--metric", "agreement"],
        ["report", f"{bucket}/one.parquet", "--rule", "answer_stable", "--metric", "agreement", "-o", "report.html"],
    ):
        cli(*command, code=0)
    assert (
        cli("merge", f"{bucket}/shards", "-o", f"{bucket}/again.parquet", "--json").json["path"]
        == f"{bucket}/again.parquet"
    )
    refused = cli("calibrate", f"{bucket}/shards", "-o", "s3://bucket/policy.json", code=2)
    assert "only a recording" in refused.error
    assert not list(tmp_path.glob("s3*"))
    merge_recordings(tmp_path / "local.parquet", [f"{bucket}/shards"])
    assert columns_of(tmp_path / "local.parquet") == columns_of(shards)


def test_shards_are_recorded_to_a_url_with_their_journal_on_this_machine(bucket, tmp_path):
    items = questions([f"q{i}" for i in range(9)])
    for index in (2, 1, 3):
        record(items, loop(), f"{bucket}/log", shard=Shard(index, 3), journal_folder=tmp_path / "journals")
    record(items, loop(), tmp_path / "one.parquet")
    record(items, loop(), f"{bucket}/one.parquet", journal_folder=tmp_path / "journals")
    assert columns_of(f"{bucket}/log") == columns_of(f"{bucket}/one.parquet") == columns_of(tmp_path / "one.parquet")
    listed = sorted(item.name for item in place(f"{bucket}/log").iterdir())
    assert listed == ["manifest.json", *(Shard(index, 3).part_name for index in (1, 2, 3))]
    assert not [path for path in (tmp_path / "journals").rglob("*") if path.is_file()]
    model = ScriptedModel(answering)
    more = questions([f"q{i}" for i in range(11)])
    assert record(more, loop(model), f"{bucket}/one.parquet", journal_folder=tmp_path / "journals").questions == 11
    assert {question for question, _ in model.requests} == {"Where is q9?", "Where is q10?"}
    with pytest.raises(DataError, match="journals"):
        record(items, loop(), tmp_path / "local.parquet", journal_folder=tmp_path / "journals")
    with pytest.raises(ConfigMismatchError, match="max_rounds"):
        record(items, loop(max_rounds=2), f"{bucket}/one.parquet", journal_folder=tmp_path / "journals")


def test_the_files_of_a_recording_are_named_in_one_place(tmp_path):
    files = RecordingFiles.at(tmp_path / "r.parquet")
    assert (files.target, files.uploaded_journal) == (files.path, None)
    assert (files.journal.name, files.batches.name) == ("r.parquet.journal", "r.parquet.batches")
    part = RecordingFiles.at(tmp_path / "log", Shard(2, 3))
    assert (part.whole, part.path) == (tmp_path / "log", tmp_path / "log" / "part-0002-of-0003.parquet")
    with pytest.raises(DataError, match="a folder"):
        RecordingFiles.at(tmp_path)


def test_a_urls_journal_goes_through_the_users_cache_by_default(bucket, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    here = []

    def reply(question, passages):
        here.extend(path.relative_to(tmp_path).parts[:2] for path in tmp_path.rglob("*.journal"))
        return 1 / 0 if "q1" in question and len(passages) == 2 else "a"

    assert record(questions(["q0", "q1"]), loop(ScriptedModel(reply)), f"{bucket}/one.parquet").failed
    assert set(here) == {("suffice", "journals")}
    assert place(f"{bucket}/one.parquet.journal").is_file()  # with what was paid for q1
    monkeypatch.setenv("XDG_CACHE_HOME", "")
    monkeypatch.setattr(Path, "home", lambda: tmp_path / "home")
    files = RecordingFiles.at(f"{bucket}/one.parquet")
    assert files.path.parents[1] == tmp_path / "home" / ".cache" / "suffice" / "journals"
    assert str(files.uploaded_journal) == f"{bucket}/one.parquet.journal"


class Stopped(BaseException):
    """The process ends."""


def stopping(n, check=lambda: None):
    def on_progress(progress):
        if progress.done == n:
            check()
            raise Stopped

    return on_progress


def test_another_machine_takes_up_a_recording_from_the_copy_of_its_journal(bucket, tmp_path):
    items, path = questions([f"q{i}" for i in range(9)]), f"{bucket}/one.parquet"
    for machine, before in (("a", 0), ("b", 3), ("a", 6)):  # the first one comes back, with an older journal
        model = ScriptedModel(answering)
        with contextlib.suppress(Stopped):
            record(
                items,
                loop(model),
                path,
                concurrency=1,
                journal_folder=tmp_path / machine,
                on_progress=stopping(before + 3 if before < 6 else 99),
            )
        assert len({question for question, _ in model.requests}) <= 4
        assert not {question for question, _ in model.requests} & {f"Where is q{i}?" for i in range(before)}
    record(items, loop(), tmp_path / "one.parquet")
    assert columns_of(path) == columns_of(tmp_path / "one.parquet")
    assert not place(f"{path}.journal").exists()


def test_a_growing_journal_is_copied_and_failed_copies_are_noted(bucket, tmp_path, monkeypatch, caplog):
    items, path = recording.questions(12), f"{bucket}/one.parquet"
    monkeypatch.setattr(recording_files, "_COPY_EVERY_S", 0.01)
    monkeypatch.setattr(recording_files, "_PAUSE_SHARE", 0.0)
    copies = []
    copied = MemoryFileSystem.put_file

    def put_file(self, local, target, **options):
        copies.append(target)
        if len(copies) == 1:
            raise OSError(5, "no route")
        return copied(self, local, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", put_file)

    def waits(_):  # what comes after 8 requests, for the second copy
        return len(endpoint.requests) > 8 and not (len(copies) >= 2 and place(f"{path}.journal").is_file())

    with Endpoint(recording.reply, holds=waits) as endpoint:
        record(items, recording.loop(endpoint.url), path, concurrency=2, journal_folder=tmp_path)
    assert "the journal is only on this machine for now" in caplog.text
    assert [item.name for item in place(bucket).iterdir()] == ["one.parquet"]
    assert len(copies) >= 3


def test_a_copy_under_way_never_lands_after_the_recording_ended(bucket, tmp_path, monkeypatch):
    items, path = recording.questions(4), f"{bucket}/one.parquet"
    monkeypatch.setattr(recording_files, "_COPY_EVERY_S", 0.01)
    monkeypatch.setattr(recording_files, "_PAUSE_SHARE", 0.0)
    began, asked, arrived = (threading.Event() for _ in range(3))
    put_file = MemoryFileSystem.put_file

    def slow(self, local, target, **options):
        if target.endswith(".journal") and not began.is_set():
            began.set()
            endpoint.allow = None
            assert asked.wait(600)
            time.sleep(0.2)  # by then a recording that does not wait has returned
            put_file(self, local, target, **options)
            arrived.set()
        else:
            put_file(self, local, target, **options)

    monkeypatch.setattr(MemoryFileSystem, "put_file", slow)
    with Endpoint(recording.reply) as endpoint:
        endpoint.allow = 2

        def progress(state):
            if state.done == state.total:
                asked.set()

        record(items, recording.loop(endpoint.url), path, concurrency=1, journal_folder=tmp_path, on_progress=progress)
    assert arrived.wait(600)
    assert [item.name for item in place(bucket).iterdir()] == ["one.parquet"]


def test_what_cannot_be_uploaded_is_not_paid_for_again(bucket, tmp_path, monkeypatch):
    items, path = questions([f"q{i}" for i in range(4)]), f"{bucket}/one.parquet"

    def fail(*_, **__):
        raise PermissionError(13, "denied")

    with monkeypatch.context() as denied:
        denied.setattr(MemoryFileSystem, "put_file", fail)
        with pytest.raises(DataError, match="PermissionError"):
            record(items, loop(), path, journal_folder=tmp_path)
    model = ScriptedModel(answering)
    assert record(items, loop(model), path, journal_folder=tmp_path).questions == 4
    assert not model.requests
