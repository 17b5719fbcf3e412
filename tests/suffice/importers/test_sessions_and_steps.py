"""Sessions, sub-questions, steps of agents, people in a chat, and tools that count as calls."""

from __future__ import annotations

import pytest

from suffice import read_recording
from suffice.errors import DataError, UnsettledError
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import offered, paired, recorded, written

N, ROUNDS = 24, 3


def said(q, r):
    return CITIES[(q + (r < q % 4)) % 4]


def gateway(prompt, *, name="Helicone-Session-Id"):
    return [
        {
            "request_id": f"{q}-{r}",
            "properties": {name: f"s-{q}", "gold": CITIES[q % 4]},
            "request_body": {"messages": [{"role": "user", "content": prompt(q, r)}]},
            "response_body": {"choices": [{"message": {"content": said(q, r)}}], "usage": {"prompt_tokens": 9}},
        }
        for q in range(N)
        for r in range(ROUNDS)
    ]


@pytest.mark.parametrize(("name", "different"), paired(["Helicone-Session-Id", "chatThread", "lf_trace_id"], [2, 3]))
def test_a_session_whose_prompt_changes_is_the_question(tmp_path, name, different):
    rows = gateway(lambda q, r: f"Where is tower {q}?\n\nContext: page {r % different}", name=name)
    summary, recording = recorded(tmp_path, rows)
    assert (summary.clusters, summary.rounds) == (N, ROUNDS)
    assert recording.column("em").tolist() == [[said(q, r) == CITIES[q % 4] for r in range(ROUNDS)] for q in range(N)]


@pytest.mark.parametrize("name", ["Helicone-Session-Id", "lf_trace_id"])
def test_a_session_of_several_questions_is_no_question(tmp_path, name):
    words = ["amber", "basin", "cedar", "delta", "ember", "fjord", "grove", "heath"]
    rows = gateway(lambda q, r: f"Where {words[(q * 3 + r) % 8]} {q * 3 + r}?", name=name)
    with pytest.raises(DataError, match="nothing to stop"):
        recorded(tmp_path, rows)


def parts(q, field):
    own = [{field: f"Part {r} of tower {q}?", "answer": said(q, r)} for r in range(2)]
    return {"query": f"Where is tower {q}?", "sub_qas": own, "response": said(q, 3), "reference": CITIES[q % 4]}


@pytest.mark.parametrize("field", ["sub_question", "question", "subQuery"])
def test_items_with_a_question_of_their_own_are_asked_about(tmp_path, field):
    records = [parts(q, field) for q in range(N)]
    assert offered(written(tmp_path, records), match="question of its") == ["--column rounds=sub_qas"]
    assert recorded(tmp_path, records, columns={"rounds": "sub_qas"})[0].rounds == 2


def test_items_that_repeat_the_question_are_rounds(tmp_path):
    records = [parts(q, "question") for q in range(N)]
    for record in records:
        for item in record["sub_qas"]:
            item["question"] = record["query"]
    assert recorded(tmp_path, records)[0].rounds == 2


