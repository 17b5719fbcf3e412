"""A folder's writers join its small parts by themselves once there are many."""

from __future__ import annotations

import os

import pytest

from suffice import Recorder, read_recording
from suffice.errors import SchemaError
from suffice.evaluation.replay.parts import opened
from suffice.recordings import compact_recording, parts, parts_compaction, parts_writing
from suffice.recordings.amending import stored_runs
from suffice.recordings.file_locks import try_lock
from suffice.recordings.parts import part_paths
from suffice.recordings.stored_loops import read_labels
from tests.support import children

pytestmark = pytest.mark.skipif(not hasattr(os, "geteuid"), reason="no users on this system, so nothing is joined")


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A folder whose parts are many from the third on, and are joined in this process."""
    monkeypatch.setattr(parts_compaction, "_MANY_PARTS", 2)
    monkeypatch.setattr(parts_writing, "_yield_to_others", lambda: None)
    monkeypatch.setattr(parts_writing, "_run_elsewhere", here)
    return tmp_path / "log"


def here(call, words):
    try:
        parts_writing.join_parts(*words)
    except SchemaError:
        return 1
    return 0


def written(log, *names, **options):
    """Record each question with a recorder of its own, as short processes do."""
    for name in names:
        with Recorder(log, **options) as recorder, recorder.question(f"Who is {name}?", question_id=name) as run:
            run.observe("Oslo")
            run.observe("Oslo")


def test_the_next_writer_joins_the_parts_of_many(log):
    written(log, *"abc")
    before = read_recording(log)
    assert len(part_paths(log)) == 3
    written(log, "d")
    assert len(part_paths(log)) == 2  # what the others wrote, and its own
    after = read_recording(log)
    assert after.question_ids == [*"abcd"]
    assert after.table.slice(0, 6).equals(before.table)
    assert {path.stat().st_mode & 0o777 for path in part_paths(log)} == {0o600}
    written(log, *"efg")  # the joined part does not count, but is joined with others while it is small
    assert len(part_paths(log)) == 2
    assert read_recording(log).question_ids == [*"abcdefg"]


def test_one_process_that_fills_many_parts_joins_them(log):
    with Recorder(log, part_questions=1) as recorder:
        for number in range(5):
            with recorder.question(f"Who is {number}?", question_id=str(number)) as run:
                run.observe("Oslo")
            if recorder._log._sealing is not None:
                recorder._log._sealing.join()
        assert len(part_paths(log)) == 3
    assert read_recording(log).question_ids == [*"01234"]


def test_large_joined_parts_are_not_written_again(log, monkeypatch):
    monkeypatch.setattr(parts_compaction, "_KEPT_ROWS", 6)
    written(log, *"abcd")
    (joined,) = log.glob("*-merged.parquet")
    written(log, *"efg")
    assert joined in part_paths(log)
    assert len(part_paths(log)) == 3
    assert read_recording(log).question_ids == [*"abcdefg"]


def shared(part):
    part.chmod(0o640)


def linked(part):
    part.rename(part.with_suffix(".kept"))
    part.symlink_to(part.with_suffix(".kept").name)


@pytest.mark.parametrize("change", [shared, linked])
def test_parts_that_others_read_stay(log, change):
    written(log, *"abc")
    for part in part_paths(log):
        change(part)
    kept = part_paths(log)
    written(log, *"defg")
    assert {*kept} < {*part_paths(log)}
    assert len(part_paths(log)) == 5
    assert read_recording(log).question_ids == [*"abcdefg"]


def test_parts_of_another_user_stay(log, monkeypatch):
    written(log, *"abc")
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    written(log, "d")
    assert len(part_paths(log)) == 4


def test_parts_with_a_journal_stay(log):
    recorder = Recorder(log)
    open_one = recorder.question("Open?", question_id="open")
    open_one.observe("Oslo")
    written(log, *"abcd")
    assert len(part_paths(log)) == 3
    open_one.observe("Lima")
    open_one.end("exhausted")
    recorder.close()
    assert {*read_recording(log).question_ids} == {*"abcd", "open"}


def test_two_processes_do_not_join_at_once(log, caplog):
    written(log, *"abc")
    with (log / ".compaction").open("wb") as other:
        assert try_lock(other)
        written(log, "d")
    assert len(part_paths(log)) == 4
    assert not caplog.records


def test_parts_that_cannot_be_joined_are_named(log, caplog):
    written(log, *"abc")
    part = part_paths(log)[1]
    part.write_bytes(part.read_bytes()[:-9])
    written(log, "d")
    assert f"suffice merge {log} --compact" in caplog.text
    assert len(part_paths(log)) == 4


@pytest.mark.whole
def test_small_parts_are_joined_by_another_process(tmp_path, monkeypatch):
    log, start = tmp_path / "log", parts_writing.start_python
    assert parts_compaction._MANY_PARTS == 100
    few = "from suffice.recordings import parts_compaction as compaction; compaction._MANY_PARTS = 2"

    def started(option, code, *words, **settings):
        return start(option, f"{few}; {code}", *words, **settings)

    monkeypatch.setattr(parts_compaction, "_MANY_PARTS", 2)
    monkeypatch.setattr(parts_writing, "start_python", started)
    written(log, *"abcd")
    assert [path.name.endswith("-merged.parquet") for path in part_paths(log)].count(True) == 1
    assert len(part_paths(log)) == 2
    code = "import os, sys; from suffice.recordings import parts_writing as w; w.join_parts(sys.argv[1]); print(os.nice(0))"
    ended, out, error = children.output_of(code, log)
    assert (ended, error) == (0, "")
    assert int(out) == min(os.nice(0) + 10, 19)
    monkeypatch.setattr(parts_writing, "can_start_python", lambda: False)
    assert parts_writing._run_elsewhere("join_parts(sys.argv[1])", [str(log)]) == 1
    monkeypatch.undo()
    monkeypatch.setattr(parts_writing, "start_python", lambda *_, **__: (_ for _ in ()).throw(OSError("no memory")))
    assert parts_writing._run_elsewhere("join_parts(sys.argv[1])", [str(log)]) == 1


def once(log, monkeypatch, name, reading):
    """Read a folder that is compacted at the first use of one of its parts."""
    written(log, *"ab", policy="answer_stable", labels={"model": "small"})
    written(log, "c", policy="answer_stable", labels={"model": "small"})
    monkeypatch.setattr(parts, "_OPEN_FILES", 0)
    original, calls = getattr(parts.OpenPart, name), []

    def compacting(part, *given, **options):
        calls.append(part)
        if len(calls) == 1:
            compact_recording(log)
        return original(part, *given, **options)

    monkeypatch.setattr(parts.OpenPart, name, compacting)
    result = reading()
    assert len(part_paths(log)) == 1
    return result


def test_runs_to_amend_are_found_while_parts_are_joined(log, monkeypatch):
    runs = once(log, monkeypatch, "table", lambda: stored_runs(log, "cluster", "c"))
    assert [len(run.rows) for run in runs] == [2]


def test_labels_are_read_while_parts_are_joined(log, monkeypatch):
    assert once(log, monkeypatch, "tables", lambda: read_labels(log)) is None


def test_a_replay_opens_again_while_parts_are_joined(log, monkeypatch):
    source = once(log, monkeypatch, "round_range", lambda: opened(log, in_blocks=True))
    assert source.n_rows == 6
