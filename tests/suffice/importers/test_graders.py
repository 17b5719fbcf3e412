"""Grades and verdicts among the answers of a log: the import asks which replies are rounds."""

from __future__ import annotations

import json

import pytest

from suffice import import_recording, read_recording
from suffice.errors import UnsettledError
from tests.support.cli_tools import CITIES


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
    with pytest.raises(UnsettledError, match="grades or verdicts") as error:
        import_recording(path, out=tmp_path / "chats.parquet")
    assert [*error.value.choices] == ["--where reply_type=answer", "--expected graded"]
    said = import_recording(path, out=tmp_path / "chats.parquet", where={"reply_type": "answer"})
    assert said.rounds == 1
    assert read_recording(said.path).table.column("answer").to_pylist() == [CITIES[q % 4] for q in range(30)]


def test_a_grade_that_is_a_number_leaves_the_first_round(tmp_path):
    path = chats(tmp_path / "chats.jsonl", lambda q: [CITIES[q % 4], str(1 + q % 5)])
    with pytest.raises(UnsettledError, match="such as") as error:
        import_recording(path, out=tmp_path / "chats.parquet")
    assert [*error.value.choices] == ["--where round=1", "--expected graded"]
    assert import_recording(path, out=tmp_path / "chats.parquet", where={"round": "1"}).rounds == 1


@pytest.mark.parametrize("last", ["Right. It is Rome.", "Oslo", "1492"])
def test_other_replies_are_rounds(tmp_path, last):
    path = chats(tmp_path / "chats.jsonl", lambda q: [CITIES[q % 4], last])
    assert import_recording(path, out=tmp_path / "chats.parquet").rounds == 2


def test_verdicts_are_answers_where_golds_are_verdicts(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": "cannot tell" if r == 1 else "correct", "gold": ("correct", "incorrect")[q % 2]}
        for q in range(30)
        for r in (1, 2)
    ]
    path = tmp_path / "claims.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    assert import_recording(path, out=tmp_path / "claims.parquet").rounds == 2


def test_rows_of_a_grader_have_no_option_without_a_label(tmp_path):
    rows = [{"id": q, "output": text} for q in range(30) for text in (CITIES[q % 4], f"Score: {q % 5}")]
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), "utf-8")
    with pytest.raises(UnsettledError, match="leave its rows") as error:
        import_recording(path, out=tmp_path / "log.parquet")
    assert [*error.value.choices] == ["--expected graded"]


def test_a_grade_in_a_trace_is_a_call_of_another_kind(tmp_path):
    lines = []
    for q in range(30):
        for r, text in enumerate((CITIES[q % 4], f"Grade: {q % 5}/5")):
            body = {"object": "chat.completion", "id": f"c{q}-{r}", "created": r}
            body["choices"] = [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}]
            lines.append({"custom_id": f"q{q}", "response": {"status_code": 200, "body": body}})
    path = tmp_path / "batch.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")
    with pytest.raises(UnsettledError, match="grades or verdicts") as error:
        import_recording(path, out=tmp_path / "batch.parquet")
    assert [*error.value.choices] == ["--where reply=", "--expected graded"]
    assert import_recording(path, out=tmp_path / "batch.parquet", where={"reply": ""}).rounds == 1
