"""Formats are recognised by what files contain, not by what they are called."""

from __future__ import annotations

import gzip
import json
import shutil

import pytest

from suffice import import_recording, register_importer
from suffice.errors import DataError, MissingExtraError, NotFoundError, SchemaError
from suffice.importers import importers, kind_of
from suffice.recordings import read_recording
from tests.suffice.importers.test_importers import IRCOT, REFLEXION, tasr_file, tasr_row
from tests.support.cli_tools import cli

TABLE = "question_id,round,answer,golds\nq1,1,Rome,Oslo\nq1,2,Oslo,Oslo\n"
DRAFTS = {"record_id": 0, "attempt": 0, "transferred_review": "x"}
MESSAGES = [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "4"}]


@pytest.mark.parametrize(
    ("name", "content", "kind"),
    [
        ("a", TABLE, "tabular"),
        ("a.bin", json.dumps(DRAFTS) + "\n", "self_refine"),
        ("a", json.dumps({"What is 2 + 2?": [[MESSAGES], "4"]}), "debate"),
        ("a", json.dumps([{"id": 1, "answer": "x"}], indent=2), "tabular"),
        ("a", '{"id": 1, "answer": "x"}\n{"id": 2, "answer": "y"}\n', "tabular"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_text_is_recognised_by_its_fields_packed_or_not(name, content, kind, packed, tmp_path):
    raw = content.encode()
    (tmp_path / name).write_bytes(gzip.compress(raw) if packed else raw)
    assert kind_of(tmp_path / name) == kind


def test_published_runs_are_recognised_under_any_name(tmp_path):
    for source, kind in ((IRCOT, "ircot"), (REFLEXION, "reflexion")):
        shutil.copy(source, tmp_path / "some.file")
        assert kind_of(tmp_path / "some.file") == kind
    assert kind_of(tasr_file(tmp_path / "t", [tasr_row("q", 1)])) == "tasr"


def test_a_long_line_and_a_cut_character_do_not_hide_the_format(tmp_path):
    record = {"text": "é" * 100_001, "id": 1}
    (tmp_path / "a").write_text(json.dumps(record, ensure_ascii=False) + "\n{}\n")
    (tmp_path / "b").write_text("x" * 65_535 + "é,b\n")
    assert kind_of(tmp_path / "a") == kind_of(tmp_path / "b") == "tabular"


def test_what_cannot_be_recognised_is_an_error_that_says_what_to_do(tmp_path):
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "zip").write_bytes(b"PK\x03\x04 no")
    (tmp_path / "table.csv").write_text(TABLE)
    recording = import_recording(tmp_path / "table.csv", out=tmp_path / "r.parquet").path
    for path, words in (
        (tmp_path / "empty", "empty"),
        (tmp_path / "zip", "zip"),
        (recording, f"suffice decide {recording}"),
        (tmp_path / "missing", "file or folder"),
    ):
        with pytest.raises(DataError, match=words):
            kind_of(path)


def test_formats_of_papers_name_their_package_where_it_is_missing(monkeypatch):
    every = importers.by_name(importers.IMPORTERS)
    monkeypatch.setattr(
        importers, "by_name", lambda group: {n: e for n, e in every.items() if n not in importers.OF_PAPERS}
    )
    with pytest.raises(MissingExtraError, match="suffice-papers"):
        importers.importer("ircot")
    with pytest.raises(SchemaError, match="suffice-papers"):
        kind_of(IRCOT)
    assert "suffice-papers" in cli("import", IRCOT, "--kind", "ircot").error


def test_the_files_of_a_folder_have_one_format(tmp_path):
    folder = tmp_path / "runs"
    (folder / "later").mkdir(parents=True)
    with pytest.raises(NotFoundError, match="files"):
        kind_of(folder)
    (folder / "a.csv").write_text(TABLE)
    (folder / "later" / "b.csv").write_text(TABLE)
    (folder / ".hidden").write_text("{")
    (folder / "README.md").write_text("# Runs")
    assert kind_of(folder) == "tabular"
    (folder / "c.jsonl").write_text(json.dumps(DRAFTS) + "\n")
    with pytest.raises(SchemaError, match="several formats"):
        kind_of(folder)


def test_a_registered_importer_recognises_its_files_before_ours(tmp_path):
    @register_importer("test_recognised", recognises=lambda head: head.has("special"))
    def read(path):
        raise DataError(f"read {path}")

    (tmp_path / "a.jsonl").write_text('{"special": 1}\n')
    assert kind_of(tmp_path / "a.jsonl") == "test_recognised"
    assert "read " in cli("import", tmp_path / "a.jsonl").error


def test_the_recording_is_named_after_the_source_unless_that_would_replace_another(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "plain.csv").write_text(TABLE)
    for _ in range(2):  # a second import of the same source replaces the first
        done = cli("import", "logs/plain.csv")
        assert "next: suffice replay plain.parquet" in done.out
        assert read_recording("plain.parquet").shape == (1, 2)
    (tmp_path / "plain.parquet").write_bytes(b"PAR1 precious")
    assert "-o" in cli("import", "logs/plain.csv").error
    assert (tmp_path / "plain.parquet").read_bytes() == b"PAR1 precious"


def test_the_old_order_of_arguments_is_an_error_with_the_new_command(tmp_path):
    done = cli("import", "tabular", tmp_path / "run.csv", code=2)
    for part in (f"suffice import {tmp_path / 'run.csv'}", "--kind tabular"):
        assert part in " ".join(done.error.replace("│", " ").split()) or part in done.error.replace("\n", "")
    assert "one folder" in cli("import", "a.csv", "b.csv").error
