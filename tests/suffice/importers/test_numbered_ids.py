"""Ids of requests and rows that hold the question and the number of the round."""

from __future__ import annotations

import pytest

from suffice import import_recording, read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import imported, written


def batch(path, name, *, failed=()):
    """Write the output of a batch; `name` makes an id of question and round, and requests in `failed` come twice."""
    lines = []
    for q in range(20):
        for r in (3, 1, 2):
            body = {"object": "chat.completion", "id": f"c{q}-{r}", "created": 7}
            message = {"role": "assistant", "content": CITIES[(q + r) % 4]}
            body["choices"] = [{"index": 0, "message": message, "finish_reason": "stop"}]
            if (q, r) in failed:
                lines.append({"custom_id": name(q, r), "response": {"status_code": 500, "body": {}}})
            lines.append({"custom_id": name(q, r), "response": {"status_code": 200, "body": body}})
    return written(path, lines)


@pytest.mark.parametrize("form", ["q{:03d}-round{}", "task-{}/attempt-{}", "q{}_r{}", "2024:{}:step:{}"])
def test_ids_of_a_batch_name_questions_and_rounds(tmp_path, form):
    path = batch(tmp_path / "batch.jsonl", form.format, failed={(3, 2)})
    summary = imported(path)
    answers = read_recording(summary.path).table.column("answer").to_pylist()
    assert answers[:6] == [CITIES[(q + r) % 4] for q in range(2) for r in (1, 2, 3)]
    assert (summary.trajectories, summary.rounds) == (20, 3)
    assert any("--key custom_id" in note for note in summary.notes)
    whole = imported(path, key="custom_id")
    assert (whole.trajectories, whole.rounds) == (60, 1)


def test_samples_in_ids_of_a_batch_are_samples(tmp_path):
    path = batch(tmp_path / "batch.jsonl", "q_{}_seed_{}".format)
    summary = imported(path)
    assert summary.samples
    assert any("independent samples (--samples)" in note for note in summary.notes)
    assert not imported(path, expected=["sample-list"]).samples


@pytest.mark.parametrize("form", ["q{}-{}", "{}round{}", "q{}-page{}"])
def test_other_ids_of_a_batch_are_questions(tmp_path, form):
    path = batch(tmp_path / "batch.jsonl", form.format)
    assert imported(path).trajectories == 60


def test_a_batch_with_gaps_is_read_by_the_question_of_its_ids(tmp_path):
    path = batch(tmp_path / "batch.jsonl", "q{}-{}".format)
    kept = [line for n, line in enumerate(path.read_text("utf-8").splitlines()) if n % 4]
    path.write_text("\n".join(kept), "utf-8")
    summary = import_recording(path, out=tmp_path / "batch.parquet", key="custom_id.question", samples=True)
    assert (summary.trajectories, summary.rounds) == (20, 3)


def rows(path, **columns):
    """Write a row for each attempt, whose id names it; further columns are functions of question and attempt."""
    lines = [
        {
            "id": f"q{q}-attempt{r}",
            "output": CITIES[(q + r) % 4],
            **{name: make(q, r) for name, make in columns.items()},
        }
        for q in range(20)
        for r in (2, 1)
    ]
    return written(path, lines)


def test_ids_of_rows_name_questions_and_rounds(tmp_path):
    summary = import_recording(rows(tmp_path / "log.jsonl"), out=tmp_path / "log.parquet")
    answers = read_recording(summary.path).table.column("answer").to_pylist()
    assert answers == [CITIES[(q + r) % 4] for q in range(20) for r in (1, 2)]
    assert any("'q0-attempt2' is 'q0', attempt 2" in note for note in summary.notes)


def test_a_column_that_counts_rounds_is_read_before_ids(tmp_path):
    path = rows(tmp_path / "log.jsonl", round=lambda q, r: 3 - r, question=lambda q, r: f"Where is tower {q}?")
    answers = read_recording(imported(path).path).table.column("answer")
    assert answers.to_pylist() == [CITIES[(q + r) % 4] for q in range(20) for r in (2, 1)]
