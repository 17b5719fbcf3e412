"""Threads that write to one journal are committed together, and none pays for another's error."""

from __future__ import annotations

import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from suffice.errors import DataError
from suffice.recordings.group_commit import writers_of
from suffice.recordings.round_journal import RoundJournal


@pytest.fixture
def file(tmp_path):
    """A file of sqlite, how it is opened for writing, and how often it was."""
    path, commits = tmp_path / "file", []

    @contextmanager
    def writing():
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            database.execute("CREATE TABLE IF NOT EXISTS items (item PRIMARY KEY)")
            yield database
            database.execute("COMMIT")
            commits.append(1)

    return path, writing, commits


def stored(path):
    with closing(sqlite3.connect(path)) as database:
        return sorted(item for (item,) in database.execute("SELECT item FROM items"))


def held_together(path, writing, statements):
    """Run statements in threads that wait for each other's commit; return their errors, None where there is none."""
    writers = writers_of(path)
    errors = {}

    def work(number, statement):
        try:
            writers.commit(statement, writing)
        except BaseException as error:
            errors[number] = error

    threads = [threading.Thread(target=work, args=item) for item in enumerate(statements)]
    with writers.lock:
        for thread in threads:
            thread.start()
        while len(writers._waiting) < len(threads):
            pass
    for thread in threads:
        thread.join()
    return [errors.get(number) for number in range(len(threads))]


def inserting(item):
    return lambda database: database.execute("INSERT INTO items VALUES (?)", (item,))


def test_waiting_writes_share_a_commit_and_an_error_is_its_own(file):
    path, writing, commits = file
    errors = held_together(path, writing, [*map(inserting, range(5)), inserting(3)])
    assert len(commits) == 1
    assert stored(path) == [0, 1, 2, 3, 4]
    assert [error for error in errors if error is not None] == [errors[3 if errors[5] is None else 5]]
    assert isinstance(errors[3 if errors[5] is None else 5], sqlite3.IntegrityError)


@pytest.mark.parametrize("error", [OSError("the disk is full"), KeyboardInterrupt()])
def test_a_commit_that_fails_fails_for_all_whose_writes_were_in_it(file, error):
    path, writing, _ = file

    @contextmanager
    def failing():
        with writing() as database:
            yield database
            raise error

    errors = held_together(path, failing, map(inserting, range(3)))
    assert error in errors
    assert all(item is error or isinstance(item, DataError | OSError) for item in errors)
    writers_of(path).commit(inserting(0), writing)
    assert stored(path) == [0]


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
