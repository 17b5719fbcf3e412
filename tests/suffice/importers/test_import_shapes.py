"""`suffice import` of tables in any shape and file: what is guessed, what is asked, and what is left alone."""

from __future__ import annotations

import csv
import datetime as dt
import decimal
import gzip
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice import import_recording
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers import read_tabular
from suffice.recordings import read_recording
from tests.support.cli_tools import cli

IMPORTS = Path(__file__).resolve().parents[2] / "data" / "imports"
N = 30
CITIES = ("Oslo", "Lima", "Rome", "Cairo")


def said(q, r):
    """Return the answer of a round: right from round 2 on, but for each fifth question."""
    return CITIES[q % 4] if r > 1 and q % 5 else "Bern"


def long_rows(n=N, rounds=4):
    return [
        {"qid": f"q{q}", "attempt": r, "prediction": said(q, r), "target": CITIES[q % 4], "completion_tokens": 5}
        for q in range(n)
        for r in range(1, rounds + 1)
    ]


def wide_records(n=N, rounds=4):
    return [
        {
            "id": f"q{q}",
            "question": f"Where is tower {q}?",
            "gold": CITIES[q % 4],
            **{f"answer_{r}": said(q, r) for r in range(1, rounds + 1)},
            **{f"tokens_out_{r}": 5 for r in range(1, rounds + 1)},
        }
        for q in range(n)
    ]


def nested_records(n=N, rounds=4):
    return [
        {
            "task_id": f"q{q}",
            "query": f"Where is tower {q}?",
            "expected": CITIES[q % 4],
            "steps": [
                {"output": said(q, r), "usage": {"prompt_tokens": 100 * r, "completion_tokens": 5, "cached_tokens": 90}}
                for r in range(1, rounds + 1)
            ],
        }
        for q in range(n)
    ]


