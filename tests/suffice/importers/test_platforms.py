"""Logs that platforms for evaluations export: ids of rows, objects with one gold answer, epochs, and lists of columns."""

from __future__ import annotations

import json

import pytest

from suffice.errors import DataError
from tests.suffice.importers.test_doubtful_orders import drawn
from tests.support.cli_tools import CITIES
from tests.support.logs import by_round, imported, offered, written


def rows(**more):
    return [
        {
            "question": f"Where is {q}?",
            "output": CITIES[(q + 2 - r) % 4],
            **{name: value(q, r) for name, value in more.items()},
        }
        for q in range(30)
        for r in (1, 2)
    ]


def test_rows_with_ids_of_their_own_are_told_apart_by_texts(tmp_path):
    made = rows(id=lambda q, r: f"{q}-{r}", attempt=lambda q, r: r, expected=lambda q, r: CITIES[q % 4])
    summary = imported(written(tmp_path, made))
    assert (summary.clusters, summary.by_round[-1].em) == (30, 1.0)
    for row in made:
        del row["attempt"]
    assert "--column question_id=question" in offered(written(tmp_path, made))


def test_ids_of_runs_name_no_questions(tmp_path):
    made = rows(run_id=lambda q, r: f"run{r}", round=lambda q, r: r, expected=lambda q, r: CITIES[q % 4])
    assert imported(written(tmp_path, made)).clusters == 30
    made = rows(run_id=lambda q, r: f"run{q}", round=lambda q, r: r, expected=lambda q, r: CITIES[q % 4])
    assert {item.ours: item.theirs for item in imported(written(tmp_path, made)).readings}["question_id"] == "run_id"


def test_the_only_field_of_a_reference_is_the_gold_answer(tmp_path):
    made = rows(qid=lambda q, r: q, round=lambda q, r: r, **{"reference.text": lambda q, r: CITIES[q % 4]})
    assert by_round(written(tmp_path / "log.csv", made)) == [0.0, 1.0]
    made = [{**row, "reference.page": row["round"]} for row in made]
    readings = imported(written(tmp_path / "log.csv", made)).readings
    assert "golds" not in {item.ours for item in readings}


def test_epochs_are_samples_unless_an_order_shows(tmp_path):
    made = rows(id=lambda q, r: q, epoch=lambda q, r: r, target=lambda q, r: CITIES[(q + q % 3) % 4])
    path = written(tmp_path, made)
    assert imported(path).samples
    (tmp_path / "log.import.json").unlink()
    made = [
        {**row, "output": row["target" if row["epoch"] == 2 and "3" not in row["question"] else "output"]}
        for row in made
    ]
    path = written(tmp_path, made)
    assert offered(path)[:2] == ["--samples", "--column round=epoch"]


def test_long_lists_of_a_document_are_columns(tmp_path):
    path = tmp_path / "log.json"
    columns = {"preds": [*CITIES] * 10, "golds": [[city] for city in CITIES] * 10}
    path.write_text(json.dumps(columns), "utf-8")
    with pytest.raises(DataError, match="preds, golds"):
        imported(path)
    path.write_text(json.dumps({name: values[:4] for name, values in columns.items()}), "utf-8")
    assert imported(path, columns={"golds": ""}, expected=["sample-list"]).rounds == 4


def test_equal_columns_are_no_successive_answers(tmp_path):
    made = [{"testdir": f"ex{q}", "testcase": f"ex{q}", "cost": q / 9} for q in range(30)]
    with pytest.raises(DataError) as error:
        imported(written(tmp_path, made))
    assert "testdir,testcase" not in str(error.value)


def test_outcomes_of_tests_are_rounds(tmp_path):
    made = [{"testcase": f"ex{q}", "tests_outcomes": [q % 2 == 0, True]} for q in range(30)]
    assert [item.scores for item in imported(written(tmp_path, made)).by_round] == [
        {"tests_outcome": 0.5},
        {"tests_outcome": 1.0},
    ]


def test_golds_in_objects_are_refused_with_a_way(tmp_path):
    made = rows(qid=lambda q, r: q, round=lambda q, r: r, references=lambda q, r: [{"text": "Oslo"}])
    with pytest.raises(DataError, match="--golds FILE") as error:
        imported(written(tmp_path, made))
    assert "'references': golds is [{'text': 'Oslo'}]" in str(error.value)
    assert imported(written(tmp_path, made), columns={"golds": ""}).rounds == 2


def test_a_chat_history_is_a_dialogue(tmp_path):
    said = [
        {
            "question": f"Where is {q}?",
            "gold": CITIES[q % 4],
            "chat_history": [
                {"role": role, "content": text}
                for r in (1, 2)
                for role, text in (("user", f"Again: where is {q}?"), ("assistant", CITIES[(q + 2 - r) % 4]))
            ],
        }
        for q in range(30)
    ]
    assert by_round(written(tmp_path, said)) == [0.0, 1.0]


def test_a_prediction_with_reasoning_is_no_panel(tmp_path):
    made = [
        {
            "example": {"question": f"Where is {q}?", "answer": CITIES[q % 4]},
            "prediction": {"reasoning": "x", "answer": CITIES[(q + q % 3) % 4]},
        }
        for q in range(30)
    ]
    with pytest.raises(DataError) as error:
        imported(written(tmp_path, made))
    assert "rounds=example" not in str(error.value)