def react(q, queries, tools):
    steps = {f"tool_name_{r}": tools[q * (r + 1) // 2 % len(tools)] for r in range(ROUNDS)}
    steps |= {f"tool_args_{r}": {"query": f"page {(q + r) % queries}"} for r in range(ROUNDS)}
    return {"example": {"question": f"Where is tower {q}?"}, "steps": steps, "answer": said(q, 3), "score": 1.0}


@pytest.mark.parametrize(("queries", "tools"), [(3, ["search"]), (12, ["search"]), (24, ["search", "finish"])])
def test_a_numbered_step_is_neither_question_nor_answer(tmp_path, queries, tools):
    with pytest.raises(DataError) as error:
        recorded(tmp_path, [react(q, queries, tools) for q in range(N)])
    assert not isinstance(error.value, UnsettledError)


def chat(q, r, **speaker):
    text = f"*Answer:* {said(q, r)}\n_from a page_" if r else f"Where is tower {q}?"
    return {
        "type": "message",
        **speaker,
        "text": text,
        "ts": f"17724{q:02}{r}00.000100",
        "thread_ts": f"17724{q:02}000.000100",
    }


BOT, PERSON = {"subtype": "bot_message", "bot_id": "B07"}, {"user": "U1"}


def test_what_a_person_asks_in_a_chat_is_no_round(tmp_path):
    path = written(tmp_path, [chat(q, r, **(BOT if r else PERSON)) for q in range(N) for r in range(4)])
    refused = cli("import", path, "-o", tmp_path / "log.parquet", "--yes", code=2)
    asked = cli(*refused.command("--where subtype=bot_message"))
    cli(*asked.command("marker:Answer:"), code=0)
    recording = read_recording(tmp_path / "log.parquet")
    assert recording.answers.tolist() == [[said(q, r) for r in range(1, 4)] for q in range(N)]
    assert "cost.generator.calls" not in recording.table.column_names  # each round is one call


@pytest.mark.parametrize("people", [("U1",), ("U1", "U2", "U3"), ("",), (["U1", "U2"],)])
def test_another_user_who_asks_first_is_noticed(tmp_path, people):
    rows = [chat(q, r, user="U07" if r else people[q % len(people)]) for q in range(N) for r in range(4)]
    assert offered(written(tmp_path, rows), match="no round") == ["--where user=U07", "--column round="]
    assert recorded(tmp_path, rows, where={"user": "U07"}, answer_position="marker:Answer:")[0].rounds == 3


def test_a_user_of_all_rows_is_no_speaker(tmp_path):
    rows = [
        {"id": q, "user": f"U{q % 3}", "answer": said(q, r), "gold": CITIES[q % 4]} for q in range(N) for r in range(4)
    ]
    assert recorded(tmp_path, rows)[0].rounds == 4


def test_whole_replies_before_the_first_marker_are_counted(tmp_path):
    rows = [chat(q, r, **(BOT if r else PERSON)) for q in range(N) for r in range(4)]
    summary, _ = recorded(tmp_path, rows, columns={"round": ""}, answer_position="marker:Answer:")
    (note,) = [note for note in summary.notes if "marker:Answer:" in note]
    assert f"{N} of {4 * N} replies" in note
    assert not any("merged" in note for note in summary.notes)


def spans(q, kind="tool", usage=None):
    own = []
    for r in range(ROUNDS):
        tokens = {"prompt_tokens": 200 + r, "completion_tokens": 8}
        own += [{"id": f"t{q}{r}", "name": "look up", "type": kind, "output": {"docs": ["d1"]}, "usage": usage}]
        own += [{"id": f"l{q}{r}", "name": "reply", "type": "llm", "output": {"output": said(q, r)}, "usage": tokens}]
    return {"id": q, "input": {"question": f"Where is tower {q}?"}, "expected": CITIES[q % 4], "spans": own}


@pytest.mark.parametrize(
    ("kind", "usage", "calls"), [("tool", None, 1), ("llm", None, 2), ("tool", {"prompt_tokens": 5}, 2)]
)
def test_spans_of_tools_without_tokens_are_no_calls(tmp_path, kind, usage, calls):
    records = [spans(q, kind, usage) for q in range(N)]
    _, recording = recorded(tmp_path, records, columns={"rounds": "spans"}, where={"name": "reply"})
    assert recording.column("cost.generator.calls").tolist() == [[calls] * ROUNDS] * N


def test_keys_that_are_absent_are_no_merged_cells(tmp_path):
    once = [{"id": q, "gold": CITIES[q % 4]} for q in range(N)]
    rows = [{**(once[q] if not r else {}), "round": r, "answer": said(q, r)} for q in range(N) for r in range(3)]
    with pytest.raises(DataError, match="id is empty"):
        recorded(tmp_path, rows)
