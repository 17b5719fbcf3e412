"""`suffice data validate`: every changed byte of evidence is noticed."""

from __future__ import annotations

import json

import pytest

from suffice import Policy
from suffice.recordings import bundled_recording, write_recording
from suffice_retrieval.indexes import storage
from tests.support.cli_tools import cli


@pytest.fixture
def index(tmp_path, monkeypatch):
    """Return an index whose passages count as a large file."""
    monkeypatch.setattr(storage, "_WHOLE", 2000)
    monkeypatch.setattr(storage, "_PIECES", 2)
    monkeypatch.setattr(storage, "_PIECE", 100)
    documents = tmp_path / "documents"
    documents.mkdir()
    for number in range(60):
        (documents / f"{number}.md").write_text(f"The tower number {number} stands in a town of {number} people.\n")
    assert cli("index", documents, "-o", tmp_path / "corpus.index").code == 0
    return tmp_path / "corpus.index"


def validated(*paths) -> tuple[int, dict]:
    done = cli("data", "validate", *paths, "--json")
    return done.code, json.loads(done.out)


def test_an_index_as_it_was_built_is_sound(index):
    code, found = validated(index)
    assert (code, found["sound"]) == (0, True)
    assert {item["state"] for item in found["files"]} == {"unchanged"}


def test_a_changed_byte_between_the_pieces_is_found_by_reading_all(index):
    path = index / "passages.jsonl"
    content = bytearray(path.read_bytes())
    assert len(content) > 2000
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    storage.open_passages(index)  # opening compares pieces alone
    code, found = validated(index)
    assert code == 1
    assert [item["file"] for item in found["files"] if item["state"] == "changed"] == ["passages.jsonl"]


def test_a_missing_file_and_a_damaged_description_are_said(index):
    (index / "offsets.npy").unlink()
    assert "missing" in {item["state"] for item in validated(index)[1]["files"]}
    (index / "suffice-index.json").write_text('{"files": 3}')
    assert validated(index)[0] == 1


def test_an_older_index_says_that_its_pieces_alone_are_compared(index):
    manifest = json.loads((index / "suffice-index.json").read_text())
    del manifest["whole"]
    (index / "suffice-index.json").write_text(json.dumps(manifest))
    done = cli("data", "validate", index, code=0)
    assert "pieces unchanged" in done.out + done.err


def test_policies_and_recordings_are_read_whole(tmp_path):
    Policy(rule="answer_stable").save(tmp_path / "policy.json")
    recording = bundled_recording("self_refine_gpt4")
    write_recording(tmp_path / "r.parquet", recording.table, recording.metadata)
    code, found = validated(tmp_path / "policy.json", tmp_path / "r.parquet")
    assert (code, [item["state"] for item in found["files"]]) == (0, ["unchanged", "readable"])
    text = (tmp_path / "policy.json").read_text()
    (tmp_path / "policy.json").write_text(text.replace("answer_stable", "answer_length"))
    content = bytearray((tmp_path / "r.parquet").read_bytes())
    (tmp_path / "r.parquet").write_bytes(content[: len(content) // 2])
    code, found = validated(tmp_path / "policy.json", tmp_path / "r.parquet")
    assert code == 1
    assert found["files"][0]["state"] == "edited"
    assert found["files"][1]["state"].startswith("damaged")
    assert cli("data", "validate", tmp_path / "none.json").code == 2
