"""Scores in a critic's rows count for the answers before them; rounds from 0 and logs without answers are asked about."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines
from benchmarks.readings.files_and_speakers import (
    drafts_scored_in_the_rows_of_a_critic,
    hops_from_0_without_passages_at_first,
)

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import Brief

Rows = list[dict[str, Any]]


def imported(folder: Path, rows: Rows, *options: str) -> Any:
    path = folder / "log.jsonl"
    path.write_text(lines(rows), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def values(folder: Path, name: str) -> list[Any]:
    return read_recording(folder / "r.parquet").table.column(name).to_pylist()


def drafts() -> Rows:
    return [dict(row) for row in drafts_scored_in_the_rows_of_a_critic(Brief("x")).content]


TUTOR = ("--where", "role=tutor")


def without_turns(rows: Rows) -> Rows:
    return [{name: value for name, value in row.items() if name != "turn"} for row in rows]


def as_marks(rows: Rows) -> Rows:
    words = {True: "good", False: "bad"}
    return [
        {**row, "score": None, "verdict": None if row["score"] is None else words[row["score"] > 0.5]} for row in rows
    ]


@pytest.mark.parametrize("change", [list, without_turns])
def test_a_score_counts_for_the_answer_before_it(tmp_path, change):
    rows = change(drafts())
    done = imported(tmp_path, rows, *TUTOR)
    assert done.code == 0
    assert values(tmp_path, "score") == [row["score"] for row in rows if row["role"] == "critic"]
    words = " ".join(done.out.split())
    assert "leaves out the rows with 'score': each value counts for the answer" in words
    assert "nothing in the log says" not in words


def test_words_of_a_critic_are_offered_as_a_score(tmp_path):
    done = imported(tmp_path, as_marks(drafts()), *TUTOR)
    assert done.code == 0
    assert "--metric-column verdict=verdict:" in " ".join(done.out.split())


@pytest.mark.parametrize("name", ["model", "shown"])
def test_a_filter_by_what_is_no_speaker_carries_no_scores(tmp_path, name):
    rows = [{name if own == "role" else own: value for own, value in row.items()} for row in drafts()]
    done = imported(tmp_path, rows, "--where", f"{name}=tutor")
    assert done.code == 0
    assert {*values(tmp_path, "score")} == {None}
    assert ("'score' is only in rows" in done.out) == (name == "shown")


def second_critic(rows: Rows) -> Rows:
    """Return rows with a second critic, whose scores differ."""
    return [
        own
        for row in rows
        for own in ([row, {**row, "score": 1 - row["score"] / 2}] if row["score"] is not None else [row])
    ]


def critic_first(rows: Rows) -> Rows:
    """Return rows without turns, in which the critic speaks before the tutor."""
    pairs = zip(rows[::2], rows[1::2], strict=True)
    return without_turns([row for tutor, critic in pairs for row in (critic, tutor)])


@pytest.mark.parametrize("change", [second_critic, critic_first])
def test_scores_of_no_single_answer_are_named(tmp_path, change: Callable[[Rows], Rows]):
    done = imported(tmp_path, change(drafts()), *TUTOR)
    assert done.code == 0
    assert "'score' is only in rows that --where role=tutor leaves out" in " ".join(done.out.split())


def test_a_judge_without_answers_scores_the_round(tmp_path):
    rows = [
        {
            "qid": row["thread"],
            "round": row["turn"],
            "answer": row["content"] if row["role"] == "tutor" else None,
            "score": row["score"],
        }
        for row in drafts()
    ]
    done = imported(tmp_path, rows)
    assert done.code == 0
    assert values(tmp_path, "score") == [row["score"] for row in rows if row["score"] is not None]
    words = " ".join(done.out.split())
    assert "reading one row for each round leaves out the rows with 'score'" in words
    assert "calls that were repeated" not in words


def test_a_reviewers_approval_is_offered_as_a_score(tmp_path):
    rows = [
        {**row, "score": None, "approved": None if row["score"] is None else row["score"] > 0.5} for row in drafts()
    ]
    assert "--metric-column approved=approved" in imported(tmp_path, rows, *TUTOR).out


def test_a_single_score_at_the_end_counts_for_the_last_answer(tmp_path):
    rows = without_turns(drafts())
    last = [row for n, row in enumerate(rows) if row["role"] == "tutor" or n % 6 == 5]
    assert imported(tmp_path, last, *TUTOR).code == 0
    scores = [row["score"] for row in last if row["role"] == "critic"]
    assert values(tmp_path, "score")[2::3] == scores
    assert {*values(tmp_path, "score")[::3]} == {None}


def test_a_critique_is_no_score(tmp_path):
    rows = [{**row, "score": None, "feedback": None if row["role"] == "tutor" else row["content"]} for row in drafts()]
    assert imported(tmp_path, rows, *TUTOR).code == 0
    assert {*values(tmp_path, "feedback")} == {None}


def test_a_session_without_a_question_is_described_as_one(tmp_path):
    done = imported(tmp_path, drafts(), *TUTOR, "--details")
    assert "name of a session" in done.out
    assert "text of the question changes" not in done.out


def test_the_last_call_of_a_session_costs_the_next_one_nothing(tmp_path):
    assert imported(tmp_path, drafts(), *TUTOR).code == 0
    assert values(tmp_path, "cost.generator.calls")[:6] == [1, 2, 3, 1, 2, 3]


def hops() -> Rows:
    return [dict(row) for row in hops_from_0_without_passages_at_first(Brief("x")).content]


@pytest.mark.parametrize("name", ["hop", "iteration", "step", "attempt"])
def test_a_first_round_without_passages_is_asked_about(tmp_path, name):
    rows = [{(name if own == "hop" else own): value for own, value in row.items()} for row in hops()]
    refused = imported(tmp_path, rows)
    assert refused.code == 2
    assert "--first-round 0" in refused.err
    if name != "hop":
        return
    for first, numbers in (("0", [0, 1, 2, 3]), ("1", [1, 2, 3, 4])):
        assert imported(tmp_path, rows, "--first-round", first).code == 0
        assert values(tmp_path, "round")[:4] == numbers


@pytest.mark.parametrize("passages", [None, ["p"]])
def test_other_rounds_from_0_are_first_ones_with_a_note(tmp_path, passages):
    done = imported(tmp_path, [{**row, "passages": passages} for row in hops()])
    assert done.code == 0
    first = next(line for line in done.out.splitlines() if line.startswith("note: "))
    assert first.startswith("note: the lowest 'hop' is read as round 1")
    assert "--first-round 0" in done.out


def test_a_log_without_answers_is_refused_with_what_may_judge(tmp_path):
    rows = [{**row, "score": None, "rubric_mark": row["score"]} for row in drafts()]
    refused = imported(tmp_path, rows, *TUTOR, "--column", "answer=")
    assert refused.code == 2
    assert "--column answer=content\n" in refused.err
    assert "(instead of --column answer=)" in refused.err
    mark = "rubric_mark=rubric_mark"
    assert f"--metric-column {mark}\n" in refused.err
    assert imported(tmp_path, rows, *TUTOR, "--column", "answer=", "--metric-column", mark).code == 0
    assert cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json").code == 0
    assert imported(tmp_path, rows, *TUTOR, "--column", "answer=", "--expected", "no-answers").code == 0


def test_a_score_does_not_replace_the_question_for_answers(tmp_path):
    rows = [{("uttered" if own == "content" else own): value for own, value in row.items()} for row in drafts()]
    refused = imported(tmp_path, rows, *TUTOR)
    assert refused.code == 2
    assert "--column answer=uttered\n" in refused.err
    assert imported(tmp_path, rows, *TUTOR, "--column", "answer=uttered").code == 0
    assert values(tmp_path, "score") == [row["score"] for row in rows if row["role"] == "critic"]