def test_dialogues_and_lists_under_other_names_are_offered(tmp_path):
    def chat(q):
        said = [
            ("user", f"Where is {q}?"),
            ("assistant", CITIES[(q + 1) % 4]),
            ("user", "Sure?"),
            ("assistant", CITIES[q % 4]),
        ]
        return [{"role": role, "content": text} for role, text in said]

    path = written(tmp_path, [{"prompt_id": f"p{q}", "convo": chat(q), "gold": CITIES[q % 4]} for q in range(30)])
    assert offered(path) == ["--column rounds=convo"]
    assert by_round(path, columns={"rounds": "convo"}) == [0.0, 1.0]
    path = written(tmp_path, [{"question_id": q, "output_list": [f"print({q})", f"print({q + 1})"]} for q in range(30)])
    assert offered(path) == ["--column rounds=output_list"]


def test_counts_of_tokens_are_no_answers(tmp_path):
    made = rows(qid=lambda q, r: q, step=lambda q, r: r, **{"llm.token_count.completion": lambda q, r: r})
    for row in made:
        row["attributes.output.value"] = row.pop("output")
    assert offered(written(tmp_path / "log.csv", made))[0] == "--column answer=attributes.output.value"


def completions(q, gold, said):
    items = [{"index": r, "text": own, "token_ids": [r], "cumulative_logprob": -1.0} for r, own in enumerate(said)]
    return {"request_id": f"req-{q}", "prompt": f"Where is {q}?", "outputs": items, "extra": {"gt": gold}}


def test_completions_of_a_request_may_be_samples(tmp_path):
    path = written(tmp_path, [completions(*one) for one in drawn(shares=(0.6,) * 4)])
    assert offered(path)[:2] == ["--samples", "--expected sample-list"]
    summary = imported(path, samples=True)
    assert {item.ours: item.theirs for item in summary.readings}["question_id"] == "request_id"
    assert (summary.clusters, summary.samples) == (40, True)
    assert imported(path, columns={"rounds": "outputs"}).clusters == 40


def test_the_number_of_an_item_names_no_question(tmp_path):
    rows = [{**completions(*one), "request_id": None} for one in drawn()]
    assert imported(written(tmp_path, rows), columns={"rounds": "outputs"}).clusters == 40


def test_a_list_with_one_text_is_the_text(tmp_path):
    rows = [
        {"sample_id": f"dev.{q}", "created_at": f"2025-01-01T10:{q:02d}:0{r}", "data": {"sampled": [own]}}
        for q, _, said in drawn()
        for r, own in enumerate(said)
    ]
    summary = imported(written(tmp_path, rows), columns={"answer": "data.sampled"})
    assert {row.answer for row in summary.preview.rounds} <= {*CITIES}
    rows[5]["data"]["sampled"] = ["Oslo", "Lima"]
    summary = imported(written(tmp_path, rows), columns={"answer": "data.sampled"})
    assert any("since they are lists" in note for note in summary.notes)


def repeated(providers=("a", "b")):
    """Return an export of promptfoo in which each test was repeated, under a number of its own."""
    results = [
        {
            "id": f"{r}-{q}-{place}",
            "testIdx": 60 * r + q,
            "promptIdx": place,
            "provider": {"id": provider},
            "vars": {"question": f"Where is {q}?", "expected": gold},
            "response": {"output": {"answer": said[r]}, "tokenUsage": {"prompt": 100, "completion": 20}},
            "gradingResult": {"tokensUsed": {"completion": 0}},
        }
        for r in range(4)
        for q, gold, said in drawn(30, shares=(0.6,) * 4)
        for place, provider in enumerate(providers)
    ]
    return {"evalId": "e", "results": {"prompts": [{"provider": p} for p in providers], "results": results}}


def test_repeats_of_a_test_may_be_samples(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(repeated()))
    assert offered(path) == ["--column question_id=vars.question"]
    columns = {"question_id": "vars.question"}
    assert offered(path, columns=columns)[:2] == ["--column run=promptIdx", "--column run=promptIdx --samples"]
    summary = imported(path, columns={**columns, "run": "promptIdx"}, samples=True)
    assert (summary.clusters, summary.trajectories, summary.rounds) == (30, 60, 4)
    read = {item.ours: item.theirs for item in summary.readings}
    assert read["cost.generator.output_tokens"] == "response.tokenUsage.completion"
    assert "text" not in read


def test_repeats_with_one_provider_may_be_samples(tmp_path):
    path = tmp_path / "results.json"
    path.write_text(json.dumps(repeated(["a"])))
    assert offered(path) == [
        "--column question_id=vars.question",
        "--column question_id=vars.question --samples",
    ]
    assert imported(path, settle=lambda error: [*error.choices.values()][-1][0]).samples


def test_replies_of_an_api_as_text_are_unfolded(tmp_path):
    rows = []
    for q, gold, said in drawn():
        for r, own in enumerate(said):
            choice = {"index": 0, "message": {"role": "assistant", "content": own}, "finish_reason": "stop"}
            usage = {"prompt_tokens": 100, "completion_tokens": 9}
            reply = {"id": f"chatcmpl-{q}{r}", "object": "chat.completion", "choices": [choice], "usage": usage}
            rows.append({"question_id": f"s{q}", "round": r + 1, "expected": gold, "response": json.dumps(reply)})
    summary = imported(written(tmp_path / "log.csv", rows))
    read = {item.ours: item.theirs for item in summary.readings}
    assert read["answer"] == "response.answer"
    assert "cost.generator.output_tokens" in read
    assert summary.by_round[-1].em > 0.8
    rows[0]["response"] = json.dumps({"city": "Oslo"})
    assert "response" in {
        item.theirs for item in imported(written(tmp_path / "log.csv", rows), answer_position="whole").readings
    }
