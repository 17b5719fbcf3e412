"""Grades and verdicts among the answers of a log: the import asks which replies are rounds."""

from __future__ import annotations

import json

import pytest

from suffice import read_recording
from tests.support.cli_tools import CITIES
from tests.support.logs import imported, offered, written


def chats(path, replies, n=30):
    """Write conversations of one question each, whose replies are a function of the question."""
    lines = []
    for q in range(n):
        messages = [{"role": "user", "content": f"Where is tower {q}?"}]
        for reply in replies(q):
            messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": "And now?"}]
        lines.append(json.dumps({"id": q, "messages": messages}) + "\n")
    path.write_text("".join(lines), "utf-8")
    return path


@pytest.mark.parametrize(
    "grade", ["INCORRECT", "Grade: 4/5", '```json\n{"score": 2, "reason": "no"}\n```', "PASS: fine."]
)
def test_a_reply_that_grades_the_answer_is_no_round(tmp_path, grade):
    path = chats(tmp_path / "chats.jsonl", lambda q: [CITIES[q % 4], grade])
    assert offered(path, match="grades or verdicts") == ["--where reply_type=answer", "--expected graded"]
    if grade == "INCORRECT":
        said = imported(path, where={"reply_type": "answer"})
        assert said.rounds == 1
        assert read_recording(said.path).table.column("answer").to_pylist() == [CITIES[q % 4] for q in range(30)]


def test_a_grade_that_is_a_number_leaves_the_first_round(tmp_path):
    path = chats(tmp_path / "chats.jsonl", lambda q: [CITIES[q % 4], str(1 + q % 5)])
    assert offered(path, match="such as") == ["--where round=1", "--expected graded"]
    assert imported(path, where={"round": "1"}).rounds == 1


@pytest.mark.parametrize("last", ["Right. It is Rome.", "Oslo", "1492"])
def test_other_replies_are_rounds(tmp_path, last):
    path = chats(tmp_path / "chats.jsonl", lambda q: [CITIES[q % 4], last])
    assert imported(path).rounds == 2


def test_verdicts_are_answers_where_golds_are_verdicts(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": "cannot tell" if r == 1 else "correct", "gold": ("correct", "incorrect")[q % 2]}
        for q in range(30)
        for r in (1, 2)
    ]
    path = written(tmp_path / "claims.jsonl", rows)
    assert imported(path).rounds == 2


def test_rows_of_a_grader_have_no_option_without_a_label(tmp_path):
    rows = [{"id": q, "output": text} for q in range(30) for text in (CITIES[q % 4], f"Score: {q % 5}")]
    path = written(tmp_path, rows)
    assert offered(path, match="leave its rows") == ["--expected graded"]


def test_a_grade_in_a_trace_is_a_call_of_another_kind(tmp_path):
    lines = []
    for q in range(30):
        for r, text in enumerate((CITIES[q % 4], f"Grade: {q % 5}/5")):
            body = {"object": "chat.completion", "id": f"c{q}-{r}", "created": r}
            body["choices"] = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
            lines.append({"custom_id": f"q{q}", "response": {"status_code": 200, "body": body}})
    path = written(tmp_path / "batch.jsonl", lines)
    assert offered(path, match="grades or verdicts") == ["--where reply=", "--expected graded"]
    assert imported(path, where={"reply": ""}).rounds == 1
