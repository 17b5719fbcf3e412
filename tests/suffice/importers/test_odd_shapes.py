"""Logs in shapes of their own: heads of replies, critics, harnesses, lists, words of graders, and gold answers by other names."""

from __future__ import annotations

import json

import pytest

from suffice.errors import DataError, SufficeError, UnsettledError
from suffice.importers.answers.answer_or_gold import refuse_gold_as_answer
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from tests.support.cli_tools import CITIES
from tests.support.logs import answer, asked, by_round, imported, offered, written


def test_single_outputs_are_replies_with_heads(tmp_path):
    reply = "[[ ## reasoning ## ]]\nPage {} of {}.\n\n[[ ## answer ## ]]\n{}\n\n[[ ## completed ## ]]"
    records = [{"history": [{"outputs": [reply.format(q, r, answer(q, r))]} for r in range(3)]} for q in range(60)]
    path = written(tmp_path, records)
    assert imported(path).preview.rounds[0].answer in CITIES


def test_lists_of_one_document_are_offered_as_rounds(tmp_path):
    document = {
        "id": 1,
        "gold": "Oslo",
        "marks": [{"by": "Ann"}],
        "calls": [{"answer": answer(0, r)} for r in range(3)],
    }
    path = tmp_path / "log.json"
    path.write_text(json.dumps(document))
    assert "--column rounds=calls" in offered(path, "which has the rounds")
    assert imported(path, columns={"rounds": "calls"}).rounds == 3
    path.write_text(json.dumps({**document, **{name: [{"by": "Ann"}] for name in "abcd"}}))
    with pytest.raises(DataError, match="names the one"):
        imported(path)


@pytest.mark.parametrize("name", ["is_success", "passing"])
def test_other_names_of_success_are_metrics(tmp_path, name):
    rows = [{"id": q, "trial": r, "answer": answer(q, r), name: r > 1} for q in range(9) for r in range(3)]
    assert imported(written(tmp_path, rows)).by_round[-1].scores == {name: 1.0}


def test_a_critic_is_no_run(tmp_path):
    said = [{"agent": ("writer", "critic")[i % 2], "content": f"Text {i}"} for i in range(6)]
    path = written(tmp_path, [{"id": q, "conversation": said} for q in range(9)])
    assert offered(path) == ["--where agent=writer"]
    panel = [{"agent": f"agent_{i}", "round": 1, "content": CITIES[i]} for i in range(3)]
    assert imported(written(tmp_path, [{"id": q, "conversation": panel} for q in range(9)])).trajectories == 27


def test_inputs_of_tools_are_doubted_as_answers(tmp_path):
    steps = [{"action": ("search", "look", "finish")[r], "action_input": CITIES[r]} for r in range(3)]
    path = written(tmp_path, [{"id": q, "gold": "Rome", "steps": steps} for q in range(20)])
    notes = imported(path, columns={"answer": "action_input"}).notes
    assert any("differ in 'action'" in note for note in notes)


def test_what_a_user_asks_is_no_round(tmp_path):
    path = written(tmp_path, [{"id": q, "turns": [f"Where is {q}?", f"And {q}?"]} for q in range(9)])
    assert "nothing to stop" in asked(path).question
    assert imported(path, columns={"rounds": "turns"}).rounds == 2


def test_rounds_without_any_answer_are_asked_about(tmp_path):
    rounds = [[{"consensus": str(q + r), "votes": [str(r), str(q)]} for r in range(3)] for q in range(9)]
    path = written(tmp_path, [{"rounds": own} for own in rounds])
    assert offered(path) == ["--column answer=consensus", "--column answer=votes", "--column answer="]


def test_many_answers_make_a_short_question(tmp_path):
    path = written(tmp_path, [{f"system{c}_x": {"answer": CITIES[i % 4] + c} for i, c in enumerate("abcdefghij")}] * 3)
    error = asked(path)
    assert len(error.choices) == 6
    assert "4 more" in error.question


