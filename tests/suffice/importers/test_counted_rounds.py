"""Numbers that look like something else: counters called like answers, calls that share a round, and primary keys."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import CASES, Draw, lines
from benchmarks.readings.counted import listed

from suffice import import_recording
from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from suffice.importers.rows.call_kinds import answering_rows
from suffice.importers.tables import table_parts
from suffice.importers.tables.tabular import read_tabular
from suffice.recordings import read_recording
from tests.support.cli_tools import cli


def table(values: list[Any], ids: list[Any]) -> tuple[TableColumns, list[Any]]:
    return TableColumns([Record("", "", i, {"n": value}) for i, value in enumerate(values)]), ids


def case(name: str, folder: Path) -> Path:
    return next(own for own in CASES if own.name == name).write(folder)


def written(path: Path, rows: Any) -> Path:
    path.write_text(lines(rows), "utf-8")
    return path


def events(n: int = 8, kinds: tuple[str, ...] = ("search", "answer")) -> list[dict[str, Any]]:
    """Return rows of calls, of which those that answer share their hop with the others."""
    return [
        {
            "query_id": f"q{q}",
            "hop": r,
            "event": kind,
            "answer": ("Bern", "Oslo")[r - 1] if kind == "answer" else None,
            "prompt_tokens": 200 if kind == "answer" else 1000,
            "gold": "Oslo",
        }
        for q in range(n)
        for r in (1, 2)
        for kind in kinds
    ]


def reading(path: Path, folder: Path, *options: str) -> Any:
    result = cli("import", path, "-o", folder / "r.parquet", "--yes", *options)
    assert result.code == 0, result.err
    return read_recording(folder / "r.parquet")


@pytest.mark.parametrize(
    ("values", "ids", "counts"),
    [
        ([1, 2, 3, 1, 2], [1, 1, 1, 2, 2], True),
        (["0", "1", "2"], [1, 1, 1], True),
        ([1, 2] * 5, [i // 2 for i in range(10)], True),
        ([1, 2] * 2, [1, 1, 2, 2], False),
        ([1, 2, 2], [1, 1, 1], False),
        ([1, 3, 4], [1, 1, 1], False),
        ([2, 3, 4], [1, 1, 1], False),
        ([0, 1, 2, 1, 2, 3], [1, 1, 1, 2, 2, 2], False),
        ([1, 2, None], [1, 1, 1], False),
        ([False, True, 2], [1, 1, 1], False),
    ],
)
def test_a_counter_numbers_the_rows_of_each_question_in_order(values, ids, counts):
    own, keys = table(values, ids)
    assert own.numbers_rows("n", keys) is counts


@pytest.mark.parametrize(("lead", "text", "counter"), [("drafts", "text", "draft"), ("answers", "content", "answer")])
@pytest.mark.parametrize("first", [0, 1])
def test_counters_called_like_answers_are_no_answers(lead, text, counter, first, tmp_path):
    questions = Draw("counters").asked(20, kind="whole")
    options = ("--first-round", "1")
    recording = reading(
        written(tmp_path / "log.jsonl", listed(questions, lead, text, counter, first)), tmp_path, *options
    )
    assert recording.answers.tolist() == [[str(text) for text in own.answers] for own in questions]


def test_a_counter_beside_no_other_text_stays_an_answer(tmp_path):
    rows = [{"id": q, "gold": "2", "attempts": [{"answer": str(r)} for r in (1, 2, 3)]} for q in range(20)]
    assert reading(written(tmp_path / "log.jsonl", rows), tmp_path).answers[0].tolist() == ["1", "2", "3"]


@pytest.mark.parametrize("name", ["hop", "round", "retrieval_round"])
def test_nested_rounds_from_zero_are_asked_about_as_flat_ones(name, tmp_path):
    questions = Draw("hops").asked(20)
    nested = listed(questions, "hops", "prediction", name, first=0)
    for record in nested:
        record["hops"] = [{**item, "doc_ids": ["P"] * item[name]} for item in record["hops"]]
    flat = [{**record, **item} for record in nested for item in record["hops"]]
    flat = [{own: value for own, value in row.items() if own != "hops"} for row in flat]
    for file, rows in (("nested.jsonl", nested), ("flat.jsonl", flat)):
        result = cli("import", written(tmp_path / file, rows), "-o", tmp_path / "r.parquet", "--yes")
        assert result.code == 2
        assert f"'{name}' counts from 0" in result.err
        if name == "hop":
            assert reading(tmp_path / file, tmp_path, "--first-round", "0").index.tolist() == [0, 1, 2, 3]


def test_nested_drafts_from_zero_are_the_loops_own(tmp_path):
    path = written(tmp_path / "log.jsonl", listed(Draw("d").asked(20), "attempts", "answer", "attempt", first=0))
    assert "the lowest 'attempt' is read as round 1" in cli("import", path, "-o", tmp_path / "r.parquet").out
    assert read_recording(tmp_path / "r.parquet").index.tolist() == [1, 2, 3, 4]


def test_the_field_of_items_can_be_named_as_the_round(tmp_path):
    path = written(tmp_path / "log.jsonl", listed(Draw("d").asked(20), "hops", "prediction", "hop"))
    assert reading(path, tmp_path, "--column", "round=hop").index.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize("kinds", [("search", "answer"), ("answer", "search")])
def test_calls_of_another_kind_are_charged_to_their_round(kinds, tmp_path):
    path = written(tmp_path / "log.jsonl", events(kinds=kinds))
    result = cli("import", path, "-o", tmp_path / "r.parquet", "--yes")
    assert "logged twice" not in result.words
    assert "'event' is 'search'" in result.words
    recording = read_recording(tmp_path / "r.parquet")
    assert recording.column("cost.generator.uncached_tokens").tolist() == [[1200, 1200]] * 8
    assert recording.column("cost.generator.calls").tolist() == [[2, 2]] * 8


def test_each_of_several_kinds_that_answer_is_kept(tmp_path):
    rows = [{**row, "event": "final" if row["answer"] == "Oslo" else row["event"]} for row in events()]
    recording = reading(written(tmp_path / "log.jsonl", rows), tmp_path)
    assert recording.column("cost.generator.calls").tolist() == [[2, 2]] * 8


def test_calls_of_tools_are_charged_to_their_round(tmp_path):
    rows = [{("tool" if name == "event" else name): value for name, value in row.items()} for row in events()]
    rows = [{**row, "tool": None if row["answer"] else row["tool"]} for row in rows]
    recording = reading(written(tmp_path / "log.jsonl", rows), tmp_path)
    assert recording.column("cost.generator.uncached_tokens").tolist() == [[1200, 1200]] * 8


def test_failed_calls_are_left_out_as_before(tmp_path):
    rows = [{("status" if name == "event" else name): value for name, value in row.items()} for row in events()]
    result = cli("import", written(tmp_path / "log.jsonl", rows), "-o", tmp_path / "r.parquet", "--yes")
    assert "16 rows without an answer, or with nothing new, left out" in result.words


def test_calls_that_only_later_rows_have_are_charged(tmp_path, monkeypatch):
    monkeypatch.setattr(table_parts, "LARGE", 0)
    monkeypatch.setattr(table_parts, "PART", 25)
    rows = [row for row in events(40) if row["event"] == "answer" or row["query_id"] > "q2"]
    recording = reading(written(tmp_path / "log.jsonl", rows), tmp_path)
    costs = dict(zip(recording.question_ids, recording.column("cost.generator.calls").tolist(), strict=True))
    assert (costs["q1"], costs["q39"]) == ([1, 1], [2, 2])


def test_rows_that_judge_an_answer_are_no_calls_of_its_round():
    columns = {"question_id": "query_id", "round": "hop", "answer": "answer"}
    rows = [Record(str(i), "", i, row) for i, row in enumerate(events(kinds=("answer", "judge")))]
    assert answering_rows(rows, columns) is None
    searches = [row.having({"event": "search"}) if row.values["event"] == "judge" else row for row in rows]
    kinds = answering_rows(searches, columns)
    assert kinds is not None
    assert kinds.where == {"event": "answer"}
    assert [row.values["event"] for row in kinds.in_front(searches)][:4] == ["search", "answer"] * 2
    assert answering_rows(searches, columns, ("event",)) is None
    assert answering_rows([row.having({"event": ["search"]}) for row in searches], columns) is None


def test_a_primary_key_is_no_question(tmp_path):
    assert reading(case("a_primary_key_beside_the_number_of_a_claim", tmp_path), tmp_path).shape == (80, 3)


def test_columns_that_may_name_questions_are_offered_first(tmp_path):
    rows = [
        {"id": 6 * q + 2 * r + s, "claim": f"C{q}", "step": r, "answer": "Oslo", "clerk": f"{q}"}
        for q in range(12)
        for r in (1, 2, 3)
        for s in (0,)
    ]
    with pytest.raises(UnsettledError) as error:
        read_tabular(written(tmp_path / "log.jsonl", rows))
    assert [*error.value.choices] == ["--column question_id=claim", "--column question_id=clerk"]


def test_no_column_that_a_question_never_changes_is_a_round(tmp_path):
    rows = [
        {"id": 3 * q + r, "claim_no": f"C{q}", "said": ("a", "b")[(q + r) % 2], "decision": ("a", "b")[q % 2]}
        for q in range(12)
        for r in (1, 2, 3)
    ]
    result = cli("import", written(tmp_path / "log.jsonl", rows), "-o", tmp_path / "r.parquet", "--yes")
    assert result.code == 2
    assert "rounds=said,decision" not in result.err
    assert "question_id=claim_no" in result.err


@pytest.mark.parametrize("key", ["text REFERENCES claims(ref)", "text REFERENCES claims", "text"])
def test_the_join_by_a_foreign_key_is_read(key, tmp_path):
    name = "ref" if key == "text" else "of"
    with closing(sqlite3.connect(tmp_path / "log.db")) as database:
        database.execute("CREATE TABLE claims (ref text PRIMARY KEY, question text, gold text)")
        database.execute(f"CREATE TABLE steps (id integer PRIMARY KEY, {name} {key}, round int, answer text)")
        database.executemany(
            "INSERT INTO claims VALUES (?, ?, 'Oslo')", [(f"C{q}", f"Where is {q}?") for q in range(20)]
        )
        made = [(f"C{q}", r, ("Bern", "Oslo")[r - 1]) for q in range(20) for r in (1, 2)]
        database.executemany(f"INSERT INTO steps ({name}, round, answer) VALUES (?, ?, ?)", made)
        database.commit()
    (note,) = [
        own
        for own in import_recording(tmp_path / "log.db", out=tmp_path / "r.parquet").notes
        if own.startswith("decided by the values of the log")
    ]
    assert f'ON "steps"."{name}" = "claims"."ref"' in note
    assert reading(tmp_path / "log.db", tmp_path).column("em").tolist() == [[0, 1]] * 20


def test_the_list_of_a_trace_is_offered_as_the_rounds(tmp_path):
    path = case("folder_of_records_with_a_trace_in_an_object", tmp_path)
    result = cli("import", path, "-o", tmp_path / "r.parquet", "--yes")
    assert "--column rounds=agent_run.trace" in result.err
