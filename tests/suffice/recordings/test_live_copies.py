"""Copies of a log that a process was writing to: what is read was committed up to some moment, or an error names the copy."""

from __future__ import annotations

import shutil
import sqlite3
import threading
from contextlib import closing

import pytest

from suffice import Recorder, read_recording
from suffice.errors import SchemaError
from suffice.recordings.round_journal import RoundJournal


def play(recorder, number):
    with recorder.question(f"Who is {number}?", question_id=f"q{number}") as run:
        run.observe("a")
        run.observe("b")


def read(path):
    """Return how many rounds each question has."""
    questions = RoundJournal(path).content().questions
    return [(question.run, len(question.rows), question.ending is not None) for question in questions]


def test_any_beginning_of_a_journal_reads_as_after_some_commit(tmp_path):
    path, copied = tmp_path / "log.parquet", tmp_path / "copy.parquet"
    journal = RoundJournal(path)
    journal.check({"config": 1})
    states = [[], read(path)]
    for number in range(2):
        with journal.together() as together:
            together.begin(f"run{number}", {"cluster": f"q{number}"})
            together.put(f"run{number}", 1, {"columns": {"round": 1}, "kinds": {}})
        states.append(read(path))
        journal.end(f"run{number}", {"end": "rule", "inferred": False, "why": ""}, {"stop_round": 1})
        states.append(read(path))
    data = journal.path.read_bytes().rstrip(b"\0") + bytes(9)
    seen = []
    for size in range(len(data) + 1):
        RoundJournal(copied).path.write_bytes(data[:size])
        seen.append(read(copied))
        assert seen[-1] in states
    assert seen[-1] == states[-1]
    assert [state for i, state in enumerate(seen) if state != seen[i - 1]][1:] == states[2:]


def test_a_copied_live_folder_is_what_was_committed_up_to_then(tmp_path):
    log, stop, committed = tmp_path / "log", threading.Event(), []

    def write():
        with Recorder(log) as recorder:
            for number in range(10_000):
                play(recorder, number)
                committed.append(f"q{number}")
                if stop.is_set():
                    return

    writer = threading.Thread(target=write)
    writer.start()
    for copy in range(5):
        while len(committed) < 3 * (copy + 1):
            pass
        before = len(committed)
        shutil.copytree(log, tmp_path / f"copy{copy}")
        names = read_recording(tmp_path / f"copy{copy}").question_ids
        assert names == [f"q{number}" for number in range(len(names))]
        assert len(names) >= before
    stop.set()
    writer.join()


@pytest.mark.parametrize("keeps_going", [True, False])
@pytest.mark.parametrize("name", ["log.parquet", "log"])
def test_a_file_copied_before_and_its_journal_after_rows_moved_is_refused(tmp_path, name, keeps_going):
    recorder = Recorder(tmp_path / name)
    play(recorder, 1)
    recorder.save()
    play(recorder, 2)
    place = recorder.journal.recording
    copied = tmp_path / "copied" / name
    target = copied / place.name if copied.suffix == "" else copied
    target.parent.mkdir(parents=True)
    shutil.copy(place, target)
    if keeps_going:
        play(recorder, 3)
    recorder.save()
    shutil.copy(recorder.journal.path, RoundJournal(target).path)
    with pytest.raises(SchemaError, match="2 rows"):
        read_recording(copied)
    target.unlink()
    with pytest.raises(SchemaError, match="0 rows"):
        read_recording(copied)
    shutil.copy(place, target)
    assert read_recording(copied).shape[0] == 2 + keeps_going
    recorder.close()


def old_journal(path, questions):
    """Write what 0.4.0 left: a file of sqlite with this many questions."""
    with closing(sqlite3.connect(RoundJournal(path).path)) as database, database:
        database.execute("CREATE TABLE questions (run TEXT PRIMARY KEY, fields TEXT NOT NULL, ending TEXT)")
        for number in range(questions):
            database.execute("INSERT INTO questions VALUES (?, '{}', NULL)", (f"run{number}",))


def test_a_journal_of_an_older_release_is_refused_unless_it_is_finished(tmp_path):
    path = tmp_path / "log.parquet"
    with Recorder(path) as recorder:
        play(recorder, 1)
    RoundJournal(path).path.unlink()
    old_journal(path, 0)
    assert read_recording(path).question_ids == ["q1"]
    with Recorder(path) as recorder:
        play(recorder, 2)
    assert read_recording(path).question_ids == ["q1", "q2"]
    RoundJournal(path).path.unlink()
    old_journal(path, 1)
    for use in (read_recording, Recorder):
        with pytest.raises(SchemaError, match=r"suffice 0\.4\.0"):
            use(path)
