"""Logs that misled the importer when a new user tried it with shapes of their own."""

from __future__ import annotations

import json

import pytest

from suffice import import_recording
from suffice.errors import UnsettledError
from suffice.importers.answer_or_gold import refuse_gold_as_answer
from suffice.importers.records import Record
from suffice.importers.table_columns import TableColumns
from tests.support.cli_tools import CITIES


def written(tmp_path, records):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records), "utf-8")
    return path


def imported(path, **options):
    path.with_suffix(".import.json").unlink(missing_ok=True)
    return import_recording(path, out=path.with_suffix(".parquet"), **options)


def choices(path, **options):
    with pytest.raises(UnsettledError) as error:
        imported(path, **options)
    return error.value


def answer(q, r):
    return CITIES[(q + (r < 2)) % 4] if q % 3 else CITIES[q % 4]


def test_single_outputs_are_replies_with_heads(tmp_path):
    reply = "[[ ## reasoning ## ]]\nPage {} of {}.\n\n[[ ## answer ## ]]\n{}\n\n[[ ## completed ## ]]"
    records = [{"history": [{"outputs": [reply.format(q, r, answer(q, r))]} for r in range(3)]} for q in range(60)]
    path = written(tmp_path, records)
    position = next(iter(choices(path).choices.values()))[0]
    assert imported(path, answer_position=position).preview.rounds[0].answer in CITIES


@pytest.mark.parametrize(("name", "metric"), [("is_success", "is_success"), ("passing", "passing")])
def test_other_names_of_success_are_metrics(tmp_path, name, metric):
    rows = [{"id": q, "trial": r, "answer": answer(q, r), name: r > 1} for q in range(9) for r in range(3)]
    assert imported(written(tmp_path, rows)).by_round[-1].scores == {metric: 1.0}


def test_a_critic_is_no_run(tmp_path):
    said = [{"agent": ("writer", "critic")[i % 2], "content": f"Text {i}"} for i in range(6)]
    path = written(tmp_path, [{"id": q, "conversation": said} for q in range(9)])
    assert [*choices(path).choices] == ["--where agent=writer"]
    panel = [{"agent": f"agent_{i}", "round": 1, "content": CITIES[i]} for i in range(3)]
    assert imported(written(tmp_path, [{"id": q, "conversation": panel} for q in range(9)])).trajectories == 27


def test_inputs_of_tools_are_doubted_as_answers(tmp_path):
    steps = [{"action": ("search", "look", "finish")[r], "action_input": CITIES[r]} for r in range(3)]
    path = written(tmp_path, [{"id": q, "gold": "Rome", "steps": steps} for q in range(20)])
    notes = imported(path, columns={"answer": "action_input"}).notes
    assert any("differ in 'action'" in note for note in notes)


def test_what_a_user_asks_is_no_round(tmp_path):
    path = written(tmp_path, [{"id": q, "turns": [f"Where is {q}?", f"And {q}?"]} for q in range(9)])
    assert "nothing to stop" in choices(path).question
    assert imported(path, columns={"rounds": "turns"}).rounds == 2


def test_rounds_without_any_answer_are_asked_about(tmp_path):
    rounds = [[{"consensus": str(q + r), "votes": [str(r), str(q)]} for r in range(3)] for q in range(9)]
    path = written(tmp_path, [{"rounds": own} for own in rounds])
    options = ["--column answer=consensus", "--column answer=votes", "--column answer="]
    assert [*choices(path).choices] == options


def test_many_answers_make_a_short_question(tmp_path):
    path = written(tmp_path, [{f"system{c}_x": {"answer": CITIES[i % 4] + c} for i, c in enumerate("abcdefghij")}] * 3)
    error = choices(path)
    assert len(error.choices) == 6
    assert "4 more" in error.question


def test_a_doubt_names_its_place(tmp_path):
    texts = [("Oslo", None), ("Oslo", None), (None, "late"), (None, "slow")]
    rows = [Record(f"f, line {i}", "f", i, {"answer": a, "reply": b}) for i, (a, b) in enumerate(texts)]
    with pytest.raises(UnsettledError, match="line 0 has"):
        refuse_gold_as_answer(TableColumns(rows), [1, 1, 2, 2], "answer", None, ["reply"])


def test_a_critic_in_rows_is_asked_about(tmp_path):
    said = [(r, agent, f"{agent} {r}") for r in range(3) for agent in ("solver", "critic")]
    rows = [{"id": q, "round": r, "agent": agent, "content": text} for q in range(9) for r, agent, text in said]
    path = written(tmp_path, rows)
    assert [*choices(path).choices] == ["--where agent=solver"]
    assert imported(path, where={"agent": "solver"}).trajectories == 9
    assert imported(path, columns={"run": "agent"}).trajectories == 18


def test_a_score_that_golds_contradict_is_noted(tmp_path):
    rows = [
        {"id": q, "step": r, "answer": f"{q}.1{r}", "gold": q + 0.125, "correct": 1} for q in range(9) for r in range(3)
    ]
    assert any("--metric correct" in note for note in imported(written(tmp_path, rows)).notes)
