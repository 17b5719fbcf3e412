"""Another model, system or file is another run of a question, never another round, unless an order or a panel is declared."""

from __future__ import annotations

import json

import pytest

from suffice import import_recording, read_recording
from suffice.errors import DataError, NotFoundError, SchemaError, UnsettledError
from suffice.evaluation.replay.panels import panel_members
from suffice.importers.files.recognise import data_files
from suffice.importers.tables import parted_run, table_parts
from suffice.importers.tables.table_source import TableOptions
from suffice.importers.tables.tabular import read_tabular
from tests.support.cli_tools import cli
from tests.support.logs import imported, written

MODELS = ("gpt-4o", "haiku", "llama-3.1")


def one_answer_each(*, n=30, **more):
    return [{"id": q, "question": f"Question {q}?", "gold": "x", "answer": f"a{q}", **more} for q in range(n)]


def systems(folder, *, labelled=True):
    for model in MODELS:
        written(folder / f"{model}.jsonl", one_answer_each(**({"model": model} if labelled else {})))
    return folder


def lengths(run):
    return {len(item.rounds) for item in run.trajectories}


@pytest.mark.parametrize("labelled", [True, False])
def test_three_files_of_three_systems_are_three_runs_of_one_round(tmp_path, labelled):
    done = cli(
        "import", systems(tmp_path / "systems", labelled=labelled), "-o", tmp_path / "r.parquet", "--yes", "--json"
    )
    assert done.code == 0, done
    assert [done.json[name] for name in ("clusters", "trajectories", "rounds")] == [30, 90, 1]
    (note,) = [note for note in done.json["notes"] if "is a run of its own" in note]
    for part in ("--samples", "--column file="):
        assert part in note
    recording = read_recording(tmp_path / "r.parquet")
    name = "model" if labelled else "run_file"
    assert {*recording.objects(name)[:, 0]} == {*MODELS}
    assert done.json["loops"] == [f"{name}={model}" for model in MODELS]
    refused = cli("decide", tmp_path / "r.parquet", "-o", tmp_path / "d.json")
    assert "a single round" in refused.error
    assert "--where" not in refused.error


def test_systems_are_a_panel_where_samples_are_declared(tmp_path):
    summary = import_recording(systems(tmp_path / "systems"), out=tmp_path / "r.parquet", samples=True)
    assert (summary.trajectories, summary.rounds, summary.loops) == (30, 3, ())
    recording = read_recording(tmp_path / "r.parquet")
    assert panel_members(recording)[0].tolist() == [*MODELS]


def test_systems_are_attempts_where_the_user_leaves_them_out_of_account(tmp_path):
    run = read_tabular(systems(tmp_path / "systems"), {"model": "", "file": ""})
    assert lengths(run) == {3}
    assert not any("model" in extra for item in run.trajectories for extra in item.extras)


def test_counted_attempts_are_rounds_labelled_with_their_model(tmp_path):
    rows = [{**row, "attempt": r, "model": m} for row in one_answer_each() for r, m in ((1, "small"), (2, "large"))]
    summary = import_recording(written(tmp_path / "a.jsonl", rows), out=tmp_path / "r.parquet")
    assert (summary.trajectories, summary.rounds, summary.loops) == (30, 2, ())
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.objects("model")[0].tolist() == ["small", "large"]


@pytest.mark.parametrize("name", ["model", "system", "temperature", "config", "engine", "deployment_name", "modelName"])
def test_rows_without_a_number_are_rounds_of_their_own_model_or_system(tmp_path, name):
    values = (0.0, 0.7) if name == "temperature" else ("one", "two")
    rows = [
        {**row, name: value, "answer": f"{value}{r}"}
        for row in one_answer_each()
        for value in values
        for r in (1, 2, 3)
    ]
    run = read_tabular(written(tmp_path / "a.jsonl", rows))
    assert (len(run.trajectories), lengths(run)) == (60, {3})
    assert [item.answer for item in run.trajectories[1].rounds] == [f"{values[1]}{r}" for r in (1, 2, 3)]
    assert len({item.cluster for item in run.trajectories}) == 30


def test_varying_system_prompts_and_call_ids_do_not_separate_runs(tmp_path):
    rows = [
        {**row, "system": f"Known so far: {row['id']}, {r}", "run_id": f"{row['id']}-{r}", "response.model": "m"}
        for row in one_answer_each()
        for r in (1, 2, 3)
    ]
    assert lengths(read_tabular(written(tmp_path / "a.jsonl", rows))) == {3}


