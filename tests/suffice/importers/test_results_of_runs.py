"""What a run ended with, repeated in each of its rows, is no answer and no score of a round; a scale of few grades is their own."""

from __future__ import annotations

import shlex

import pytest

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import answer, by_command, offered, written

TOOLS = ("find_slot", "send_email", "book_room")


def steps(n=30):
    """Return the steps of agents: each row repeats what its run ended with, and whether that was right."""
    return [
        {"task_id": f"m{q}", "step": r, "tool": TOOLS[(q + r) % 3]}
        | {"final_answer": f"Booked room {q % 7}.", "success": int(q % 5 > 1)}
        for q in range(n)
        for r in range(1, 3 + q % 3)
    ]


def known(folder, name):
    """Return the rounds of the first question, and those of them in which a column is known."""
    table = read_recording(folder / "r.parquet").table
    first = [
        value
        for own, value in zip(*(table.column(own).to_pylist() for own in ("question_id", name)), strict=True)
        if own == "m1"
    ]
    return len(first), [place for place, value in enumerate(first, 1) if value is not None]


def test_a_score_beside_a_copied_answer_counts_for_the_last_round(tmp_path):
    done = by_command(tmp_path, steps(), "--column", "answer=final_answer", code=0)
    assert "counts for the last round alone" in done.words
    n, rounds = known(tmp_path, "success")
    assert rounds == [n]
    by_command(tmp_path, steps(), "--column", "answer=final_answer", "--metric-column", "success=success", code=0)
    n, rounds = known(tmp_path, "success")
    assert rounds == [*range(1, n + 1)]


def test_a_result_of_the_run_may_be_no_answer(tmp_path):
    assert "--column answer=" in offered(written(tmp_path / "log.jsonl", steps()))
    by_command(tmp_path, steps(), "--column", "answer=", code=0)
    n, rounds = known(tmp_path, "success")
    assert rounds == [n]


@pytest.mark.parametrize(("grades", "scale"), [((0, 1, 2), "0..2"), ((1, 2, 3, 4), "1..4"), ((2, 3, 4), "1..5")])
def test_a_scale_of_few_grades_is_their_own(tmp_path, grades, scale):
    rows = [
        {"question_id": f"q{q}", "round": r, "answer": answer(q, r), "rating": grades[(q + r) % len(grades)]}
        for q in range(30)
        for r in (1, 2, 3)
    ]
    assert f"--metric-column rating=rating:{scale} " in by_command(tmp_path, rows, code=0).words
    by_command(tmp_path, rows, "--metric-column", f"rating=rating:{scale}", code=0)
    low, high = map(int, scale.split(".."))
    right = [(row["rating"] - low) / (high - low) for row in rows]
    assert read_recording(tmp_path / "r.parquet").table.column("rating").to_pylist() == pytest.approx(right)


def test_giving_up_is_what_an_outcome_of_runs_without_answers_can_judge(tmp_path):
    log = [
        {"id": q, "steps": [{"tool": TOOLS[(q + r) % 3], "tokens": 9} for r in range(2 + q % 3)], "success": q % 5 > 1}
        for q in range(60)
    ]
    option = ("--metric-column", "success=success", "--ended", "exhausted")
    refused = by_command(tmp_path, log)
    assert "what giving a run up loses can be judged, and no lower cap" in " ".join(refused.err.split())
    done = by_command(tmp_path, log, *option, code=0)
    command = shlex.split(done.out.partition("next: suffice ")[2])
    assert command[-2:] == ["--metric", "abandon(success)"]
    decided = cli(*command[:1], tmp_path / "r.parquet", *command[2:], "-o", tmp_path / "d.json", code=0)
    assert "cannot be judged" not in decided.out
    answered = by_command(tmp_path, steps(), "--column", "answer=final_answer", code=0)
    assert "abandon" not in answered.out
