"""The file of a journal: what every cut, every changed bit and every interrupted write of it reads as."""

from __future__ import annotations

import itertools
import logging
import os

import pytest
from benchmarks import journal_kills
from hypothesis import given, settings, strategies as st

from suffice.errors import BusyError, SchemaError
from suffice.recordings import journal_file
from suffice.recordings.journal_file import LockedJournal, encoded, read_records
from tests.support import children

pytestmark = pytest.mark.usefixtures("real_syncs")
VALUES = [["a", "caf\u00e9"], [], {"a": None}]


def opened(path):
    return LockedJournal(path, busy="busy", wait_s=0.0)


def written(path, values=VALUES, *, reserve=False):
    """Write values one by one; return the bytes of the file, and where each record ends."""
    with opened(path) as file:
        list(file.records())
        ends = [len(journal_file._HEADER)]
        for value in values:
            file.append([value], reserve=reserve)
            ends.append(file.place.offset)
    return path.read_bytes(), ends


def read_locked(path):
    with opened(path) as file:
        return [value for _, value in file.records()]


@given(
    st.lists(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists, max_leaves=8), max_size=8)
)
@settings(max_examples=25, deadline=None)
def test_values_come_back_as_they_were_written(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("j") / "j"
    written(path, values)
    assert (
        list(read_records(path))
        == read_locked(path)
        == [journal_file.load_json(encoded(v)[0][18:].decode()) for v in values]
    )


@pytest.mark.parametrize("zeros", [0, 700])
def test_a_torn_write_is_cut_at_the_last_whole_record(tmp_path, caplog, zeros):
    path = tmp_path / "j"
    data, ends = written(path)
    whole = list(read_records(path))
    for size in range(len(data) + 1):
        kept = sum(end <= size for end in ends)
        torn = size - (ends[kept - 1] if kept else 0)
        for read in (lambda: list(read_records(path)), lambda: read_locked(path)):
            caplog.clear()
            path.write_bytes(data[:size] + bytes(zeros))
            assert read() == whole[: max(kept - 1, 0)]
            if kept and torn:
                (message,) = caplog.messages
                assert str(path) in message
                assert f"{torn:,} bytes from byte {ends[kept - 1]:,} on" in message
        assert path.read_bytes().rstrip(b"\0") == data[: ends[kept - 1] if kept else 0]
        with opened(path) as file:
            list(file.records())
            file.append(["next"])
        assert read_locked(path) == [*whole[: max(kept - 1, 0)], "next"]


@pytest.mark.parametrize("reserve", [False, True])
def test_every_changed_bit_is_an_error_that_names_the_byte(tmp_path, reserve):
    path = tmp_path / "j"
    data, ends = written(path, reserve=reserve)
    for bit in range(8 * ends[-1]):
        changed = bytearray(data)
        changed[bit // 8] ^= 1 << bit % 8
        path.write_bytes(changed)
        start = max((end for end in ends if end <= bit // 8), default=None)
        expected = "not a journal" if start is None else f"at byte {start:,}:"
        for read in (read_locked, lambda place: list(read_records(place))):
            with pytest.raises(SchemaError, match=expected) as raised:
                read(path)
            assert str(path) in str(raised.value)
        assert path.read_bytes() == changed


@pytest.mark.parametrize("reserve", [False, True])
def test_a_power_cut_in_the_last_write_loses_nothing_before_it(tmp_path, caplog, reserve):
    path = tmp_path / "j"
    with opened(path) as file:
        for value in ("first", "x" * 3000, "y" * 3000):
            file.append([value], reserve=reserve)
            before, last = file.place.start, file.place.offset
    data = path.read_bytes()
    sectors = range(before // 512, -(-last // 512))
    for stored in itertools.product([False, True], repeat=len(sectors)):
        changed = bytearray(data)
        for sector, is_stored in zip(sectors, stored, strict=True):
            if not is_stored:
                for at in range(max(before, 512 * sector), min(last, 512 * (sector + 1))):
                    changed[at] = 0
        path.write_bytes(changed)
        expected = ["first", "x" * 3000, *(["y" * 3000] if all(stored) else [])]
        assert list(read_records(path)) == expected
    assert read_locked(path) == expected
    changed[1024:1536] = bytes(512)  # a sector of an earlier write
    path.write_bytes(changed)
    with pytest.raises(SchemaError, match="damaged at byte"):
        list(read_records(path))


@pytest.mark.parametrize("reserve", [False, True])
@pytest.mark.parametrize("size", [512, 4096])
def test_a_zeroed_sector_before_other_records_is_an_error(tmp_path, size, reserve):
    path = tmp_path / "j"
    data, ends = written(path, [[number, "x" * (number % 40)] for number in range(400)], reserve=reserve)
    for start in range(0, ends[-2] - size, size):
        changed = data[:start] + bytes(size) + data[start + size :]
        path.write_bytes(changed)
        for read in (read_locked, lambda place: list(read_records(place))):
            with pytest.raises(SchemaError, match="damaged"):
                read(path)
        assert path.read_bytes() == changed


@pytest.mark.parametrize("n_left", [0, 1, 4, 5, 6, 7, 8, 17, 18])
def test_zeros_over_several_records_are_an_error(tmp_path, n_left):
    path = tmp_path / "j"
    size = 512 - n_left - len(journal_file._HEADER) - len(encoded("")[0])
    data, ends = written(path, ["x" * size, "z" * 300, "short", "y" * 600], reserve=True)
    assert ends[1] == 512 - n_left
    path.write_bytes(data[:512] + bytes(512) + data[1024:])
    for read in (read_locked, lambda place: list(read_records(place))):
        with pytest.raises(SchemaError, match="damaged"):
            read(path)


def test_a_write_after_another_needs_no_new_size(tmp_path):
    path = tmp_path / "j"
    with opened(path) as file:
        file.append(["first"], reserve=True)
        size = path.stat().st_size
        for number in range(100):
            file.append([number], reserve=True)
        assert path.stat().st_size == size
        file.append(["x" * size], reserve=True)
        assert 2 * size < path.stat().st_size < 20 * size
        end = file.place.offset
    assert read_locked(path) == ["first", *range(100), "x" * size]
    assert path.read_bytes()[end:].strip(b"\0") == b""


@pytest.mark.parametrize("change", ["removed", "repeated", "swapped"])
def test_a_whole_record_in_another_place_is_an_error(tmp_path, change):
    path = tmp_path / "j"
    data, ends = written(path, list("abcd"))
    head, (a, b, c, d) = data[: ends[0]], (data[ends[i] : ends[i + 1]] for i in range(4))
    path.write_bytes(head + {"removed": a + c + d, "repeated": a + b + b + c + d, "swapped": a + c + b + d}[change])
    with pytest.raises(SchemaError, match="at byte"):
        list(read_records(path))


def test_a_record_that_is_being_written_is_left_out_without_a_word(tmp_path, caplog):
    path = tmp_path / "j"
    data, ends = written(path)
    with opened(path):
        path.write_bytes(data[:-3])
        assert len(list(read_records(path))) == len(VALUES) - 1
    assert not caplog.messages
    with caplog.at_level(logging.WARNING):
        list(read_records(path))
    assert f"from byte {ends[-2]:,} on are left out" in caplog.text


def test_a_record_that_is_whole_after_the_read_was_not_torn(tmp_path, caplog, monkeypatch):
    path = tmp_path / "j"
    data, ends = written(path, reserve=True)
    lock = journal_file.try_lock

    def completed(file, **options):
        path.write_bytes(data)
        return lock(file, **options)

    path.write_bytes(data[: ends[-1] - 3] + bytes(len(data) - ends[-1] + 3))
    monkeypatch.setattr(journal_file, "try_lock", completed)
    assert len(list(read_records(path))) == len(VALUES) - 1
    assert not caplog.messages
    assert len(list(read_records(path))) == len(VALUES)


@pytest.mark.whole
def test_one_process_writes_at_a_time_and_the_lock_ends_with_it(tmp_path):
    path = tmp_path / "j"
    child, pipe = children.told(children.hold_file, path)
    with pipe:
        assert pipe.recv() == "held"
        with pytest.raises(BusyError, match="busy"):
            opened(path)
        children.killed(child)
    opened(path).close()


@pytest.mark.whole
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_forked_child_that_lives_on_does_not_keep_the_lock(tmp_path):
    path = tmp_path / "j"
    (told, tell), (asked, ask) = os.pipe(), os.pipe()
    file = opened(path)
    child = os.fork()
    if not child:
        os.close(ask)
        os.write(tell, b"runs")
        os.read(asked, 1)
        os._exit(0)
    assert os.read(told, 4) == b"runs"
    file._file.close()  # as when the process is killed: nobody gives the lock back
    opened(path).close()
    os.close(ask)
    os.waitpid(child, 0)
    for end in (told, tell, asked):
        os.close(end)


def test_each_group_syncs_the_file_and_the_first_its_folder(tmp_path, monkeypatch):
    synced = []
    monkeypatch.setattr(journal_file, "sync_folder", synced.append)
    monkeypatch.setattr(journal_file, "_sync_file", lambda _: synced.append("file"))
    with opened(tmp_path / "j") as file:
        file.append(["one"])
        file.append(["two", "three"])
        file.append(["four"], sync=False)
    assert synced == ["file", tmp_path, "file"]


def interrupt(_):
    raise KeyboardInterrupt


def test_an_interrupted_append_is_overwritten(tmp_path, monkeypatch):
    path = tmp_path / "j"
    with opened(path) as file:
        file.append(["one"])
        with monkeypatch.context() as patched:
            patched.setattr(LockedJournal, "sync", interrupt)
            with pytest.raises(KeyboardInterrupt):
                file.append(["two"])
        os.truncate(path, path.stat().st_size + 5)
        file.append(["three"])
    assert read_locked(path) == ["one", "three"]


@pytest.mark.whole
@pytest.mark.parametrize("one_file", [False, True])
def test_writers_that_die_within_a_write_lose_no_committed_round(tmp_path, one_file):
    result = journal_kills.run(tmp_path, kills=2, one_file=one_file, seed=3)
    assert result["recorded_rounds"] >= result["committed_rounds"] > 0