def test_answers_listed_by_model_are_runs_and_attempts_are_not(tmp_path):
    items = [{"model": "small", "answer": "x"}, {"model": "large", "answer": "y"}]
    records = [{"id": q, "gold": "x", "answers": items} for q in range(10)]
    run = read_tabular(written(tmp_path / "a.jsonl", records))
    assert (len(run.trajectories), lengths(run)) == (20, {1})
    assert run.trajectories[1].question_id == "0@large"
    assert lengths(read_tabular(tmp_path / "a.jsonl", samples=True)) == {2}
    assert lengths(read_tabular(tmp_path / "a.jsonl", {"rounds": "answers"})) == {2}
    attempts = [{"id": q, "gold": "x", "attempts": items} for q in range(10)]
    assert lengths(read_tabular(written(tmp_path / "b.jsonl", attempts))) == {2}


def test_systems_name_runs_and_numbered_names_are_ordered_rounds(tmp_path):
    panel = [{"id": q, "gold": "x", "answers": {"small": "x", "large": "y"}} for q in range(5)]
    run = read_tabular(written(tmp_path / "a.jsonl", panel))
    assert {item.question_id for item in run.trajectories} >= {"0@small", "0@large"}
    assert lengths(run) == {1}
    numbered = [
        {"id": q, "gold": "x", "answers": {f"round_{r}": f"a{r}" for r in (1, 10, 11, *range(2, 10))}} for q in (1, 2)
    ]
    run = read_tabular(written(tmp_path / "b.jsonl", numbered))
    assert [item.answer for item in run.trajectories[0].rounds] == [f"a{r}" for r in range(1, 12)]


@pytest.mark.parametrize("name", ["round_{}", "hotpot.iter-{}", "{}"])
def test_files_named_after_rounds_are_rounds_in_numeric_order(tmp_path, name):
    for r in range(1, 13):
        written(
            tmp_path / "depth" / f"{name.format(r)}.jsonl", [{**row, "answer": f"ans{r}"} for row in one_answer_each()]
        )
    summary = import_recording(tmp_path / "depth", out=tmp_path / "r.parquet")
    assert (summary.trajectories, summary.rounds) == (30, 12)
    answers = read_recording(tmp_path / "r.parquet").objects("answer")[7].tolist()
    assert answers == [f"ans{r}" for r in range(1, 13)]


def test_the_number_in_a_file_name_is_its_round(tmp_path):
    for r, n in ((0, 30), (1, 30), (2, 10)):
        written(tmp_path / "log" / f"round_{r}.jsonl", one_answer_each(n=n))
    run = read_tabular(tmp_path / "log", first_round=0)
    assert [item.index for item in run.trajectories[0].rounds] == [0, 1, 2]
    assert [item.index for item in run.trajectories[20].rounds] == [0, 1]
    written(tmp_path / "log" / "round_3.jsonl", one_answer_each(n=20))
    with pytest.raises(DataError, match=r"\[0, 1, 3\]"):
        read_tabular(tmp_path / "log", first_round=0)


def test_a_folder_is_read_with_the_numbers_in_its_names_as_numbers(tmp_path):
    names = ["a/round_2.csv", "a/round_10.csv", "a/round_11.csv", "b-9.csv", "b-10.csv"]
    for name in names:
        written(tmp_path / name, one_answer_each())
    assert [file.relative_to(tmp_path).as_posix() for file in data_files(tmp_path)] == names


def test_pieces_of_a_log_stay_one_run_despite_shared_questions(tmp_path):
    rows = [{"id": q, "gold": "x", "answer": f"a{r}"} for q in range(10) for r in (1, 2)]
    for name in ("part-00000-of-00002", "log-2026-05-02"):
        folder = tmp_path / name
        written(folder / f"{name}.jsonl", rows[:11])
        written(folder / f"{name.replace('0', '1')}.jsonl", rows[11:])
        assert lengths(read_tabular(folder)) == {2}


def test_files_whose_names_differ_after_a_dot_are_two_files(tmp_path):
    for name in ("gpt-4.1", "gpt-4.5"):
        written(tmp_path / "log" / f"{name}.jsonl", one_answer_each())
    run = read_tabular(tmp_path / "log")
    assert [item.question_id for item in run.trajectories][:31:30] == ["0", "0@gpt-4.5"]
    assert lengths(run) == {1}


def test_models_in_one_of_several_files_are_told_apart_too(tmp_path):
    for part in (1, 2):
        rows = [
            {"id": f"{part}{q}", "answer": "x", "model": m, "round": r} for q in range(5) for m in "AB" for r in (1, 2)
        ]
        written(tmp_path / "log" / f"part-{part}.jsonl", rows)
    run = read_tabular(tmp_path / "log")
    assert run.trajectories[1].question_id == "10@B"
    assert (len(run.trajectories), lengths(run)) == (20, {2})


