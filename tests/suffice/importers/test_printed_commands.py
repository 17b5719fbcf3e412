"""Commands that a question prints keep what was typed, and files that hold the same questions can be rounds, runs or models."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
from benchmarks.readings.cases import lines
from benchmarks.readings.classes import lost_options
from benchmarks.readings.files_and_speakers import a_file_for_each_pass

from suffice.cli.printed import without_replaced
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record
from suffice.importers.mapping import as_typed
from suffice.importers.questions.compound_ids import compound_choices
from suffice.importers.rows.parallel_files import of_files
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES, cli
from tests.support.logs import Brief


def folder_of(place: Path, files: dict[str, list[dict[str, Any]]]) -> Path:
    """Write a folder with files of rows."""
    for name, rows in files.items():
        file = place / "log" / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(lines(rows), "utf-8")
    return place / "log"


def passes() -> dict[str, list[dict[str, Any]]]:
    files = a_file_for_each_pass(Brief("x")).content
    return {name.replace(".tsv", ".jsonl"): rows for name, rows in files.items()}


def asked(path: Path, *options: str) -> tuple[str, list[list[str]]]:
    """Import a log that is asked about; return what is said, and the words of the printed commands."""
    refused = cli("import", path, "-o", path.parent / "r.parquet", *options)
    assert refused.code == 2, refused.err
    assert lost_options(refused.err, options) == []
    return refused.err, [shlex.split(line) for line in re.findall(r"^ +suffice (.*)$", refused.err, re.MULTILINE)]


NAMED = ("--column", "question_id=poem_id", "--column", "answer=translation")


@pytest.mark.parametrize("options", [(), NAMED, (*NAMED, "--column", "run=target_lang")])
def test_files_with_the_same_questions_may_be_rounds(tmp_path, options):
    said, commands = asked(folder_of(tmp_path, passes()), *options)
    assert [command[-1] for command in commands[:3]] == ["round", "run", "model"]
    assert "in this order: pass_1, pass_2, pass_3" in said


def test_runs_of_single_rounds_name_the_option_for_rounds(tmp_path):
    rows = [{"qid": f"q{q}", "answer": CITIES[q % 4], "gold": CITIES[0]} for q in range(20)]
    log = folder_of(tmp_path, {"draft.jsonl": rows, "final.jsonl": rows})
    done = cli("import", log, "-o", tmp_path / "r.parquet")
    shown = " ".join(done.out.split())
    assert "nothing to decide; if each file is a round: suffice import" in shown
    assert "--file-is round" in shown
    assert cli("import", log, "-o", tmp_path / "r.parquet", "--file-is", "round").code == 0
    assert read_recording(tmp_path / "r.parquet").column("em").shape == (20, 2)


def test_a_column_of_runs_is_kept_with_files_as_rounds(tmp_path):
    _, commands = asked(folder_of(tmp_path, passes()), *NAMED, "--column", "run=target_lang")
    assert cli(*commands[0]).code == 0
    assert read_recording(tmp_path / "r.parquet").column("round").shape == (60, 3)


def test_files_as_runs_leave_the_question_on_languages(tmp_path):
    said, commands = asked(folder_of(tmp_path, passes()), *NAMED, "--file-is", "run")
    assert "values of 'target_lang'" in said
    done = cli(*next(command for command in commands if command[-1] == "run=target_lang"))
    assert done.code == 0
    assert len(read_recording(tmp_path / "r.parquet").question_ids) == 180


def repeated(n: int = 20) -> list[dict[str, Any]]:
    """Rows of two languages, each of which ran twice."""
    return [
        {"qid": f"q{q}", "lang": lang, "round": r, "answer": CITIES[(q + r * again) % 4], "gold": CITIES[0]}
        for q in range(n)
        for lang in ("en", "es")
        for again in (1, 2)
        for r in (1, 2, 3)
    ]


def test_a_further_column_of_runs_is_named_beside_the_first(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(lines(repeated()), "utf-8")
    _, commands = asked(log, "--column", "run=lang")
    assert commands[0][-1] == "run=lang,round"
    assert cli(*commands[0]).code == 0
    recording = read_recording(tmp_path / "r.parquet")
    assert len(recording.question_ids) == 80
    assert {"q0@en", "q0@en@2", "q0@es", "q0@es@2"} < {*recording.question_ids}
    assert {*recording.table.column("cluster").to_pylist()} == {f"q{q}" for q in range(20)}


def test_several_columns_tell_runs_apart(tmp_path):
    log = tmp_path / "log.jsonl"
    rows = [{**row, "copy": n // 3 % 2} for n, row in enumerate(repeated())]
    log.write_text(lines(rows), "utf-8")
    done = cli("import", log, "-o", tmp_path / "r.parquet", "--column", "run=lang,copy")
    assert done.code == 0
    assert "--where lang=en" in done.out
    assert len(read_recording(tmp_path / "r.parquet").question_ids) == 80
    unknown = cli("import", log, "-o", tmp_path / "r.parquet", "--column", "run=lang,seed")
    assert "no column 'seed' (for 'run')" in unknown.err


def test_further_parts_of_an_id_are_added_to_its_own():
    rows = [
        {"doc": f"d{d}", "part": f"p{p}", "lang": lang, "try": n}
        for d in range(3)
        for p in range(2)
        for lang in ("de", "fr")
        for n in (1, 2)
    ]
    table = TableColumns(
        [Record("", "", n, {**row, "doc,part": f"{row['doc']}/{row['part']}"}) for n, row in enumerate(rows)]
    )
    assert [*compound_choices(table, ["doc,part"], "doc,part", "try")] == ["--column question_id=doc,part,lang"]
    assert [*compound_choices(table, ["part"], "part", "try")] == ["--column question_id=doc,part,lang"]


def test_a_score_names_no_runs(tmp_path):
    log = tmp_path / "log.jsonl"
    log.write_text(lines([{**row, "chrf": 0.51 + n // 3 % 4 / 10} for n, row in enumerate(repeated())]), "utf-8")
    assert "run=chrf" not in asked(log)[0]


@pytest.mark.parametrize(
    ("typed", "option", "kept", "replaced"),
    [
        ("--column round=a", "--column round=b", "", "--column round=a"),
        ("--column=round=a", "--column round=b", "", "--column round=a"),
        ("--column round=a", "--column round=a:newest-first", "", ""),
        ("--column question_id=doc", "--column question_id=doc,part", "", ""),
        ("--where role=a", "--where kind=b", "--where role=a", ""),
        ("--where role=a", "--where role=b", "", "--where role=a"),
        ("--expected drafts", "--expected graded", "--expected drafts", ""),
        ("--answer-position start", "--answer-position whole", "", "--answer-position start"),
        ("--column answer=", "--column answer=said", "", "--column answer="),
        ("--yes --samples", "--samples --column round=a", "--yes", ""),
    ],
)
def test_a_printed_command_says_what_it_replaces(typed, option, kept, replaced):
    words, instead = without_replaced(["import", "log.csv", *shlex.split(typed)], option)
    assert shlex.join(words[2:]) == kept
    assert " ".join(instead) == replaced


def test_a_lost_option_is_found():
    said = "Say which:\n  each value is a run:\n    suffice import log --column run=round\n"
    assert "'run=lang'" in lost_options(said, ["import", "log", "--column", "run=lang"])[0]
    assert lost_options(said, ["import", "log"]) == []
    assert lost_options(said.replace("a run:", "a run (instead of --column run=lang):"), ["run=lang"]) == []
    assert lost_options(said.replace("run=round", "run=round,lang"), ["run=lang"]) == []
    assert lost_options(said.replace("run=round", "run=lang:x"), ["run=lang"]) == []
    assert lost_options(said.replace("run=round", "run=langs"), ["run=lang"])


def rows_of(files: dict[str, list[dict[str, Any]]]) -> list[Record]:
    return [Record("", file, n, row) for file, rows in files.items() for n, row in enumerate(rows)]


def test_only_files_with_the_same_questions_may_be_rounds():
    own = [{"id": f"q{q}", "text": f"w{q}"} for q in range(8)]
    other = [{"id": f"r{q}", "text": f"v{q}"} for q in range(8)]
    assert len(of_files(rows_of({"draft": own, "final": own}))) == 3
    assert "--file-is round" not in of_files(rows_of({"draft": [{**row, "round": "x"} for row in own], "final": own}))
    assert of_files(rows_of({"draft": own})) == {}
    assert of_files(rows_of({"draft": own, "final": other})) == {}
    assert of_files(rows_of({"round_1": own, "round_2": own})) == {}
    assert (
        of_files(rows_of({"a": [{**row, "model": "x"} for row in own], "b": [{**row, "model": "y"} for row in own]}))
        == {}
    )
    assert (
        of_files(
            rows_of(
                {"a": [{"said": CITIES[n % 2]} for n in range(8)], "b": [{"said": CITIES[n % 2]} for n in range(8)]}
            )
        )
        == {}
    )


def _asked_about(place: Path) -> Path:
    """Write a log with two columns that may be the answer."""
    rows = [
        {
            "qid": f"q{q}",
            "round": r,
            "gold": CITIES[q % 4],
            "output": CITIES[(q + (q + r) % 3 // 2) % 4],
            "draft": CITIES[r],
        }
        for q in range(20)
        for r in range(1, 4)
    ]
    place.write_text(lines(rows), "utf-8")
    return place


def _before(text: str) -> list[list[str]]:
    """Return the words of the command that a question prints for the choices of an import before."""
    return [
        shlex.split(line.split("suffice ")[1]) for line in text.partition("was imported before")[2].splitlines()[1:]
    ]


def test_another_recording_of_a_log_is_offered_the_choices_of_the_first(tmp_path):
    log, other = _asked_about(tmp_path / "log.jsonl"), tmp_path / "b 2.parquet"
    answers = ("--column", "answer=output", "--column", "golds=gold")
    assert cli("import", log, "-o", tmp_path / "a.parquet", *answers).code == 0
    refused = cli("import", log, "-o", other)
    (command,) = _before(refused.err)
    assert refused.code == 2
    assert "a.import.json" in refused.err
    assert command[-len(answers) :] == [*answers]
    assert cli(*command).code == 0
    read = [read_recording(path).column("em").tolist() for path in (tmp_path / "a.parquet", other)]
    assert read[0] == read[1]


def test_a_changed_log_is_asked_anew_without_earlier_choices(tmp_path):
    log = _asked_about(tmp_path / "log.jsonl")
    assert cli("import", log, "-o", tmp_path / "a.parquet", "--column", "answer=output").code == 0
    log.write_text(log.read_text() + lines([{"qid": "new", "round": 1, "gold": "Oslo", "output": "Oslo"}]))
    refused = cli("import", log, "-o", tmp_path / "b.parquet")
    assert refused.code == 2
    assert "imported before" not in refused.err


def test_options_that_choices_of_before_contradict_are_no_part_of_them(tmp_path):
    log = _asked_about(tmp_path / "log.jsonl")
    options = ("--column", "answer=output", "--where", "qid!=q0")
    assert cli("import", log, "-o", tmp_path / "a.parquet", *options).code == 0
    refused = cli("import", log, "-o", tmp_path / "b.parquet", "--where", "qid!=q1")
    assert refused.code == 2
    assert "imported before" not in refused.err


def test_a_command_that_was_refused_is_not_offered_as_that_of_before(tmp_path):
    log = _asked_about(tmp_path / "log.jsonl")
    rows = [{**json.loads(line), "exit": "gave_up"} for line in log.read_text("utf-8").splitlines()]
    log.write_text(lines(rows), "utf-8")
    assert cli("import", log, "-o", tmp_path / "a.parquet", "--column", "answer=output").code == 0
    command = ("import", log, "-o", tmp_path / "b.parquet", "--column", "end=exit")
    assert len(_before(cli(*command, code=2).err)) == 1
    assert not _before(cli(*command, "--column", "answer=output", code=2).err)


def test_all_options_of_an_import_are_typed_as_they_were_stored(tmp_path):
    given = {
        "columns": {"answer": "a b", "golds": ""},
        "where": {"event!": "report"},
        "normalizer": "qa",
        "samples": True,
        "expected": ["drafts", "options"],
        "first_round": 0,
    }
    typed = shlex.split(as_typed(given))
    assert typed[:6] == ["--column", "answer=a b", "--column", "golds=", "--where", "event!=report"]
    assert typed[6:] == [
        *("--set", "normalizer=qa", "--samples", "--expected", "drafts", "--expected", "options", "--first-round", "0")
    ]
