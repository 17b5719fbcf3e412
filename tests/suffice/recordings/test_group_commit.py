"""Threads that write to one journal are committed together, and none pays for another's error."""

from __future__ import annotations

import errno
import os
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from suffice.errors import DataError
from suffice.recordings import journal_file
from suffice.recordings.group_commit import Write, writers_of
from suffice.recordings.round_journal import Changes, RoundJournal

pytestmark = pytest.mark.usefixtures("real_syncs")


def held_together(path, values, commit_all):
    """Commit values in threads that wait for each other; return their errors, None where there is none."""
    writers = writers_of(path)
    errors = {}

    def work(number, value):
        try:
            writers.commit(value, commit_all)
        except BaseException as error:
            errors[number] = error

    threads = [threading.Thread(target=work, args=item) for item in enumerate(values)]
    with writers.lock:
        for thread in threads:
            thread.start()
        while len(writers._waiting) < len(threads):
            pass
    for thread in threads:
        thread.join()
    return [errors.get(number) for number in range(len(threads))]


def test_waiting_writes_share_a_sync_and_an_error_is_its_own(tmp_path, monkeypatch):
    journal, syncs = RoundJournal(tmp_path / "runs.parquet"), []
    journal.check({})
    sync = journal_file._sync_file
    monkeypatch.setattr(journal_file, "_sync_file", lambda file: [syncs.append(file), sync(file)])
    changes = [[["begun", f"run{number}", {}]] for number in range(5)]
    errors = held_together(journal.path, [*changes, [["round", "no such run", 1, {}]]], journal._commit_all)
    assert len(syncs) == 1
    assert sorted(question.run for question in journal.content().questions) == [f"run{number}" for number in range(5)]
    assert errors[:5] == [None] * 5
    assert isinstance(errors[5], DataError)


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
def test_a_commit_that_fails_fails_for_all_whose_writes_were_in_it(tmp_path, error):
    path, stored = tmp_path / "file", []

    def fail(_):
        raise error

    errors = held_together(path, range(3), fail)
    assert error in errors
    assert all(item is error or isinstance(item, DataError | OSError) for item in errors)
    writers_of(path).commit(0, lambda writes: stored.extend(write.value for write in writes))
    assert stored == [0]


def test_an_interrupted_thread_leaves_the_lead_to_another(tmp_path, monkeypatch):
    writers, stored = writers_of(tmp_path / "file"), []

    def commit_all(writes):
        stored.extend(write.value for write in writes)

    class Interrupted(threading.Event):
        def wait(self, timeout=None):
            raise KeyboardInterrupt

    leading = threading.Thread(target=writers.commit, args=("first", commit_all))
    with writers.lock:
        leading.start()
        while not writers._waiting:
            pass
        with monkeypatch.context() as patched:
            patched.setattr(Write, "__init__", lambda write, value: write_of(write, value, Interrupted()))
            with pytest.raises(KeyboardInterrupt):
                writers.commit("second", commit_all)
    leading.join()
    writers.commit("third", commit_all)
    assert stored == ["first", "third"]


def write_of(write, value, turn):
    write.value, write.error, write.turn, write.leads = value, None, turn, False


@pytest.mark.parametrize("failing", ["_write", "sync"])
def test_a_full_disk_stores_nothing_and_the_next_commit_is_whole(tmp_path, monkeypatch, failing):
    journal = RoundJournal(tmp_path / "runs.parquet")
    journal.begin("run", {"cluster": "q"})
    before = journal.path.read_bytes()

    def full(file, *data):
        if data:
            os.write(file._file.fileno(), data[0][:10])
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(journal_file.LockedJournal, failing, full)
        with pytest.raises(DataError, match="No space left"):
            journal.put("run", 1, {})
    assert journal.path.read_bytes() == before.rstrip(b"\0")
    journal.put("run", 1, {"columns": {}})
    assert [question.rows for question in journal.content().questions] == [[{"columns": {}}]]


def test_many_threads_write_every_round_once(tmp_path):
    journal = RoundJournal(tmp_path / "runs.parquet")
    journal.check({})

    def work(worker):
        own = RoundJournal(tmp_path / "runs.parquet")
        own.begin(f"run{worker}", {"cluster": "q"})
        for r in range(3):
            own.put(f"run{worker}", r, {"columns": {"worker": worker}})
        with pytest.raises(DataError, match="recorded already"):
            own.put(f"run{worker}", 1, {})

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    questions = journal.content().questions
    assert [len(question.rows) for question in questions] == [3] * 6


def test_a_refused_commit_leaves_nothing_of_itself(tmp_path):
    journal = RoundJournal(tmp_path / "runs.parquet")
    journal.begin("run", {"cluster": "q"})
    journal.put("run", 1, {})
    changes = Changes()
    changes.begin("other", {})
    for r in (2, 1):
        changes.put("run", r, {})
    with pytest.raises(DataError, match="recorded already"):
        journal.commit(changes.changes)
    assert journal.n_rounds("other") is None
    assert journal.n_rounds("run") == 1
    journal.put("run", 2, {})
    journal.end("run", {"end": "rule"})
    with pytest.raises(DataError, match="recorded already"):
        journal.put("run", 3, {})
    (question,) = journal.content().questions
    assert len(question.rows) == 2


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_fork_while_a_thread_commits_does_not_wait_for_that_thread(tmp_path):
    journal = RoundJournal(tmp_path / "runs.parquet")
    journal.check({})
    with journal._writers().lock:
        child = os.fork()
        if not child:
            code = 1
            try:
                journal.begin("run", {"cluster": "q"})
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert [question.run for question in journal.content().questions] == ["run"]


def test_a_read_only_disk_is_not_taken_for_a_sealed_part(tmp_path, monkeypatch):
    journal = RoundJournal(tmp_path / "part-1.parquet", is_part=True)
    journal.check({})

    def refusing(path, *_):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(journal_file.os, "open", refusing)
    with pytest.raises(DataError, match="Read-only file") as raised:
        journal.begin("run", {})
    assert "sealed" not in str(raised.value)
    monkeypatch.undo()
    journal.begin("run", {})
    assert [question.run for question in journal.content().questions] == ["run"]