def test_a_question_text_used_as_id_stays_unchanged(tmp_path):
    rows = [{"question": f"Q{q}?", "model": m, "answer": "x"} for q in range(5) for m in "AB" for _ in (1, 2)]
    run = read_tabular(written(tmp_path / "a.jsonl", rows))
    assert {(item.question_id, item.question) for item in run.trajectories[:2]} == {("Q0?@A", "Q0?"), ("Q0?@B", "Q0?")}


def test_only_rows_of_the_wanted_model_are_imported(tmp_path):
    with pytest.raises(SchemaError, match="nothing to stop"):
        import_recording(systems(tmp_path / "systems"), out=tmp_path / "r.parquet", where={"file": "haiku"})
    rows = [
        {**row, "model": m, "temperature": t}
        for row in one_answer_each()
        for m in "AB"
        for t in (0, 0.5)
        for _ in (1, 2)
    ]
    log = written(tmp_path, rows)
    done = cli(
        "import", log, "-o", tmp_path / "l.parquet", "--where", "model=B", "--where", "temperature=0.50", "--json"
    )
    assert [done.json[name] for name in ("trajectories", "rounds", "loops")] == [30, 2, []]
    assert read_recording(tmp_path / "l.parquet").metadata["depends"] == {"model": "B"}
    with pytest.raises(NotFoundError, match="model 'C'"):
        read_tabular(log, where={"model": "C"})
    with pytest.raises(NotFoundError, match="no such column"):
        read_tabular(log, where={"modle": "B"})
    wrong = cli("import", log, "-o", tmp_path / "l.parquet", "--where", "model", code=2)
    assert "COLUMN=VALUE" in wrong.error


def test_the_next_command_after_an_import_of_several_models_chooses_one(tmp_path):
    rows = [
        {**row, "model": m, "round": r} for row in one_answer_each() for m in ("gpt-4o", "my model") for r in (1, 2)
    ]
    source = written(tmp_path, rows)
    done = cli("import", source, "-o", tmp_path / "r.parquet", "--yes")
    assert f"next: suffice decide {tmp_path}/r.parquet --where model=gpt-4o" in done.out
    assert "--where 'model=my model'" in done.words


def test_a_large_table_of_several_models_is_read_as_a_small_one(tmp_path, monkeypatch):
    monkeypatch.setattr(table_parts, "LARGE", 1)
    monkeypatch.setattr(table_parts, "PART", 60)
    whole, parted = [], []
    nothing_said = TableOptions(columns={}, metrics={}, labels={})
    rows = [
        {**row, "model": m, "answer": f"{m}{r}"} for row in one_answer_each(n=20) for m in ("A", "B") for r in (1, 2)
    ]
    for name in ("a", "b"):
        written(tmp_path / "systems" / f"{name}.jsonl", rows)
    for r in range(1, 12):
        written(tmp_path / "depth" / f"round_{r}.jsonl", [{**row, "answer": f"a{r}"} for row in one_answer_each(n=20)])
    for source in (tmp_path / "systems", tmp_path / "depth"):
        folder = tmp_path / f"{source.name}-parts"
        folder.mkdir()
        run = parted_run.run_of_table(source, nothing_said, folder=lambda folder=folder: folder)
        parted.append((run.longest, sum(run.ends.values()), run.n_clusters))
        small = read_tabular(source)
        whole.append((*lengths(small), len(small.trajectories), len({item.cluster for item in small.trajectories})))
    assert parted == whole == [(2, 80, 20), (11, 20, 20)]


def ordered(tmp_path, rows):
    path = tmp_path / "log.jsonl"
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows), "utf-8")
    return imported(path, columns={"round": "model:small,mid,large"})


def test_a_model_that_some_questions_lack_is_named(tmp_path):
    rows = [
        {"id": q, "question": f"Which is city {q}?", "gold": "Oslo", "model": model, "answer": "Oslo"}
        for q in range(40)
        for model in ("small", "mid", "large")
        if model != "mid" or q % 4
    ]
    with pytest.raises(DataError, match="model 'mid'") as error:
        ordered(tmp_path, rows)
    assert "as 10 of 40 questions" in str(error.value)
    assert "--column" not in str(error.value)  # rows that are counted would be runs of one round


def test_rows_of_ordered_models_that_are_doubled_are_repeats(tmp_path):
    rows = [
        {"id": q, "question": f"Which is city {q}?", "gold": "Oslo", "model": model, "answer": f"{model} {q}"}
        for q in range(40)
        for model in ("small", "mid", "large")
        for _ in range(2)
    ]
    with pytest.raises(UnsettledError, match="must be unique") as error:
        ordered(tmp_path, rows)
    assert [*error.value.choices] == ["--repeated last", "--repeated first"]
