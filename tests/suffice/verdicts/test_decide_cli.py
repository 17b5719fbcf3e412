"""`suffice decide`: the sentence, the files, and what it refuses."""

from __future__ import annotations

import json

import pytest

from suffice import replay
from suffice.recordings import read_recording, write_recording
from suffice.verdicts.decisions import Advice
from tests.suffice.verdicts.test_decide import converged_at_2, log_of, losing_three_points
from tests.support.cli_tools import cli


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Logs of two loops, in the folder in which commands run."""
    for name, values in (("waste", converged_at_2), ("earn", losing_three_points)):
        for part, n, first in (("", 400, 0), ("_more", 100, 400), ("_few", 60, 0)):
            log = log_of(n, values, first=first)
            write_recording(tmp_path / f"{name}{part}.parquet", log.table, log.metadata)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_sentence_comes_first_and_the_decision_is_written(folder):
    done = cli("decide", "waste.parquet", "--metric", "quality", code=0)
    assert done.out.startswith("Allow at most 2 rounds instead of 5: it saves 60 % of the calls")
    assert len(done.out.splitlines()) <= 25
    assert "\nat most 4 rounds " in done.out
    assert "fixed_k" not in done.out
    assert Advice.load(folder / "decision.json").verdict == "do it"
    assert "next: suffice deploy decision.json" in done.out


def test_asking_again_about_the_same_loop_continues(folder):
    first = cli("decide", "waste_few.parquet", "--metric", "quality", "--json").json
    again = cli("decide", "waste_few.parquet", "--json").json
    assert again["trial"] == first["trial"]
    assert any("60 questions counted before" in note and "none is new" in note for note in again["notes"])
    more = cli("decide", "waste.parquet", "--json").json
    assert more["file"] == "decision.json"
    assert more["n"] > 300
    later = cli("decide", "waste_more.parquet", "--continue", "decision.json", "-o", "later.json", "--json").json
    assert later["n"] == more["n"] + 100
    assert json.loads((folder / "decision.json").read_text())["n"] == more["n"]


def test_that_no_question_is_new_is_the_first_thing_said(folder):
    """A log that was imported anew, read rightly now, is not judged anew: the old figures must not look like new ones."""
    first = cli("decide", "waste_few.parquet", "--metric", "quality").out
    assert "is new" not in first
    again = cli("decide", "waste_few.parquet").out
    assert again.startswith("No question of waste_few.parquet is new to decision.json")
    said = " ".join(again.split("\n\n")[0].split())
    assert "suffice decide waste_few.parquet -o OTHER.json" in said
    assert not cli("decide", "waste.parquet").out.startswith("No question")


def test_a_decision_about_a_metric_that_the_log_lacks_is_not_repeated(folder):
    assert cli("decide", "waste_few.parquet", "--metric", "quality").code == 0
    log = log_of(60, converged_at_2)
    write_recording(folder / "bare.parquet", log.table.drop_columns(["quality"]), log.metadata)
    refused = cli("decide", "bare.parquet", code=1)
    assert "quality" in refused.error


def test_a_decision_on_other_questions_is_not_continued_unasked(folder):
    assert cli("decide", "waste_few.parquet", "--metric", "quality").code == 0
    before = (folder / "decision.json").read_bytes()
    refused = cli("decide", "earn_more.parquet", "--metric", "quality", code=1)
    assert "other questions" in refused.error
    assert "--continue decision.json" in refused.error
    assert (folder / "decision.json").read_bytes() == before
    assert cli("decide", "earn_more.parquet", "--metric", "quality", "-o", "other.json").code == 0


@pytest.mark.parametrize("option", [("--max-loss", "0.5"), ("--metric", "em"), ("--cost", "tokens"), ("--risk", "0.5")])
def test_what_was_declared_holds(folder, option):
    assert cli("decide", "waste_few.parquet", "--metric", "quality").code == 0
    before = (folder / "decision.json").read_bytes()
    refused = cli("decide", "waste_few.parquet", *option, code=1)
    assert "earlier decision" in refused.error
    assert (folder / "decision.json").read_bytes() == before


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["waste.parquet", "--cost", "joy"], 2, "allowed: calls, tokens, money"),
        (["waste.parquet", "--max-loss", "2"], 1, "max_loss must lie between 0 and 1"),
        (["waste.parquet", "--metric", "joy"], 2, "joy"),
        (["nothing.parquet"], 2, "does not exist"),
        (["waste.parquet", "--continue", "nothing.json"], 2, "cannot be read"),
        (["waste.parquet", "--continue", "waste.parquet"], 1, "is not JSON"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(folder, arguments, code, message):
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    done = cli("decide", *arguments)
    assert (done.code, message in done.error) == (code, True), done
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


def test_runs_of_which_a_proxy_is_unsure_have_a_caution(tmp_path):
    path, rows = tmp_path / "runs.parquet", []
    for q in range(60):
        about = {
            "question_id": f"q{q}",
            "conversation": f"c{q}",
            "key": "fork" if q % 3 == 0 else "messages",
            "solved": 1.0,
        }
        rows += [{**about, "round": r, "end": "max_rounds", "answer": "Oslo"} for r in (1, 2)]
    write_recording(path, rows, {}, {"solved": "metric", "key": "label", "conversation": "label"})
    unsure = "not sure which rounds belong to 20 of 60 runs (fork 20): --where key=messages"
    assert unsure in " ".join(cli("decide", path, "-o", tmp_path / "d.json").out.split())
    assert "not sure" not in cli("decide", path, "--where", "key=messages", "-o", tmp_path / "e.json").out
    assert any("not sure" in note for note in replay(read_recording(path), ["fixed_k(1)"], metrics="solved").notes)
