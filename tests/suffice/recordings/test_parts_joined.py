"""Many small parts are joined in a hidden file by the first read, and later reads are the same in less time."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest

from suffice import Recorder, read_recording
from suffice.errors import SchemaError
from suffice.recordings import compact_recording, parts_compaction, parts_joined, write_recording
from suffice.recordings.parts import part_paths
from suffice.recordings.parts_joined import JOINED
from suffice.recordings.recording import open_recording
from tests.support.cli_tools import cli


@pytest.fixture
def log(tmp_path, monkeypatch):
    """A folder of five parts with three runs of one question and a failed one, where three parts are many."""
    monkeypatch.setattr(parts_joined, "_FEWEST", 3)
    with Recorder(tmp_path / "log", part_questions=1) as recorder:
        for q in (0, 1, 0, 0):
            play(recorder, q)
        with suppress(OSError), recorder.question("Who fails?", question_id="failed") as run:
            run.observe("a")
            raise OSError("network")
    return tmp_path / "log"


def play(recorder, q, text="ab"):
    with recorder.question(f"Who is {q}?", question_id=f"q{q}") as run:
        for answer in text:
            run.observe(answer)


def opened_files(log):
    with open_recording(log, keep=True) as opened:
        return [part.path.name for part in opened.parts]


def rows(log):
    recording = read_recording(log)
    return recording.table, recording.metadata


def read_each(log):
    """Read the parts themselves."""
    with open_recording(log, each=True) as opened:
        return opened.table(), opened.metadata


def test_a_later_read_of_many_parts_opens_one_file(log):
    assert opened_files(log) == [path.name for path in part_paths(log)]
    first = rows(log)
    assert opened_files(log) == [JOINED]
    assert rows(log) == first == read_each(log)
    assert (log / JOINED).stat().st_mode & 0o777 == 0o600
    assert set(first[0]["question_id"].to_pylist()) == {"q0", "q0#2", "q0#3", "q1", "failed"}


def test_new_and_unfinished_parts_are_read_beside_joined_rows(log):
    rows(log)
    with Recorder(log) as recorder:
        play(recorder, 0)
        recorder.question("open", question_id="open").__enter__().observe("a")
        assert len(opened_files(log)) == 2
        assert rows(log) == read_each(log)
    for _ in range(3):
        with Recorder(log) as recorder:
            play(recorder, 1, "ccc")
    before = rows(log)
    assert opened_files(log) == [JOINED, part_paths(log)[5].name]  # an unfinished question keeps its part open
    assert rows(log) == before == read_each(log)


def test_an_edited_part_is_noticed_although_its_rows_were_joined(log):
    rows(log)
    part = part_paths(log)[1]
    intact = part.read_bytes()
    part.write_bytes(intact[:200] + bytes([intact[200] ^ 1]) + intact[201:])
    for _ in range(2):
        with pytest.raises(SchemaError, match=part.name):
            read_recording(log)
    assert not (log / JOINED).exists()
    assert "damaged" in cli("data", "validate", log).words
    with open_recording(part_paths(log)[0]) as other:
        write_recording(part, other.table().slice(0, 1), other.metadata)
    assert rows(log) == read_each(log)


def test_a_removed_part_takes_its_rows_along(log):
    rows(log)
    part_paths(log)[1].unlink()
    assert set(rows(log)[0]["question_id"].to_pylist()) == {"q0", "q0#2", "q0#3", "failed"}
    assert set(read_recording(log).question_ids) == {"q0", "q0#2", "q0#3", "failed"}


def test_a_compaction_takes_the_place_of_joined_rows(log, monkeypatch):
    first = rows(log)

    def killed(_paths):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(parts_compaction.Path, "unlink", lambda *_, **__: killed(_))
        with pytest.raises(KeyboardInterrupt):
            compact_recording(log)
    assert len(part_paths(log)) == 6  # what it joined is still there
    assert rows(log)[0] == first[0]
    compact_recording(log)
    assert rows(log)[0] == first[0]
    assert opened_files(log) == [part_paths(log)[0].name]


def test_damaged_joined_rows_are_named_with_what_helps(log):
    first = rows(log)
    intact = (log / JOINED).read_bytes()
    (log / JOINED).write_bytes(intact[:200] + bytes([intact[200] ^ 1]) + intact[201:])
    with pytest.raises(SchemaError, match="remove it") as raised:
        read_recording(log)
    assert str(raised.value).count("remove it") == 1
    assert "sound" in cli("data", "validate", log).words  # each part is
    for content in (intact[:-20], b""):
        (log / JOINED).write_bytes(content)
        assert rows(log) == first


def test_joined_rows_of_another_release_are_written_anew(log, monkeypatch):
    first = rows(log)
    with monkeypatch.context() as patch:
        patch.setattr(parts_joined, "__version__", "0.0.1")
        assert rows(log)[0] == first[0]
    assert rows(log) == first


def test_a_folder_that_cannot_be_written_is_read_all_the_same(log):
    (log / JOINED).mkdir()
    assert rows(log) == rows(log) == read_each(log)


def test_joined_rows_name_no_file_outside_of_their_folder(log, tmp_path):
    first = rows(log)
    with open_recording(log, keep=True) as opened:
        (joined,) = opened.parts
        (tmp_path / "other").write_bytes(b"x")
        entry = {"file": "../other", "checksum": "1-8cdc1683"}
        table, metadata = joined.table(), {**joined.metadata, "merged": [*joined.metadata["merged"], entry]}
    write_recording(log / JOINED, table.slice(0, 1), json.loads(json.dumps(metadata)))
    assert rows(log) == first
