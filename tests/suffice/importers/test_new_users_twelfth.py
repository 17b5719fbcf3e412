"""What a twelfth tester misread: ids of rows, solutions, folders of records, numbered ids and ids of several parts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines
from benchmarks.readings.misled_eleventh import (
    attempts_with_ids_of_rows,
    cases_numbered_in_german,
    folder_of_records_in_french,
    ids_with_the_bare_number_of_a_sample,
    questions_of_several_columns,
    solutions_with_a_box,
    solutions_with_a_mark,
    steps_with_counts_of_tests,
    verdicts_in_a_list,
)

from suffice.importers.files.records import Record
from suffice.importers.rows.stages import with_numbers_of_ids
from suffice.importers.shapes.shape import Shape
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import Brief

WHOLE = ("--answer-position", "marker:answer is")


def imported(folder: Path, content: Any, *options: str) -> Any:
    """Import rows, or a folder of documents by their names."""
    path = folder / "log.jsonl"
    if isinstance(content, dict):
        path = folder / "log"
        for name, document in content.items():
            (path / name).parent.mkdir(parents=True, exist_ok=True)
            (path / name).write_text(json.dumps(document), "utf-8")
    else:
        path.write_text(lines(content), "utf-8")
    return cli("import", path, "-o", folder / "r.parquet", "--yes", *options)


def recording(folder: Path) -> Any:
    return read_recording(folder / "r.parquet")


def attempts() -> list[dict[str, Any]]:
    return [dict(row) for row in attempts_with_ids_of_rows(Brief("x")).content]


def test_ids_of_rows_count_no_rounds(tmp_path):
    assert imported(tmp_path, attempts()).code == 0
    assert recording(tmp_path).column("em").shape == (32, 3)


def test_ids_of_rows_alone_leave_the_order_of_rows(tmp_path):
    rows = [{name: value for name, value in row.items() if name not in ("attempt", "model")} for row in attempts()]
    assert imported(tmp_path, rows).code == 0
    assert recording(tmp_path).column("em").shape == (32, 3)


def test_a_gap_names_the_column_that_counts(tmp_path):
    refused = imported(tmp_path, attempts(), "--column", "round=attempt_id")
    assert refused.code == 2
    assert "--column round=attempt\n" in refused.err


def test_rounds_of_one_question_may_all_differ(tmp_path):
    rows = [{"qid": "q1", "step": r, "answer": city, "gold": "Oslo"} for r, city in enumerate(CITIES[:4], start=1)]
    assert imported(tmp_path, rows).code == 0
    assert recording(tmp_path).column("em").shape == (1, 4)


def test_solutions_with_a_mark_are_read_as_golds(tmp_path):
    log = solutions_with_a_mark(Brief("x")).content
    done = imported(tmp_path, log, *WHOLE)
    assert done.code == 0
    assert recording(tmp_path).table.column("golds").to_pylist()[0] == [log[0]["solution"].rpartition("#### ")[2]]
    assert "'####' in 'solution'" in done.out


def test_a_reply_with_a_mark_is_no_gold(tmp_path):
    log = solutions_with_a_mark(Brief("x")).content
    log = [{"model_" * (name == "solution") + name: value for name, value in row.items()} for row in log]
    assert imported(tmp_path, log, *WHOLE, "--expected", "returned", "--expected", "unread-golds").code == 0
    assert recording(tmp_path).table.column("golds").to_pylist()[0] in (None, [])


def test_solutions_with_a_box_are_asked_about(tmp_path):
    log = solutions_with_a_box(Brief("x")).content
    position = ("--answer-position", "marker:Answer:")
    refused = imported(tmp_path, log, *position)
    assert refused.code == 2
    assert "--column golds=solution" in refused.err
    done = imported(tmp_path, log, *position, "--column", "golds=solution")
    assert done.code == 0
    assert r"'\boxed{}' contains in 'solution'" in " ".join(done.out.split())
    assert 0.4 < recording(tmp_path).column("match").mean() < 0.8


@pytest.mark.parametrize("own", [True, False])
def test_a_solution_that_contains_answers_is_named(tmp_path, own):
    spread = 1 if own else 40  # else each text has the answers to all questions
    rows = [
        {"qid": q, "round": r, "answer": f"{100 + q % 40 + (r < 2)}", "solution": "It is " + ", ".join(str(100 + (q + i) % 40) for i in range(spread))}
        for q in range(80)
        for r in (1, 2, 3)
    ]  # fmt: skip
    done = imported(tmp_path, rows)
    assert done.code == 0
    assert ("caution: no column is read as the gold answer, but 'solution'" in " ".join(done.out.split())) == own


def test_a_folder_of_records_is_read_as_their_lines_are(tmp_path):
    files = folder_of_records_in_french(Brief("x")).content
    for place, content in (("folder", files), ("lines", [*files.values()])):
        (tmp_path / place).mkdir()
        refused = imported(tmp_path / place, content)
        assert refused.code == 2
        assert "--column rounds=tours" in refused.err
        asked = imported(tmp_path / place, content, "--column", "rounds=tours")
        assert "--column answer=service\n" in asked.err
        assert "answer=texte" not in asked.err


def test_tokens_in_french_are_read(tmp_path):
    files = folder_of_records_in_french(Brief("x")).content
    options = ("--column", "rounds=tours", "--column", "answer=service", "--column", "golds=service_attendu")
    assert imported(tmp_path, files, *options).code == 0
    used = sum(own["jetons_sortie"] for record in files.values() for own in record["tours"])
    assert sum(recording(tmp_path).table.column("cost.generator.output_tokens").to_pylist()) == used


def test_a_file_with_one_record_takes_the_list_by_name(tmp_path):
    record = next(iter(folder_of_records_in_french(Brief("x")).content.values()))
    done = imported(tmp_path, {"one.json": record}, "--column", "rounds=tours", "--column", "answer=service")
    assert done.code == 0
    assert len(recording(tmp_path).question_ids) == 1


def test_a_folder_of_runs_keeps_its_records(tmp_path):
    def run(seed: int) -> dict[str, Any]:
        asked = [
            {"qid": q, "step": r, "answer": CITIES[(q + r * seed) % 4], "gold": CITIES[0]}
            for q in range(5)
            for r in (1, 2)
        ]
        return {"seed": seed, "cases": asked}

    assert imported(tmp_path, {f"{seed}.json": run(seed) for seed in (1, 2, 3)}).code == 0
    assert len(recording(tmp_path).question_ids) == 15


@pytest.mark.parametrize("form", ["meter-{}-s{}", "meter-{}_{}"])
def test_numbers_at_the_ends_of_ids_name_samples(tmp_path, form):
    rows = ids_with_the_bare_number_of_a_sample(Brief("x")).content
    parts = [row["id"].removeprefix("meter-").split("_") for row in rows]
    rows = [{**row, "id": form.format(*own), "expected": None} for row, own in zip(rows, parts, strict=True)]
    golds = {own[0]: row["output"].rpartition(" ")[2] for row, own in zip(rows, parts, strict=True)}
    file = tmp_path / "golds.jsonl"
    file.write_text(lines([{"id": f"meter-{q}", "gold": gold} for q, gold in golds.items()]), "utf-8")
    done = imported(tmp_path, rows, "--golds", str(file))
    assert done.code == 0
    assert recording(tmp_path).column("em").shape == (24, 6)


def unlike(rows: list[Any], change: str) -> list[Any]:
    """Return rows whose ids end in numbers that are none of samples."""
    if change == "uneven":
        return [row for n, row in enumerate(rows) if n % 3]
    if change == "words":
        return [{**row, "output": f"w{n} v{n}"} for n, row in enumerate(rows)]
    if change == "provider":
        return [{**row, "provider": "abcdef"[int(row["id"][-1])]} for row in rows]
    return [{**row, "example_id": row["id"].partition("_")[0]} for row in rows]


@pytest.mark.parametrize("change", ["uneven", "words", "provider", "example"])
def test_other_numbers_at_the_ends_of_ids_name_no_samples(change):
    def split(rows: list[Any]) -> list[str]:
        records = [Record("", "", n, row) for n, row in enumerate(rows)]
        return with_numbers_of_ids(Shape(rows=records, columns={}, read=lambda own: ([*own], 0)), ())[1]

    rows = ids_with_the_bare_number_of_a_sample(Brief("x")).content
    assert "sample" in split(rows)[0]
    assert split(unlike(rows, change)) == []


def test_gold_answers_of_other_ids_name_the_options(tmp_path):
    file = tmp_path / "golds.csv"
    file.write_text("id,gold\nzz,Oslo\n", "utf-8")
    rows = [{"qid": f"q{q}", "round": r, "answer": CITIES[(q + r) % 4]} for q in range(5) for r in (1, 2)]
    refused = imported(tmp_path, rows, "--golds", str(file))
    assert refused.code == 1
    assert "--column question_id=COLUMN" in refused.err


def test_several_columns_name_a_question(tmp_path):
    log = questions_of_several_columns(Brief("x")).content
    refused = imported(tmp_path, log)
    assert "--column question_id=doc_id,seg,tgt_lang --column round=pass" in refused.err
    options = (
        "--column",
        "question_id=doc_id,seg,tgt_lang",
        "--column",
        "round=pass",
        "--column",
        "answer=translation",
    )
    done = imported(tmp_path, log, *options)
    assert done.code == 0
    assert recording(tmp_path).column("em").shape == (48, 3)
    assert "not read" not in done.out


@pytest.mark.parametrize("counter", [(), ("--column", "round=pass")])
def test_a_part_of_an_id_is_completed(tmp_path, counter):
    log = questions_of_several_columns(Brief("x")).content
    refused = imported(tmp_path, log, "--column", "question_id=seg", "--column", "answer=translation", *counter)
    assert refused.code == 2
    assert "--column question_id=doc_id,seg,tgt_lang" in refused.err


def test_a_column_in_which_rounds_begin_again_is_no_run(tmp_path):
    rows = [
        {"doc": f"d{d}", "seg": s, "lang": lang, "pass": r, "translation": f"{d} {s} {lang} {r}"}
        for d in (1, 2)
        for s in range(12)
        for lang in ("de", "fr")
        for r in (1, 2, 3)
    ]
    refused = imported(tmp_path, rows, "--column", "question_id=seg", "--column", "answer=translation")
    assert "--column question_id=doc,seg,lang --column round=pass" in refused.err
    assert "run=doc" not in refused.err


def test_runs_of_a_question_are_no_part_of_its_id(tmp_path):
    rows = [
        {"qid": f"q{q}", "worker": w, "round": r, "answer": CITIES[(q + r * w) % 4]}
        for q in range(12)
        for w in (1, 2)
        for r in (1, 2, 3)
    ]
    refused = imported(tmp_path, rows)
    assert "--column run=worker" in refused.err
    assert "qid,worker" not in refused.err


def test_the_question_is_known_before_the_answer_is_asked_for(tmp_path):
    refused = imported(tmp_path, cases_numbered_in_german(Brief("x")).content)
    assert "question_id=" not in refused.err
    assert "--column answer=Entscheidung\n" in refused.err
    assert "answer=Meldung" not in refused.err


def test_items_of_a_list_are_named_as_answers(tmp_path):
    refused = imported(tmp_path, verdicts_in_a_list(Brief("x")).content)
    assert "--column answer=verdict\n" in refused.err


def test_steps_without_answers_may_be_judged_by_their_tests(tmp_path):
    refused = imported(tmp_path, steps_with_counts_of_tests(Brief("x")).content)
    assert "--metric-column tests_passed=tests_passed/tests_total" in refused.err


def test_texts_that_are_not_read_are_named(tmp_path):
    rows = [
        {"qid": f"q{q}", "round": r, "answer": CITIES[(q + r) % 4], "gold": "Oslo", "note": f"see also page {q} there"}
        for q in range(20)
        for r in (1, 2)
    ]
    assert "not read: note" in imported(tmp_path, rows).out
