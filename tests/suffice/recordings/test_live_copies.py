"""Copies of a log that a process was writing to: what is read is what one commit left, or an error that names the copy."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from suffice import Recorder, read_recording
from suffice.errors import DataError, SchemaError
from suffice.recordings.round_journal import RoundJournal

PAGE = 4096


def write(journal: RoundJournal, *numbers: int) -> None:
    """Commit some questions of two rounds at once."""
    with journal.together() as together:
        for number in numbers:
            run = f"run{number:05d}"
            together.begin(run, {"cluster": f"q{number}"})
            for r in (1, 2):
                together.put(run, r, {"columns": {"round": r, "answer": "x" * 40, "number": number}, "kinds": {}})
            together.end(run, {"end": "rule", "inferred": False, "why": ""}, {"stop_round": 2})


def empty(journal: RoundJournal) -> None:
    """Move the questions that have ended out of the journal, as into a parquet file."""
    with journal.emptying():
        pass


def content(path) -> list[tuple[str, int, bool]]:
    """Return what is read of a journal: each question, its rounds, and whether it has ended."""
    questions = RoundJournal(path).content().questions
    return sorted((question.run, len(question.rows), question.ending is not None) for question in questions)


CHANGES = {
    "one question": lambda journal: write(journal, 300),
    "many questions": lambda journal: write(journal, *range(300, 600)),
    "emptied": empty,
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_copy_made_during_a_commit_reads_as_before_it_or_after_it_or_not_at_all(tmp_path, change):
    """A copy has the pages up to some place as they were and all others as they are, or the other way round."""
    path, torn = tmp_path / "log.parquet", tmp_path / "copy.parquet"
    journal = RoundJournal(path)
    journal.check({"config": 1})
    write(journal, *range(300))
    states = [(journal.path.read_bytes(), content(path))]
    CHANGES[change](journal)
    states.append((journal.path.read_bytes(), content(path)))
    refused = 0
    for (first, _), (second, _) in (states, states[::-1]):
        for place in range(0, max(len(first), len(second)) + 1, PAGE):
            RoundJournal(torn).path.write_bytes(first[:place] + second[place:])
            try:
                seen = content(torn)
            except DataError as error:
                assert "a copy that was made while a process wrote to it: copy it again" in str(error)  # noqa: PT017
                refused += 1
            else:
                assert seen in (states[0][1], states[1][1])
    assert refused


def test_a_copied_folder_with_fewer_rows_than_were_committed_is_refused_with_what_to_do(tmp_path):
    with Recorder(tmp_path / "log") as recorder:
        run = recorder.question("Where is the tower?")
        for _ in range(3):
            run.observe("Oslo")
        part = recorder.journal.path
        with closing(sqlite3.connect(part)) as database, database:
            database.execute(
                "DROP TRIGGER rounds_delete"
            )  # as if the page with the last row were one of before the commit
            database.execute("DELETE FROM rounds WHERE round = 3")
        with pytest.raises(
            SchemaError, match=r"other rows than were committed.*copy it again once its writer has closed"
        ):
            read_recording(tmp_path / "log")
        part.unlink()


def test_a_journal_of_an_older_release_is_read_and_counted_from_its_next_write(tmp_path):
    path = tmp_path / "log.parquet"
    journal = RoundJournal(path)
    journal.check({"config": 1})
    write(journal, 1, 2)
    whole = content(path)
    with closing(sqlite3.connect(journal.path)) as database, database:
        for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'").fetchall():
            database.execute(f"DROP TRIGGER {name}")
        database.execute("DROP TABLE tally")
    assert content(path) == whole
    write(journal, 3)
    with (
        closing(sqlite3.connect(journal.path)) as database,
        database,
    ):  # an older process writes without knowing of the count
        database.execute("DELETE FROM rounds WHERE run = 'run00001'")
        database.execute("DELETE FROM questions WHERE run = 'run00001'")
        database.execute("UPDATE questions SET ending = NULL WHERE run = 'run00002'")
    assert content(path) == [("run00002", 2, False), ("run00003", 2, True)]
