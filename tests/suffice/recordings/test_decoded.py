"""Files that are small on disk and huge in memory are refused before their rows are read."""

import struct

import pyarrow.parquet as pq
import pytest

from suffice import read_recording
from suffice.errors import DataError, SchemaError
from suffice.recordings import file_checks, write_recording
from suffice.recordings.opened import write_tables
from suffice.recordings.recording import open_recording
from suffice.recordings.schema import build_table
from tests.support import children


def bomb(path, n=200, size=10_000, lists=False):
    """Write a recording whose texts repeat; return the size of the texts in memory."""
    text = "y" * size
    answers = {"passage_ids": [text]} if lists else {"answer": text}
    rows = [{"question_id": f"q{i}", "round": 1, "end": "exhausted", **answers} for i in range(n)]
    write_recording(path, rows)
    return n * size


@pytest.mark.parametrize("lists", [False, True])
def test_a_file_that_is_huge_in_memory_alone_is_refused(tmp_path, monkeypatch, lists):
    path = tmp_path / "bomb.parquet"
    size = bomb(path, lists=lists)
    assert path.stat().st_size < size / 50
    expected = read_recording(path).table
    monkeypatch.setenv(file_checks.VARIABLE, str(size))
    with pytest.raises(SchemaError, match="SUFFICE_MAX_DECODED_BYTES"):
        read_recording(path)
    with open_recording(path) as opened:
        assert sum(table.num_rows for table in opened.tables(columns=["question_id", "round"])) == 200
        assert sum(table.num_rows for table in opened.tables(rows=50)) == 200  # it is never whole in memory
        monkeypatch.setenv(file_checks.VARIABLE, str(size // 8))
        with pytest.raises(SchemaError, match="exhaust the memory"):
            [*opened.tables(rows=50)]
    monkeypatch.setenv(file_checks.VARIABLE, str(2 * size))
    assert read_recording(path).table.equals(expected)


def test_lists_in_several_row_groups_are_read_whole(tmp_path, monkeypatch):
    groups = [
        build_table([{"question_id": f"q{group}-{i}", "round": 1, "passage_ids": ["p" * 1000]} for i in range(50)])
        for group in range(3)
    ]
    path = tmp_path / "groups.parquet"
    write_tables(path, groups[0].schema, groups)
    monkeypatch.setenv(
        file_checks.VARIABLE, "180000"
    )  # more than the texts, and less than they could be by the metadata
    assert read_recording(path).table.num_rows == 150
    monkeypatch.setenv(
        file_checks.VARIABLE, "120000"
    )  # less than the texts of three groups, and more than those of two
    with pytest.raises(SchemaError, match="exhaust the memory"):
        read_recording(path)


def test_numbers_without_end_are_refused_by_the_metadata_alone(tmp_path, monkeypatch):
    path = tmp_path / "numbers.parquet"
    write_recording(path, [{"question_id": f"q{i}", "round": 1, "em": 0.0} for i in range(5000)])
    monkeypatch.setattr(file_checks, "_size_of", None)
    monkeypatch.setenv(file_checks.VARIABLE, "50000")
    assert pq.ParquetFile(path).metadata.num_rows == 5000
    with pytest.raises(SchemaError, match="50,000 bytes"):
        read_recording(path)


@pytest.mark.parametrize("text", ["much", "-1", "0", "1e9"])
def test_the_limit_is_a_number_of_bytes(tmp_path, monkeypatch, text):
    bomb(tmp_path / "bomb.parquet", n=1)
    monkeypatch.setenv(file_checks.VARIABLE, text)
    with pytest.raises(DataError, match="positive whole number"):
        read_recording(tmp_path / "bomb.parquet")


READS = """
import sys
from pathlib import Path
from suffice import read_recording
from suffice.errors import SufficeError
from suffice.recordings.recording import open_recording

path, start = Path(sys.argv[1]), int(sys.argv[2])
data = path.read_bytes()
for at in range(start, start + 60):
    for bit in (1, 4):
        path.write_bytes(bytes([*data[:at], data[at] ^ bit, *data[at + 1 :]]))
        for read in (read_recording, lambda path: open_recording(path).round_range()):
            try:
                read(path)
            except SufficeError:
                pass
"""


@pytest.mark.whole
def test_a_damaged_footer_of_a_large_file_ends_no_process(tmp_path):
    path = tmp_path / "large.parquet"
    bomb(path, n=40, size=50)
    data = path.read_bytes()
    small = f"import os; os.environ[{file_checks.VARIABLE!r}] = '3000'"  # so that it counts as large
    footer = len(data) - 8 - struct.unpack("<I", data[-8:-4])[0]
    assert children.output_of(f"{small}\n{READS}", path, footer) == (0, "", "")
