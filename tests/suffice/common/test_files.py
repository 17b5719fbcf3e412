"""Files are written whole or not at all, and reach the disk before they have their name."""

import gzip
import json
import os
from pathlib import Path

import pytest

from suffice.common.files import json_lines, remove_leftovers, replacing, replacing_folder, write_file
from suffice.errors import DataError
from suffice.policy.session import Policy

pytestmark = pytest.mark.usefixtures("real_syncs")


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(tmp_path):
    target = tmp_path / "a" / "p.json"
    write_file(target, "old é")
    with pytest.raises(KeyError), replacing(target) as half:
        half.write_text("half" + {}["nothing"])
    assert target.read_bytes() == "old é".encode()
    assert [item.name for item in target.parent.iterdir()] == ["p.json"]
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="read or written"):
        write_file(tmp_path / "file" / "p.json", b"")


def test_a_policy_and_its_name_are_on_disk_before_save_returns(tmp_path, monkeypatch):
    events = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.fstat(fd).st_ino), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda old, new: (events.append("rename"), rename(old, new)))
    Policy().save(tmp_path / "p.json")
    assert events == [(tmp_path / "p.json").stat().st_ino, "rename", tmp_path.stat().st_ino]


def test_a_folder_gets_its_name_after_its_files_are_on_disk(tmp_path, monkeypatch):
    events = []
    sync, rename = os.fsync, Path.replace
    monkeypatch.setattr(os, "fsync", lambda fd: (events.append(os.fstat(fd).st_ino), sync(fd)))
    monkeypatch.setattr(Path, "replace", lambda old, new: (events.append("rename"), rename(old, new)))
    target = tmp_path / "model"
    target.mkdir()
    with replacing_folder(target) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").write_text("1")
        assert not any(target.iterdir())
    assert (target / "inner" / "weights").read_text() == "1"
    before = events[: events.index("rename")]
    assert {(target / "inner" / "weights").stat().st_ino, target.stat().st_ino} <= set(before)
    assert events[-1] == tmp_path.stat().st_ino
    with pytest.raises(DataError, match="read or written"), replacing_folder(target) as folder:
        (folder / "other").write_text("2")
    with pytest.raises(KeyError), replacing_folder(tmp_path / "half") as folder:
        (folder / "half").write_text("half" + {}["nothing"])
    assert [item.name for item in tmp_path.iterdir()] == ["model"]


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / ".x[1].json.77.tmp").write_text("half")
    (tmp_path / ".x[1].json.78.tmp").mkdir()
    (tmp_path / ".x1.json.77.tmp").write_text("of another file")
    remove_leftovers(tmp_path / "x[1].json")
    assert [item.name for item in tmp_path.iterdir()] == [".x1.json.77.tmp"]


@pytest.mark.parametrize("name", ["x.jsonl", "x.jsonl.gz"])
def test_json_lines_are_read_with_their_place(tmp_path, name):
    rows = [{"a": "line\u2028separator"}, {"b": 1}]
    text = "\ufeff" + "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    pack = gzip.compress if name.endswith(".gz") else bytes
    (tmp_path / name).write_bytes(pack(text.encode()))
    assert list(json_lines(tmp_path / name)) == [
        (f"{tmp_path / name}, line 1", rows[0]),
        (f"{tmp_path / name}, line 3", rows[1]),
    ]
    for line, message in ((b"{", "not JSON"), (b"[1]", "found list; expected a row"), (b'"\xe9"', "is not UTF-8")):
        (tmp_path / name).write_bytes(pack(b"{}\n" + line))
        with pytest.raises(DataError, match=f"line 2: .*{message}"):
            list(json_lines(tmp_path / name, "a row"))
    with pytest.raises(DataError, match="be read"):
        list(json_lines(tmp_path / "none.jsonl"))