def write(path, records):
    """Write records in the form that a name ends in."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(records), path)
        return path
    with gzip.open(path, "wt") if path.suffix == ".gz" else path.open("w") as file:
        if name.endswith((".csv", ".tsv")):
            table = csv.DictWriter(file, list(records[0]), delimiter="\t" if name.endswith(".tsv") else ",")
            table.writeheader()
            table.writerows(records)
        elif name.endswith(".jsonl"):
            file.writelines(json.dumps(record) + "\n" for record in records)
        else:
            json.dump(records, file, indent=1)
    return path


def published(name):
    return [json.loads(line) for line in (IMPORTS / name).read_text("utf-8").splitlines()]


def lines(path, *records):
    return write(path, list(records))


@pytest.mark.parametrize(
    ("records", "ending"),
    [
        *((long_rows, ending) for ending in (".csv", ".csv.gz", ".tsv", ".json", ".json.gz", ".jsonl.gz", ".parquet")),
        *((wide_records, ending) for ending in (".csv", ".jsonl", ".parquet")),
        *((nested_records, ending) for ending in (".jsonl", ".parquet")),  # a table of text has no lists of objects
    ],
)
def test_any_shape_in_any_file_is_one_command_and_then_a_decision(records, ending, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    source = write(tmp_path / "logs" / f"run{ending}", records())
    done = cli("import", source, code=0)
    assert "next: suffice decide run.parquet" in done.out
    recording = read_recording("run.parquet")
    assert recording.shape == (N, 4)
    assert recording.index.tolist() == [1, 2, 3, 4]
    assert set(recording.ends.tolist()) == {"max_rounds"}
    expected = np.array([[float(said(q, r) != "Bern") for r in range(1, 5)] for q in range(N)])
    order = np.argsort([int(name[1:]) for name in recording.question_ids])
    np.testing.assert_array_equal(recording.column("em")[order], expected)
    np.testing.assert_array_equal(recording.column("cost.generator.output_tokens"), np.full((N, 4), 5.0))
    if ending == ".parquet":  # the recording of each shape is the same in every file
        decided = cli("decide", "run.parquet", "--max-loss", "0.2", code=0)
        assert "at most 2 rounds instead of 4" in decided.words


def test_cached_tokens_are_subtracted_from_input_only_if_included(tmp_path):
    nested = read_tabular(lines(tmp_path / "a.json", *nested_records(2)))
    costs = nested.trajectories[0].rounds[2].costs["generator"]
    assert (costs.uncached_tokens, costs.cached_tokens, costs.output_tokens) == (210, 90, 5)
    assert "usage.prompt_tokens - usage.cached_tokens" in [item.theirs for item in nested.readings]
    usage = {"input_tokens": 10, "cache_read_input_tokens": 90, "cache_creation_input_tokens": 7, "output_tokens": 3}
    record = {
        "id": "q",
        "steps": [{"answer": "x", "usage": usage, "latency_ms": 1500}, {"answer": "y", "usage": usage}],
    }
    rounds = read_tabular(lines(tmp_path / "b.json", record)).trajectories[0].rounds
    costs = rounds[0].costs["generator"]
    assert (costs.uncached_tokens, costs.cached_tokens, costs.output_tokens, costs.seconds) == (17, 90, 3, 1.5)
    assert costs.written_tokens == 7
    assert np.isnan(rounds[1].costs["generator"].seconds)


def test_question_costs_and_scores_are_not_given_to_rounds(tmp_path):
    record = {"id": "q", "prompt_tokens": 900, "score": 1.0, "drafts": ["a", "b", "c"]}
    (trajectory,) = read_tabular(lines(tmp_path / "a.json", record)).trajectories
    assert trajectory.rounds[0].costs == {}
    assert trajectory.metrics == ({}, {}, {})
    assert trajectory.extras[0] == {"prompt_tokens": 900, "score": 1.0}


@pytest.mark.parametrize(
    ("names", "answers"),
    [
        (("answer1", "answer2", "answer3"), 3),
        (("round_1_answer", "round_2_answer"), 2),
        (("attempt_1", "attempt_2", "attempt_3"), 3),
        (("draft 0", "draft 1"), 2),
        (("final_answer_round_1", "final_answer_round_2"), 2),
        (("responseStep1", "responseStep2"), 2),
    ],
)
def test_numbered_columns_are_rounds(names, answers, tmp_path):
    record = {"id": "q", "gold": "x", "p_50": 1, "p_90": 2, **{name: f"text {i}" for i, name in enumerate(names)}}
    (trajectory,) = read_tabular(lines(tmp_path / "a.json", record, {**record, "id": "r"})).trajectories[:1]
    assert [item.answer for item in trajectory.rounds] == [f"text {i}" for i in range(answers)]
    assert [item.index for item in trajectory.rounds] == [*range(1, answers + 1)]
    assert trajectory.extras[0] == {"p_50": 1, "p_90": 2}


def test_trailing_empty_cells_are_unrun_rounds_and_others_are_unknown(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("id,answer_1,answer_2,answer_3,correct_1,correct_2,correct_3\na,x,,z,0,,1\nb,x,y,,1,1,\nc,,,,,,\n")
    run = read_tabular(path)
    assert [[item.answer for item in one.rounds] for one in run.trajectories] == [["x", None, "z"], ["x", "y"]]
    assert [one.end for one in run.trajectories] == ["max_rounds", "rule"]
    assert run.trajectories[1].metrics == ({"correct": 1.0}, {"correct": 1.0})
    assert any("1 record without a round" in note for note in run.notes)


def test_lists_in_text_cells_are_read_as_json_or_python(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text('id,gold,answers,correct\na,x,"[""x"", null]","[1, 0]"\nb,y,"[\'z\', None]","[0, 0]"\n')
    run = read_tabular(path)
    assert [[item.answer for item in one.rounds] for one in run.trajectories] == [["x", None], ["z", None]]
    assert [one.metrics[0]["correct"] for one in run.trajectories] == [1.0, 0.0]


def test_assistant_messages_are_answers_and_tool_calls_are_not(tmp_path):
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]},
        {"role": "tool", "content": "a page"},
        {"role": "assistant", "content": "Rome"},
        {"role": "user", "content": "Sure?"},
        {"role": "assistant", "content": [{"type": "text", "text": "Oslo"}], "usage": {"completion_tokens": 2}},
    ]
    (trajectory,) = read_tabular(lines(tmp_path / "a.jsonl", {"conversation_id": 7, "messages": messages})).trajectories
    assert [item.answer for item in trajectory.rounds] == ["Rome", "Oslo"]
    assert (trajectory.question_id, trajectory.question) == ("7", "Where is it?")
    assert trajectory.rounds[1].costs["generator"].output_tokens == 2
    share = {
        "id": 1,
        "conversations": [{"from": "human", "value": "?"}, *({"from": "gpt", "value": text} for text in "ab")],
    }
    (trajectory,) = read_tabular(lines(tmp_path / "b.jsonl", share)).trajectories
    assert [item.answer for item in trajectory.rounds] == ["a", "b"]


def test_a_row_for_each_call_with_its_messages_is_a_long_table(tmp_path):
    rows = [
        {"trace_id": t, "step": s, "messages": [{"role": "user", "content": "?"}] * 2, "response": f"{t}{s}"}
        for t in "ab"
        for s in (1, 2)
    ]
    run = read_tabular(lines(tmp_path / "a.jsonl", *rows))
    assert [[item.answer for item in one.rounds] for one in run.trajectories] == [["a1", "a2"], ["b1", "b2"]]


def test_documents_contain_their_records_in_a_list_or_by_id(tmp_path):
    steps = [{"answer": "x"}, {"answer": "y"}]
    documents = (
        ({"model": "m", "results": [{"id": "a", "steps": steps}]}, "a"),
        ({"a": {"steps": steps}, "b": {"steps": steps}}, "a"),
        ({"a": steps, "b": steps}, "a"),
        ({"id": "a", "steps": steps}, "a"),
    )
    for number, (document, name) in enumerate(documents):
        path = tmp_path / f"{number}.json"
        path.write_text(json.dumps(document))
        first = read_tabular(path).trajectories[0]
        assert (first.question_id, [item.answer for item in first.rounds]) == (name, ["x", "y"])
    assert read_tabular(tmp_path / "0.json").depends == {"model": "m"}
    (tmp_path / "two.json").write_text(json.dumps({"left": [{"id": 1}], "right": [{"id": 2}]}))
    with pytest.raises(SchemaError, match="records"):
        read_tabular(tmp_path / "two.json")


def test_fields_of_the_question_do_not_pass_for_those_of_a_round(tmp_path):
    steps = [{"answer": "x"}, {"thought": "so"}, {"answer": "z"}]
    records = [{"id": i, "answer": gold, "steps": steps} for i, gold in enumerate("xyz")]
    run = read_tabular(lines(tmp_path / "a.json", *records))
    assert [item.answer for item in run.trajectories[0].rounds] == ["x", None, "z"]
    assert [one.golds for one in run.trajectories] == [("x",), ("y",), ("z",)]
    same = read_tabular(lines(tmp_path / "b.json", *({"id": i, "answer": "z", "steps": steps} for i in range(3))))
    assert [one.golds for one in same.trajectories] == [(), (), ()]  # the record's answer is the last one


def test_a_field_of_rounds_with_any_name_can_be_named(tmp_path):
    path = lines(
        tmp_path / "a.json",
        *({"id": i, "ring": [{"answer": "x"}, {"answer": "y"}], "steps": [{"n": 1}] * 3} for i in (1, 2)),
    )
    assert len(read_tabular(path).trajectories[0].rounds) == 3
    assert len(read_tabular(path, {"rounds": "ring"}).trajectories[0].rounds) == 2
    with pytest.raises(SchemaError, match="'rings'"):
        read_tabular(path, {"rounds": "rings"})
    both = lines(tmp_path / "b.json", {"id": 1, "steps": [{"answer": "x"}] * 2, "drafts": [{"answer": "x"}] * 2})
    with pytest.raises(UnsettledError, match="--column rounds=steps"):
        read_tabular(both)
    panel = lines(tmp_path / "c.json", {"id": 1, "target": "x", "answers": {"small": "x", "large": "y"}})
    (trajectory,) = read_tabular(panel, samples=True).trajectories  # without it, each system is a run
    assert [
        (item.answer, extra["member"]) for item, extra in zip(trajectory.rounds, trajectory.extras, strict=True)
    ] == [("x", "small"), ("y", "large")]


def test_lists_of_agents_are_runs_of_one_question(tmp_path):
    record = {"question": "1 + 1?", "gold": "2", "agents": [["3", "2"], ["2", "2"]]}
    run = read_tabular(lines(tmp_path / "a.jsonl", record, {**record, "question": "2?"}))
    assert [[item.answer for item in one.rounds] for one in run.trajectories[:2]] == [["3", "2"], ["2", "2"]]
    assert len({one.cluster for one in run.trajectories}) == 2
    with pytest.raises(DataError, match="of lists"):
        read_tabular(lines(tmp_path / "b.jsonl", {"id": 1, "steps": [["a", "b"], ["c"]]}), {"rounds": "steps"})


def test_several_files_are_one_run_with_clashing_ids_kept_apart(tmp_path):
    folder = tmp_path / "runs"
    (folder / "b").mkdir(parents=True)
    rows = [{"qid": q, "step": r, "output": f"{q}{r}"} for q in ("x", "y") for r in (1, 2)]
    write(folder / "a.jsonl", rows)
    write(folder / "b" / "c.jsonl", [*rows[:2], {"qid": "z", "step": 1, "output": "z1"}])
    (folder / "README.md").write_text("# Runs")
    run = read_tabular(folder)
    assert [one.question_id for one in run.trajectories] == ["x", "y", "x@b/c", "z"]
    assert [one.cluster for one in run.trajectories] == ["x", "y", "x", "z"]
    assert any("1 question with several runs" in note for note in run.notes)
    split = tmp_path / "split"
    split.mkdir()
    write(split / "round1.jsonl", [row for row in rows if row["step"] == 1])
    write(split / "round2.jsonl", [row for row in rows if row["step"] == 2])
    assert [len(one.rounds) for one in read_tabular(split).trajectories] == [2, 2]
    summary = import_recording(folder, out=tmp_path / "r.parquet")
    assert (summary.trajectories, summary.clusters) == (4, 3)


def test_runs_of_several_models_or_seeds_are_kept_apart(tmp_path):
    rows = [{"qid": "q", "seed": s, "step": r, "output": "x"} for s in (1, 2) for r in (1, 2)]
    run = read_tabular(lines(tmp_path / "a.jsonl", *rows))
    assert [(one.question_id, one.cluster, len(one.rounds)) for one in run.trajectories] == [
        ("q@1", "q", 2),
        ("q@2", "q", 2),
    ]
    assert any("qid@seed" in note for note in run.notes)


def test_unnumbered_rows_count_in_order_and_drafts_may_start_at_zero(tmp_path):
    rows = [{"qid": q, "output": f"{q}{r}"} for r in (1, 2) for q in ("x", "y")]
    run = read_tabular(lines(tmp_path / "a.jsonl", *rows))
    assert [[item.answer for item in one.rounds] for one in run.trajectories] == [["x1", "x2"], ["y1", "y2"]]
    assert any("in their order" in note for note in run.notes)
    zero = [{"qid": "x", "step": r, "output": "a"} for r in (0, 1)]
    run = read_tabular(lines(tmp_path / "b.jsonl", *zero))
    assert [item.index for item in run.trajectories[0].rounds] == [1, 2]
    assert any("'step' is read as round 1" in note for note in run.notes)
    assert read_tabular(lines(tmp_path / "b.jsonl", *zero), first_round=0).trajectories[0].rounds[0].index == 0


def test_several_columns_that_may_be_the_answer_are_asked_about(tmp_path):
    rows = [{"qid": "q", "step": r, "response": f"a{r}", "output": f"b{r}"} for r in (1, 2)]
    source = lines(tmp_path / "a.jsonl", *rows)
    error = cli("import", source, "-o", tmp_path / "r.parquet").error
    for part in ("'response' and 'output'", "--column answer=response", "--column answer=output"):
        assert part in error
    cli("import", source, "-o", tmp_path / "r.parquet", "--column", "answer=output", code=0)
    assert read_recording(tmp_path / "r.parquet").objects("answer")[0].tolist() == ["b1", "b2"]
    parsed = [{**row, "final_answer": "x"} for row in rows]
    (one,) = read_tabular(lines(tmp_path / "b.jsonl", *parsed)).trajectories
    assert (one.rounds[0].answer, one.rounds[0].text) == ("x", "a1")
    equal = [{"qid": "q", "step": r, "response": "a", "output": "a"} for r in (1, 2)]
    assert read_tabular(lines(tmp_path / "c.jsonl", *equal)).trajectories[0].rounds[0].answer == "a"


def test_an_answer_beside_a_prediction_is_asked_about_unless_it_is_named(tmp_path):
    rows = [{"id": "q", "step": r, "prediction": f"p{r}", "answer": "Oslo"} for r in (1, 2)]
    source = lines(tmp_path / "a.jsonl", *rows)
    with pytest.raises(UnsettledError, match="--column golds=answer"):
        read_tabular(source)
    (one,) = read_tabular(source, {"answer": "prediction", "golds": "answer"}).trajectories
    assert (one.golds, one.rounds[1].answer) == (("Oslo",), "p2")
    changing = [{**row, "answer": f"a{row['step']}"} for row in rows]
    source = lines(tmp_path / "b.jsonl", *changing)
    with pytest.raises(UnsettledError, match="--column answer=prediction"):
        read_tabular(source)
    assert read_tabular(source, {"answer": "answer"}).trajectories[0].rounds[0].answer == "a1"


def test_scores_are_metrics_in_the_unit_interval_and_signals_elsewhere(tmp_path):
    rows = [{"id": "q", "step": r, "answer": "x", "reward": r / 2, "rating": 7, "passed": r == 2} for r in (1, 2)]
    run = read_tabular(lines(tmp_path / "a.jsonl", *rows))
    (one,) = run.trajectories
    assert [metrics["reward"] for metrics in one.metrics] == [0.5, 1.0]
    assert [metrics["passed_score"] for metrics in one.metrics] == [0.0, 1.0]  # a signal has the name `passed`
    assert one.rounds[0].signals == {"rating": 7.0}
    outside = [{**row, "reward": 10 * row["reward"]} for row in rows]
    run = read_tabular(lines(tmp_path / "b.jsonl", *outside))
    assert run.trajectories[0].rounds[0].signals["reward"] == 5.0
    assert any(item.ours == "reward" and "signal of your own" in item.how for item in run.readings)
    left = read_tabular(lines(tmp_path / "a.jsonl", *rows), {"reward": ""})
    assert "reward" not in left.trajectories[0].metrics[0]


def test_gold_answers_in_brackets_are_one_text_where_answers_are_lists(tmp_path):
    record = {"id": "q", "gold": "[1, 2]", "answers": ["[1, 2]", "1"]}
    (one,) = read_tabular(lines(tmp_path / "a.jsonl", record)).trajectories
    assert [metrics["em"] for metrics in one.metrics] == [1.0, 0.0]


def test_gold_answers_of_another_file_are_joined_by_id_or_by_text(tmp_path):
    source = write(
        tmp_path / "run.jsonl",
        [{"id": f"q{q}", "question": f"Where is tower {q}?", "drafts": [said(q, 1), said(q, 2)]} for q in range(6)],
    )
    golds = [{"id": "q1", "answers": ["Lima"]}, {"id": "other", "question": "where is  tower 2", "answer": "Rome"}]
    write(tmp_path / "golds.jsonl", golds)
    done = cli("import", source, "-o", tmp_path / "r.parquet", "--golds", tmp_path / "golds.jsonl")
    assert "2 of 6 trajectories matched (1 by id and 1 by text); missing for 'q0', 'q3', 'q4', ..." in done.words
    recording = read_recording(tmp_path / "r.parquet")
    em = recording.column("em")
    assert em[recording.question_ids.index("q1")].tolist() == [0.0, 1.0]
    assert em[recording.question_ids.index("q2")].tolist() == [0.0, 1.0]
    assert np.isnan(em[recording.question_ids.index("q3")]).all()
    write(tmp_path / "none.csv", [{"id": "zz", "gold": "x"}])
    assert "'zz'" in cli("import", source, "-o", tmp_path / "s.parquet", "--golds", tmp_path / "none.csv").error
    write(tmp_path / "two.jsonl", [{"id": "q1", "gold": "x"}, {"id": "q1", "gold": "y"}])
    assert (
        "other gold answers"
        in cli("import", source, "-o", tmp_path / "s.parquet", "--golds", tmp_path / "two.jsonl").error
    )
    write(tmp_path / "bare.jsonl", [{"id": "q1"}])
    assert (
        "gold answers" in cli("import", source, "-o", tmp_path / "s.parquet", "--golds", tmp_path / "bare.jsonl").error
    )


def test_gold_answers_of_a_file_win_over_those_of_the_log(tmp_path):
    source = write(tmp_path / "run.jsonl", [{"id": "q", "gold": "Rome", "drafts": ["Rome", "Oslo"]}])
    write(tmp_path / "golds.csv", [{"id": "q", "gold": "Oslo"}])
    summary = import_recording(source, out=tmp_path / "r.parquet", golds=tmp_path / "golds.csv")
    assert [item.em for item in summary.by_round] == [0.0, 1.0]


def test_what_is_no_table_of_rounds_says_what_to_name(tmp_path):
    rows = [
        {"id": i, "question": "?", "answers": ["x"], "paragraphs": [{"title": "t", "text": "u"}] * 2} for i in (1, 2)
    ]
    error = cli("import", write(tmp_path / "questions.jsonl", rows), "-o", tmp_path / "r.parquet").error
    for part in ("one row for each 'id'", "--column question_id=COLUMN", "--column rounds=FIELD", "paragraphs"):
        assert part in error


def test_sampled_answers_as_somebody_published_them_need_one_option(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused = cli("import", IMPORTS / "verify_cot_date_chatgpt_10.jsonl")
    assert refused.code == 2
    assert "--samples" in refused.err
    done = cli("import", IMPORTS / "verify_cot_date_chatgpt_10.jsonl", "--samples", "--json").json
    assert (done["trajectories"], done["rounds"], done["ends"]) == (40, 10, {"max_rounds": 40})
    recording = read_recording("verify_cot_date_chatgpt_10.parquet")
    records = published("verify_cot_date_chatgpt_10.jsonl")
    for q, record in enumerate(records):
        assert recording.objects("answer")[q].tolist() == record["answers"]
        assert recording.column("correct")[q].tolist() == record["correct"]
    # Their own scorer and exact match agree where they compare the same texts.
    assert (recording.column("em") == recording.column("correct")).mean() > 0.95
    assert cli("decide", "verify_cot_date_chatgpt_10.parquet", "--max-loss", "0.2").code == 0


def test_agents_that_debate_as_somebody_published_them_need_one_command(tmp_path):
    run = read_tabular(IMPORTS / "dylan_math_complex_rounds.jsonl")
    records = published("dylan_math_complex_rounds.jsonl")
    expected = [(record["question"], answers) for record in records for answers in record["agents"]]
    assert [(one.question, [item.answer for item in one.rounds]) for one in run.trajectories] == expected
    assert len({one.cluster for one in run.trajectories}) == len({record["question"] for record in records})


def test_a_recording_is_named_after_its_source_without_the_ending(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "run.v2.jsonl.gz", long_rows(2))
    assert import_recording("run.v2.jsonl.gz").path == Path("run.v2.parquet")
    (tmp_path / "runs.may").mkdir()
    write(tmp_path / "runs.may" / "a.csv", long_rows(2))
    assert import_recording("runs.may").path == Path("runs.may.parquet")


def test_a_number_too_large_to_be_one_is_refused_with_its_line(tmp_path):
    rows = long_rows(4)
    rows[1]["attempt"] = 10**400
    path = tmp_path / "a.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    with pytest.raises(DataError, match="round is 1000"):
        read_tabular(path)


def test_times_decimals_and_bytes_of_parquet_are_read_as_json_has_them(tmp_path):
    rows = [
        {
            "id": f"q{q}",
            "round": r,
            "answer": b"Oslo" if r else b"Rome",
            "gold": "Oslo",
            "at": dt.datetime(2024, 1, 1, q, r),
            "day": dt.date(2024, 1, 1),
            "score": decimal.Decimal("0.5"),
            "took": dt.timedelta(seconds=2),
            "meta": {"at": dt.time(1, 2), "prices": [decimal.Decimal("1.25")]},
        }
        for q in range(3)
        for r in (1, 2)
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "t.parquet")
    summary = import_recording(tmp_path / "t.parquet", out=tmp_path / "o.parquet")
    recording = read_recording(summary.path)
    assert recording.answers.tolist() == [["Oslo", "Oslo"]] * 3
    assert recording.column("score").tolist() == [[0.5, 0.5]] * 3
    stored = json.dumps(recording.table.to_pylist(), default=repr)
    assert "2024-01-01T00:01:00" in stored
    assert "datetime" not in stored
    assert "Decimal" not in stored


def test_an_object_with_several_lists_is_no_list_of_rounds(tmp_path):
    path = tmp_path / "log.jsonl"
    turns = {"actions": ["x", "y"], "seen": ["a", "b"]}
    path.write_text(
        "".join(json.dumps({"id": i, "question": f"q{i}", "gold": "y", "turn": turns}) + "\n" for i in range(20))
    )
    with pytest.raises(SchemaError, match=r"rounds=turn\.actions"):
        import_recording(path, out=tmp_path / "a.parquet", columns={"rounds": "turn"})
    assert import_recording(path, out=tmp_path / "a.parquet", columns={"rounds": "turn.actions"}).rounds == 2