def test_a_doubt_names_its_place(tmp_path):
    texts = [("Oslo", None), ("Oslo", None), (None, "late"), (None, "slow")]
    rows = [Record(f"f, line {i}", "f", i, {"answer": a, "reply": b}) for i, (a, b) in enumerate(texts)]
    with pytest.raises(UnsettledError, match="line 0 has"):
        refuse_gold_as_answer(TableColumns(rows), [1, 1, 2, 2], "answer", None, ["reply"])


def test_a_critic_in_rows_is_asked_about(tmp_path):
    said = [(r, agent, f"{agent} {r}") for r in (1, 2, 3) for agent in ("solver", "critic")]
    rows = [{"id": q, "round": r, "agent": agent, "content": text} for q in range(9) for r, agent, text in said]
    path = written(tmp_path, rows)
    assert offered(path) == ["--where agent=solver"]
    assert imported(path, where={"agent": "solver"}).trajectories == 9
    assert imported(path, columns={"run": "agent"}).trajectories == 18


def test_a_score_that_golds_contradict_is_noted(tmp_path):
    rows = [
        {"id": q, "step": r, "answer": f"{q}.1{r}", "gold": q + 0.125, "correct": 1} for q in range(9) for r in range(3)
    ]
    assert any("--metric correct" in note for note in imported(written(tmp_path, rows)).notes)


def test_lists_of_messages_are_no_question(tmp_path):
    asked = [{"role": "user", "content": "Where?"}]
    rows = [{"id": q, "prompt": asked, "answer": answer(q, r), "gold": "Rome"} for q in range(9) for r in range(3)]
    assert imported(written(tmp_path, rows)).rounds == 3


def test_a_harness_with_several_replies_is_asked_about(tmp_path):
    records = [{"doc_id": q, "target": "Rome", "resps": [[f"So {answer(q, r)}." for r in range(4)]]} for q in range(20)]
    replies = [[answer(q, r) for r in range(4)] for q in range(20)]
    path = written(tmp_path, [{**one, "filtered_resps": own} for one, own in zip(records, replies, strict=True)])
    assert offered(path)[0] == "--samples"
    assert imported(path, samples=True).preview.rounds[0].answer in CITIES


@pytest.mark.parametrize(("content", "n"), [({"q1": ["Oslo"], "q2": ["Lima"]}, 2), ({"q1": ["Oslo"], "q2": []}, 1)])
def test_lists_of_one_answer_are_answers_by_id(tmp_path, content, n):
    (tmp_path / "run").mkdir()
    for r in (1, 2):
        (tmp_path / "run" / f"iter{r}.json").write_text(json.dumps(content))
    assert imported(tmp_path / "run").by_round[0].answered == n / 2


def test_empty_lists_are_no_answers(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"errors": [], "warnings": []}))
    with pytest.raises(SufficeError):
        imported(path)


def test_gold_answers_in_brackets_are_noticed(tmp_path):
    rows = [
        {"id": q, "step": r, "answer": f"[('{answer(q, 2 - r)}',)]", "wanted": f"[('{CITIES[q % 4]}',)]"}
        for q in range(24)
        for r in range(3)
    ]
    assert offered(written(tmp_path, rows))[0] == "--column golds=wanted"


def test_gold_answers_called_after_the_answers(tmp_path):
    rows = [
        {"id": q, "step": r, "spans": answer(q, r), "gold_spans": CITIES[q % 4], "text": f"Tale {q}"}
        for q in range(60)
        for r in range(3)
    ]
    path = written(tmp_path, rows)
    assert offered(path) == ["--column answer=spans --column golds=gold_spans"]
    assert by_round(path, columns={"answer": "spans"})[-1] == 1.0


