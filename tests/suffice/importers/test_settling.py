"""Choices of a question that are tried before they are offered."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice.errors import DataError
from suffice.importers import import_recording, settling
from tests.support.cli_tools import cli
from tests.support.logs import asked, imported, written

N = 20


@pytest.fixture
def database(tmp_path):
    """Return a database with the answers in one table, and the questions, which are no rounds, in another."""
    path = tmp_path / "log.sqlite"
    with closing(sqlite3.connect(path)) as opened:
        opened.execute("CREATE TABLE answers (question_id, round, answer, gold)")
        opened.execute("CREATE TABLE questions (id, question)")
        opened.execute("CREATE TABLE notes (text)")
        said = [(q, r, "Oslo" if r > 1 else "Rome", "Oslo") for q in range(N) for r in (1, 2)]
        opened.executemany("INSERT INTO answers VALUES (?, ?, ?, ?)", said)
        opened.executemany("INSERT INTO questions VALUES (?, ?)", [(q, f"Where is tower {q}?") for q in range(N)])
        opened.commit()
    return path


ALONE = 'SELECT * FROM "questions"'


def test_a_choice_that_cannot_be_read_is_not_offered(database):
    queries = [value for value, _ in asked(database, "has the tables").choices.values()]
    assert ALONE not in queries
    assert [imported(database, query=own).trajectories for own in queries] == [N, N]


def test_choices_of_large_sources_are_not_tried(database, monkeypatch):
    monkeypatch.setattr(settling, "_SMALL", 0)
    assert f"--query '{ALONE}'" in asked(database, "has the tables").choices


def test_choices_are_kept_if_none_can_be_read(database):
    with closing(sqlite3.connect(database)) as opened:
        opened.execute("UPDATE answers SET round = 'first'")
        opened.commit()
    assert f"--query '{ALONE}'" in asked(database, "has the tables").choices


def test_a_recording_never_takes_the_place_of_its_parquet_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [
        {"question_id": q, "round": r, "answer": "Oslo" if r > 1 or q % 2 else "Rome", "golds": "Oslo"}
        for q in range(N)
        for r in (1, 2)
    ]
    pq.write_table(pa.Table.from_pylist(rows), "log.parquet")
    assert import_recording("log.parquet", log_golds="keep").path.name == "log.recording.parquet"
    assert import_recording("log.parquet", log_golds="keep").path.name == "log.recording.parquet"
    with pytest.raises(DataError, match="recording.parquet"):
        import_recording("log.recording.parquet", out="log.parquet")


def test_a_nested_score_is_offered_under_its_own_name(tmp_path):
    made = [
        {
            "listing_id": q,
            "drafts": [
                {"text": f"House {q} by the river, draft {r}.", "judge": {"score": 5 + (q + r) % 4}} for r in (1, 2)
            ],
        }
        for q in range(N)
    ]
    source = written(tmp_path, made)
    notes = " ".join(imported(source).notes)
    assert "--metric-column judge_score=judge.score:0..10" in notes
    assert "judge_score" in imported(source, metrics={"judge_score": "judge.score:0..10"}).judged_by


def two_doubts(falls=True):
    """Return rounds that count from 0, and may be in reverse order if the score `falls`."""
    return [
        {"id": q, "round": r, "answer": f"{q}{r}"[-1], "gold": f"{q}1"[-1], "score": 1 - r / 4 if falls else r / 4}
        for q in range(2 * N)
        for r in range(4)
    ]


def test_a_question_that_any_choice_leads_to_is_asked_at_once(tmp_path):
    source = written(tmp_path, two_doubts())
    error = asked(source, match="counts from 0")
    assert [*error.choices] == ["--first-round 1", "--first-round 0"]
    assert "--expected falling-scores" in error.then.choices
    assert all("--column" not in option for option in error.then.choices)
    assert imported(source, first_round=1, expected=["falling-scores"]).rounds == 4
    refused = cli("import", source, "--yes", code=2).err
    assert "in the same command" in refused
    assert "    --expected falling-scores\n" in refused


def test_a_question_that_follows_one_choice_alone_is_not_printed(tmp_path):
    assert asked(written(tmp_path, two_doubts(falls=False)), match="counts from 0").then is None
    error = asked(written(tmp_path, [{**row, "round": row["round"] + 1} for row in two_doubts()]))
    assert error.then is None
