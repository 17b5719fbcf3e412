"""Records in one text, objects, calls of tools as answers, and a writer whose judge speaks in rows of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import Draw, lines
from benchmarks.readings.fields_and_tools import (
    bookings_in_one_text,
    what_a_judge_says_in_rows,
    what_a_reviewer_says_in_rows,
    what_an_editor_writes_in_rows,
)

from suffice.recordings import read_recording
from tests.support.cli_tools import cli


def imported(folder: Path, content: Any, *options: str) -> Any:
    path = folder / "log.jsonl"
    path.write_text(lines(content), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def recording(folder: Path) -> Any:
    return read_recording(folder / "r.parquet")


def test_a_record_with_another_field_is_wrong(tmp_path):
    log = bookings_in_one_text(Draw("x"))
    done = imported(tmp_path, log.content, "--details")
    assert done.code == 0
    assert "records of 4 fields" in " ".join(done.out.split())
    right = [score for own in log.loops for score in own.scores]
    assert recording(tmp_path).column("match").mean() == pytest.approx(sum(right) / len(right))


@pytest.mark.parametrize(
    "make", [what_a_judge_says_in_rows, what_a_reviewer_says_in_rows, what_an_editor_writes_in_rows]
)
@pytest.mark.parametrize("n", [8, 40])
def test_who_speaks_is_asked_before_what_a_question_is(tmp_path, make, n):
    rows = [row for row in make(Draw("x")).content if row.get("doc", row.get("doc_id")) < n]
    asked = imported(tmp_path, rows)
    assert asked.code == 2
    assert len(asked.commands) > 1 or "role" not in asked.commands[0][-1].partition("=")[2]
    then = cli(*asked.command("--where role=writer"))
    done = cli(*then.commands[0]) if then.code else then
    assert done.code == 0
    answers = recording(tmp_path).table.column("answer").to_pylist()
    assert len(answers) == 4 * n
    assert all("caravan" in own for own in answers)