def test_what_a_user_says_in_each_row_is_doubted(tmp_path):
    rows = [
        {"session_id": s, "turn": t, "user_message": f"Where is {s} {t}?", "response": answer(s, t)}
        for s in range(9)
        for t in range(3)
    ]
    path = written(tmp_path, rows)
    assert offered(path) == ["--column question_id=session_id"]
    assert imported(path, columns={"question_id": "session_id"}).rounds == 3
    told = written(tmp_path, [{**row, "gold": CITIES[row["session_id"] % 4]} for row in rows])
    assert imported(told).rounds == 3


def test_numbers_of_tokens_are_no_setting(tmp_path):
    rows = [{"id": q, "answer": answer(q, r), "totalTokens": (9, 7, 8)[r]} for q in range(60) for r in range(3)]
    assert imported(written(tmp_path, rows)).rounds == 3


def test_tables_without_a_header_are_refused(tmp_path):
    path = tmp_path / "log.tsv"
    path.write_text("q1\t1\tOslo\t1\nq1\t2\tRome\t0\n")
    with pytest.raises(DataError, match="no header"):
        imported(path)


def test_results_within_results_are_the_records(tmp_path):
    rows = [
        {
            "id": f"{i}",
            "provider": {"id": f"p{i % 2}"},
            "response": {"output": CITIES[i % 4], "tokenUsage": {"completion": 9}},
        }
        for i in range(40)
    ]
    path = tmp_path / "out.json"
    path.write_text(json.dumps({"evalId": "e", "results": {"results": rows, "stats": {"n": 1}}, "config": {"a": 1}}))
    with pytest.raises(SufficeError, match="one row for"):
        imported(path)


def test_lists_of_texts_in_rows_may_be_answers(tmp_path):
    path = written(tmp_path, [{"id": q, "sampled": [answer(q, r)]} for q in range(20) for r in range(3)])
    assert "--column answer=sampled" in offered(path)
    assert imported(path, columns={"answer": "sampled"}).by_round[0].answered == 1.0


def test_lists_in_any_order_are_asked_about(tmp_path):
    rows = [
        {"id": q, "step": r, "answer": str(["a", CITIES[q % 4]][:: 1 if r else -1]), "gold": str(["a", CITIES[q % 4]])}
        for q in range(20)
        for r in range(3)
    ]
    path = written(tmp_path, rows)
    assert offered(path) == ["--set normalizer=literal", "--set normalizer=unordered"]
    assert by_round(path, normalizer="unordered") == [1.0, 1.0, 1.0]


def test_lists_of_golds_as_python_prints_them(tmp_path):
    rows = [
        {"id": q, "preds": str([answer(q, r) for r in range(3)]), "golds": str([CITIES[q % 4], "x"])} for q in range(9)
    ]
    assert by_round(written(tmp_path / "frame.csv", rows))[-1] == 1.0


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("grade", ("INCORRECT", "CORRECT")),
        *(("verdict", own) for own in (("not_attempted", "correct"), ("WRONG_ANSWER", "Accepted"))),
    ],
)
def test_words_of_a_grader_are_a_metric(tmp_path, name, words):
    rows = [{"id": q, "attempt": r, "answer": f"{q} {r}", name: words[r]} for q in range(9) for r in range(2)]
    assert by_round(written(tmp_path, rows)) == [0.0, 1.0]


@pytest.mark.parametrize("gold", ["ideal", "reference_outputs"])
def test_gold_answers_are_no_rounds(tmp_path, gold):
    rows = [{"no": q % 20, "completion": answer(q % 20, q // 20), gold: CITIES[q % 4]} for q in range(60)]
    with pytest.raises(SufficeError) as error:
        imported(written(tmp_path, rows))
    assert not any("rounds=" in option for option in getattr(error.value, "choices", ()))


def test_a_trace_with_texts_may_list_rounds(tmp_path):
    records = [
        {"qid": q, "answer": "Rome", "trace": [{"cont": f"So {answer(q, r)}, {q}."} for r in range(3)]}
        for q in range(20)
    ]
    assert "--column rounds=trace" in offered(written(tmp_path, records))
