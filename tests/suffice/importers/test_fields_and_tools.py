"""Records in one text, objects, calls of tools as answers, and a writer whose judge speaks in rows of its own."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import Draw, lines
from benchmarks.readings.fields_and_tools import (
    answers_that_a_tool_takes,
    answers_that_are_objects,
    bookings_in_one_text,
    objects_in_texts_and_what_staff_booked,
    what_a_judge_says_in_rows,
    what_a_reviewer_says_in_rows,
    what_an_editor_writes_in_rows,
)

from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import Brief


def imported(folder: Path, content: Any, *options: str) -> Any:
    path = folder / "log.jsonl"
    path.write_text(lines(content), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def recording(folder: Path) -> Any:
    return read_recording(folder / "r.parquet")


def test_a_record_with_another_field_is_wrong(tmp_path):
    log = bookings_in_one_text(Brief("x"))
    done = imported(tmp_path, log.content, "--details")
    assert done.code == 0
    assert "records of 4 fields" in " ".join(done.out.split())
    right = [score for own in log.loops for score in own.scores]
    assert recording(tmp_path).column("match").mean() == pytest.approx(sum(right) / len(right))


@pytest.mark.parametrize(
    ("make", "n"),
    [(what_a_judge_says_in_rows, 8), (what_a_reviewer_says_in_rows, 16), (what_an_editor_writes_in_rows, 8)],
)
def test_who_speaks_is_asked_before_what_a_question_is(tmp_path, make, n):
    rows = [row for row in make(Brief("x")).content if row.get("doc", row.get("doc_id")) < n]
    asked = imported(tmp_path, rows)
    assert asked.code == 2
    assert (",role" in asked.err) == (make is what_an_editor_writes_in_rows)  # who may have a loop of its own
    then = cli(*asked.command("--where role=writer"))
    done = cli(*then.commands[0]) if then.code else then
    assert done.code == 0
    answers = recording(tmp_path).table.column("answer").to_pylist()
    assert len(answers) == 4 * n
    assert all("caravan" in own for own in answers)


def orders() -> list[dict[str, Any]]:
    return answers_that_a_tool_takes(Brief("x")).content


def with_calls(records: list[dict[str, Any]], change: Callable[[dict[str, Any]], Any]) -> list[dict[str, Any]]:
    """Return records in which each message that calls a tool is changed."""
    made = json.loads(json.dumps(records))
    for record in made:
        record["messages"] = [change(own) if own.get("tool_calls") else own for own in record["messages"]]
    return made


def in_parts(message: dict[str, Any]) -> dict[str, Any]:
    called = message["tool_calls"][0]["function"]
    return {
        "role": "assistant",
        "content": [{"type": "tool_use", "name": called["name"], "input": json.loads(called["arguments"])}],
    }


@pytest.mark.parametrize("change", [dict, in_parts, lambda own: {**own, "content": "Let me see."}])
def test_the_tool_that_takes_answers_is_offered(tmp_path, change):
    asked = imported(tmp_path, with_calls(orders(), change))
    assert asked.code == 2
    typed = asked.commands[0]
    assert typed[-4:] == ["--column", "answer=tool_calls:submit_decision", "--answer-position", "tool:decision"]
    assert "look_up" not in asked.err
    if change is not dict:
        return
    done = cli(*typed, "--column", "golds=expected_decision")
    assert done.code == 0
    read = recording(tmp_path)
    right = [score for own in answers_that_a_tool_takes(Brief("x")).loops for score in own.scores]
    assert read.column("em").mean() == pytest.approx(sum(right) / len(right))
    assert read.metadata["config"]["answer_position"] == {"kind": "tool", "text": "decision"}


@pytest.mark.parametrize("where", [(), ("--where", "role=assistant")])
def test_the_field_of_a_tool_finds_its_calls(tmp_path, where):
    options = ("--answer-position", "tool:decision", "--column", "golds=expected_decision", *where)
    assert imported(tmp_path, orders(), *options).code == 0
    assert recording(tmp_path).column("cost.generator.calls").mean() == 2


def test_a_field_that_several_tools_have_is_asked_about(tmp_path):
    def change(message):
        called = message["tool_calls"][0]["function"]
        own = {**called, "arguments": json.dumps({**json.loads(called["arguments"]), "note": "x"})}
        return {**message, "tool_calls": [{"function": own}]}

    asked = imported(tmp_path, with_calls(orders(), change), "--answer-position", "tool:note")
    assert asked.code == 2
    assert [own[-1] for own in asked.commands] == ["answer=tool_calls:look_up", "answer=tool_calls:submit_decision"]


def test_arguments_are_the_answer_without_a_field(tmp_path):
    def change(message):
        called = message["tool_calls"][0]["function"]
        return {**message, "tool_calls": [{"function": {**called, "arguments": called["arguments"][2:-2]}}]}

    done = imported(
        tmp_path, with_calls(orders(), change), "--column", "answer=tool_calls:submit_decision", "--column", "golds="
    )
    assert done.code == 0
    assert recording(tmp_path).table.column("answer")[0].as_py().startswith('decision": "')


def test_what_is_said_beside_tools_stays_the_answer(tmp_path):
    rows = orders()
    for row in rows:
        row["messages"] = [
            {**own, "content": f"I say {row['expected_decision']}."} if own["role"] == "assistant" else own
            for own in row["messages"]
        ]
    asked = imported(tmp_path, rows)
    assert asked.code == 2
    assert [own[-2:] for own in asked.commands][:1] == [["--where", "reply_type=*"]]
    assert "answer=tool_calls:submit_decision" in asked.err


def test_objects_are_offered_as_a_whole(tmp_path):
    log = answers_that_are_objects(Brief("x"))
    asked = imported(tmp_path, log.content)
    assert asked.code == 2
    assert asked.commands[0][-1] == "answer=output"  # the benchmark of readings types it


def test_objects_of_numbers_are_offered_beside_golds_of_the_same_fields(tmp_path):
    rows = [
        {"id": q, "gold": {"x": q, "y": 2}, "steps": [{"plan": {"x": q, "y": y}} for y in (q % 3, 2)]}
        for q in range(20)
    ]
    asked = imported(tmp_path, rows)
    assert asked.commands[0][-1] == "answer=plan"
    assert cli(*asked.commands[0]).code == 0
    assert recording(tmp_path).column("match").mean() == pytest.approx((7 + 20) / 40, abs=0.03)


def test_golds_in_json_are_found_under_their_own_name(tmp_path):
    log = objects_in_texts_and_what_staff_booked(Draw("x"))
    done = imported(tmp_path, log.content, "--column", "answer=booking")
    said = done.words + " ".join(done.err.split())
    assert "--column golds=final_booking_by_staff" in said
    assert (
        imported(tmp_path, log.content, "--column", "answer=booking", "--column", "golds=final_booking_by_staff").code
        == 0
    )
    right = [score for own in log.loops for score in own.scores]
    assert recording(tmp_path).column("match").mean() == pytest.approx(sum(right) / len(right))


def test_a_missing_object_is_no_answer(tmp_path):
    rows = answers_that_are_objects(Brief("x")).content
    rows[0]["attempts"][0]["output"] = {}
    assert imported(tmp_path, rows, "--column", "answer=output").code == 0
    assert recording(tmp_path).table.column("answer")[0].as_py() is None


def priced(**columns: Callable[[int, int], Any]) -> list[dict[str, Any]]:
    return [
        {
            "id": q,
            "round": r,
            "answer": "Rome" if r < 2 and q % 2 else "Oslo",
            "gold": "Oslo",
            "prompt_tokens": 100 + 7 * (q * r % 5),
        }
        | {name: make(q, r) for name, make in columns.items()}
        for q in range(20)
        for r in (1, 2, 3)
    ]


TOTAL, EACH = "--column spend=cost_usd", "--column spend=cost_usd:each"


@pytest.mark.parametrize(
    ("make", "order"),
    [
        (lambda q, r: r * (0.01 + q / 1000), [TOTAL, EACH]),
        (lambda q, r: 0.01 + r / 10000, [EACH, TOTAL]),  # it grows with the prompt
        (lambda q, r: 0.01 + (q * r % 5) / 1000, [EACH]),
    ],
)
def test_a_running_total_of_dollars_is_told_from_those_of_rows(tmp_path, make, order):
    note = next(
        own for own in imported(tmp_path, priced(cost_usd=make), "--details").out.splitlines() if "spend=" in own
    )
    assert re.findall(r"--column spend=cost_usd(?::each)?", note) == order
    if order[0] == TOTAL:
        assert imported(tmp_path, priced(cost_usd=make), *TOTAL.split()).code == 0
        assert recording(tmp_path).column("spend")[0].tolist() == pytest.approx([make(0, r) for r in (1, 2, 3)])


@pytest.mark.parametrize(
    ("name", "make", "offered"),
    [
        ("payout_eur", lambda q, r: 100 + q * 37 % 11 + r % 2, False),
        ("amount_usd", lambda q, r: 100 + q * 37 % 11 + r % 2, False),
        ("payout_eur", lambda q, r: (100 + 7 * (q * r % 5)) / 1e4, True),  # as tokens vary
        ("api_fee_eur", lambda q, r: 0.02 + q * 37 % 11 / 1e4, True),
    ],
)
def test_money_that_no_call_costs_is_not_offered(tmp_path, name, make, offered):
    done = imported(tmp_path, priced(**{name: make}), "--details")
    assert done.code == 0
    assert (f"spend={name}" in done.out) == offered


def asked(name: str, text: Callable[[int, int], str], **more: Any) -> list[dict[str, Any]]:
    return [
        {
            "ticket_id": f"T-{q}",
            "round": r,
            name: text(q, r),
            "answer": "Rome" if r < 2 and q % 2 else "Oslo",
            "gold": "Oslo",
            **more,
        }
        for q in range(20)
        for r in (1, 2)
    ]


@pytest.mark.parametrize(
    ("name", "text", "is_read"),
    [
        ("customer_question", lambda q, r: f"Where is parcel {q}?", True),
        ("guest_message", lambda q, r: f"Where is room {q}?", True),
        ("guest_message", lambda q, r: f"Where is room {q + r}?", False),
        ("guest_message", lambda q, r: "Hello!", False),
        ("error_message", lambda q, r: f"No parcel {q}", False),
    ],
)
def test_what_somebody_asks_is_the_question(tmp_path, name, text, is_read):
    assert imported(tmp_path, asked(name, text)).code == 0
    read = recording(tmp_path).table
    assert ("question" in read.column_names and read.column("question")[0].as_py() == text(0, 1)) == is_read


def test_a_score_that_judges_is_not_said_to_be_none(tmp_path):
    rows = [
        {"id": q, "round": r, "draft": f"Draft {r} of {q} on the tram.", "judge": {"score": 3 + (q + r) % 8}}
        for q in range(20)
        for r in (1, 2)
    ]
    wrong = "'judge.score' is not a metric"
    assert wrong in imported(tmp_path, rows, "--details").out
    done = imported(tmp_path, rows, "--metric-column", "judge_score=judge.score:1..10", "--details")
    assert done.code == 0
    assert wrong not in done.out


@pytest.mark.parametrize(
    ("own", "cap"), [("confirmed", "max_attempts"), ("accepted", "attempts_exhausted"), ("done", "max_passes")]
)
def test_words_for_the_end_of_a_loop_are_read(tmp_path, own, cap):
    rows = [
        {"id": q, "round": r, "answer": ("Rome", "Oslo")[q % 3 < r], "gold": "Oslo", "outcome": cap if q % 2 else own}
        for q in range(20)
        for r in range(1, 4 if q % 2 else 3)
    ]
    done = imported(tmp_path, rows)
    assert done.code == 0
    assert "10 stopped by themselves" in done.words


def test_the_calls_of_all_tools_are_no_answers(tmp_path):
    asked = imported(tmp_path, orders(), "--column", "answer=tool_calls")
    assert asked.code == 2
    assert asked.commands[0][-3] == "answer=tool_calls:submit_decision"
    assert "answer=tool_calls" not in asked.commands[0]
    assert "has the calls of all tools" in asked.err
    wrong = imported(tmp_path, orders(), "--column", "answer=tool_calls:submit")
    assert wrong.code == 2
    assert "there are: look_up, submit_decision" in wrong.error
    options = (
        "--column",
        "answer=tool_calls",
        "--answer-position",
        "tool:decision",
        "--column",
        "golds=expected_decision",
    )
    assert imported(tmp_path, orders(), *options).code == 0
    assert recording(tmp_path).column("em").shape == (24, 3)
