"""What an eleventh tester misread: agents in turn, customers, numbered summaries, parsed replies, and scores nobody named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines
from benchmarks.readings.misled_by_roles import a_writer_and_a_critic_as_agents, tickets_of_customers_and_a_bot

from suffice.importers import import_recording
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import Brief, paired

N = 24


def imported(folder: Path, content: Any, *options: str) -> Any:
    path = folder / ("log.jsonl" if isinstance(content, list) else "log.json")
    path.write_text(lines(content) if isinstance(content, list) else json.dumps(content))
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def total(folder: Path, name: str) -> float:
    return sum(read_recording(folder / "r.parquet").table.column(f"cost.generator.{name}").to_pylist())


def test_agents_in_turn_are_asked_about_with_commands(tmp_path):
    refused = imported(tmp_path, a_writer_and_a_critic_as_agents(Brief("x")).content)
    assert refused.code == 2
    assert "--where agent=writer" in refused.err
    assert "--column run=agent" in refused.err


def test_what_a_critic_spent_is_charged_to_the_writer(tmp_path):
    log = a_writer_and_a_critic_as_agents(Brief("x")).content
    assert imported(tmp_path, log, "--where", "agent=writer").code == 0
    assert total(tmp_path, "uncached_tokens") == sum(row["usage"]["prompt_tokens"] for row in log)
    assert total(tmp_path, "calls") == len(log)


@pytest.mark.parametrize("names", [("agent_1", "agent_2"), ("alpha", "beta")])
def test_agents_without_a_kind_of_work_are_runs(tmp_path, names):
    rows = [
        {"qid": q, "agent": name, "round": r, "answer": str((q + r * i) % 5), "gold": str(q % 5)}
        for q in range(N)
        for r in (1, 2, 3)
        for i, name in enumerate(names)
    ]
    assert imported(tmp_path, rows).code == 0
    assert len(read_recording(tmp_path / "r.parquet").question_ids) == 2 * N


def test_a_column_of_the_writer_alone_tells_turns(tmp_path):
    rows = [
        {"qid": q, "agent": name, "round": r, "answer": f"{q} {r} {name}", "score": (r / 3 if name == "ann" else None)}
        for q in range(N)
        for r in (1, 2, 3)
        for name in ("ann", "ben")
    ]
    refused = imported(tmp_path, rows)
    assert "calls of several kinds, by 'agent'" in refused.err


def test_tickets_are_named_by_their_own_ids(tmp_path):
    log = tickets_of_customers_and_a_bot(Brief("y")).content
    assert imported(tmp_path, log).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert {*recording.question_ids} == {ticket["ticket_id"] for ticket in log["tickets"]}
    bots = [own["body"] for ticket in log["tickets"] for own in ticket["messages"] if own["author"] == "bot"]
    assert [text for text in recording.table.column("answer").to_pylist() if text] == bots


@pytest.mark.parametrize(
    ("speaker", "text"),
    paired(["author", "role", "sender", "from", "speaker", "who"], ["body", "content", "text", "message"]),
)
def test_what_customers_say_is_no_answer_by_any_key(tmp_path, speaker, text):
    rows = [
        {"ticket_id": f"T{q}", speaker: who, text: f"{who} {q} {r} says this"}
        for q in range(N)
        for r in (1, 2)
        for who in ("customer", "bot")
    ]
    refused = imported(tmp_path, rows, "--column", "question_id=ticket_id", "--column", f"answer={text}")
    assert refused.code == 2
    assert f"--where {speaker}=bot" in refused.err


def test_thumbs_are_offered_as_a_metric_that_works(tmp_path):
    rows = [
        {"id": q, "round": r, "answer": f"text {q} {r}", "feedback": (None, "up", "down")[(q + r) % 3]}
        for q in range(N)
        for r in (1, 2)
    ]
    (tmp_path / "log.jsonl").write_text(lines(rows))
    notes = " ".join(import_recording(tmp_path / "log.jsonl", out=tmp_path / "s.parquet").notes)
    option = "feedback_score=feedback:down,up"
    assert f"--metric-column {option}" in notes
    assert imported(tmp_path, rows, "--metric-column", option).code == 0
    values = read_recording(tmp_path / "r.parquet").table.column("feedback_score").to_pylist()
    known = {None: None, "up": 1.0, "down": 0.0}
    assert values == [known[row["feedback"]] for row in rows]


def versions(form: str) -> list[dict[str, Any]]:
    return [
        {
            "article_id": f"a{q}",
            **{form.format("summary", r): f"words of {q} in {r}" for r in (1, 2, 3)},
            **{form.format("rougeL", r): (q + r) / 100 for r in (1, 2, 3)},
            **{form.format("rouge1", r): (q + r) / 90 for r in (1, 2, 3)},
            **{form.format("out_tokens", r): 10 + 10 * ((q + r) % 3) for r in (1, 2, 3)},
            "editor_note": "see" if q == 3 else None,
        }
        for q in range(N)
    ]


@pytest.mark.parametrize("form", ["{}_v{}", "{}.{}", "{}-{}", "{} ({})"])
def test_numbered_texts_are_offered_in_one_command(tmp_path, form):
    rows = versions(form)
    refused = imported(tmp_path, rows)
    joined = ",".join(form.format("summary", r) for r in (1, 2, 3))
    assert refused.code == 2
    assert f"rounds={joined}" in refused.err
    assert imported(tmp_path, rows, "--column", f"rounds={joined}").code == 0
    table = read_recording(tmp_path / "r.parquet").table
    assert table.column("rougeL").to_pylist()[:3] == [0.01, 0.02, 0.03]
    assert table.column("rouge1").to_pylist()[:2] == pytest.approx([1 / 90, 2 / 90])
    assert total(tmp_path, "output_tokens") == N * 60


def test_a_reference_beside_scores_is_said(tmp_path):
    rows = [{**row, "reference_summary": "text " + "abc"[q % 3]} for q, row in enumerate(versions("{}_v{}"))]
    command = ("--column", "rounds=summary_v1,summary_v2,summary_v3", "--details")
    said = " ".join(imported(tmp_path, rows, *command).out.split())
    assert "the gold answers judge" in said
    assert "are kept: `suffice decide --metric rougeL` judges by it" in said


def test_an_exit_code_is_offered_with_0_as_best(tmp_path):
    rows = [{"id": q, "round": r, "answer": f"x {q} {r}", "exit_code": (q + r) % 2} for q in range(N) for r in (1, 2)]
    out = " ".join(imported(tmp_path, rows).out.split())
    assert "--metric-column exit_code=exit_code:1..0" in out
    assert "exit_code=exit_code " not in out


def test_counts_beside_a_total_are_offered_as_shares(tmp_path):
    rows = [
        {"id": q, "steps": [{"answer": f"x {q} {r}", "tests": {"passed": r + q % 3, "total": 6}} for r in (1, 2, 3)]}
        for q in range(N)
    ]
    out = " ".join(imported(tmp_path, rows).out.split())
    option = "tests_passed=tests.passed/tests.total"
    assert option in out
    assert imported(tmp_path, rows, "--metric-column", option).code == 0
    values = read_recording(tmp_path / "r.parquet").table.column("tests_passed").to_pylist()
    assert values == pytest.approx([(r + q % 3) / 6 for q in range(N) for r in (1, 2, 3)])


def test_a_part_above_its_total_is_refused(tmp_path):
    rows = [{"id": q, "round": r, "answer": f"x {q} {r}", "ok": 7, "all": 6} for q in range(N) for r in (1, 2)]
    refused = imported(tmp_path, rows, "--metric-column", "share=ok/all")
    assert "expected a part of a total" in refused.err


def replies(name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": q,
            "round": r,
            "gold": "ABCD"[(q + 1) % 4],
            "response": ("I think it is {}, a town.", "{}", "{} since it is so")[(q + r) % 3].format(
                "ABCD"[(q + r // 2) % 4]
            ),
            name: "ABCD"[(q + r // 2) % 4],
        }
        for q in range(N)
        for r in (1, 2, 3)
    ]


def test_what_a_log_parsed_is_read_with_its_replies(tmp_path):
    rows = replies("parsed")
    assert imported(tmp_path, rows).code == 0
    table = read_recording(tmp_path / "r.parquet").table
    assert table.column("answer").to_pylist() == [row["parsed"] for row in rows]
    assert table.column("text").to_pylist() == [row["response"] for row in rows]


def test_a_column_that_may_be_parsed_is_offered_first(tmp_path):
    refused = imported(tmp_path, replies("choice"))
    commands = [line for line in refused.err.splitlines() if "suffice import" in line]
    assert "--column answer=choice" in commands[0]
    assert "--answer-position" in commands[1]


def test_whether_a_parse_succeeded_is_no_answer(tmp_path):
    rows = [{**row, "parsed": row["parsed"] == "A"} for row in replies("parsed")]
    refused = imported(tmp_path, rows)
    assert "answer=parsed" not in refused.err
