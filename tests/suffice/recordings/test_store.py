"""Recordings on disk: what goes in comes out, and what is no recording is told from one."""

from __future__ import annotations

import json
import math
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError, SchemaError, SufficeError, UnknownSignalError
from suffice.policy.rounds import COST_KINDS
from suffice.policy.signals import SIGNALS
from suffice.recordings import read_recording, write_recording
from suffice.recordings.recording import Recording
from suffice.recordings.schema import META_KEY, RECORDING_VERSION, build_table

NAN = math.nan


def row(question_id="q", r=1, **changes):
    return {"question_id": question_id, "round": r, "end": "max_rounds", "answer": "Oslo", **changes}


def written(path, rows, metadata=None, kinds=None):
    write_recording(path, rows, metadata, kinds)
    return read_recording(path)


def same(a, b):
    return a == b or (isinstance(a, float) and isinstance(b, float) and math.isnan(a) and math.isnan(b))


TEXT = st.text(max_size=20)
NUMBER = st.floats(allow_nan=True, allow_infinity=True)
COLUMNS = {
    "answer": st.none() | TEXT,
    "text": TEXT,
    "question": TEXT,
    "finish_reason": st.none() | st.sampled_from(["stop", "length"]),
    "feedback": st.none() | TEXT,
    "prompt_id": TEXT,
    "passage_ids": st.lists(TEXT, max_size=3),
    "golds": st.lists(TEXT, max_size=2),
    "recorded_at": st.floats(0, 4e9),
    "answer_margin": st.none() | NUMBER,
    "judge_entailment": st.none() | NUMBER,
    "cost.generator.calls": st.none() | st.floats(0, 1e6),
    "cost.judge:my own.seconds": st.none() | st.floats(0, 1e6),
    "em": st.none() | st.sampled_from([0.0, 1.0]),
    "my number": st.none() | st.floats(-1e300, 1e300),
    "my text": st.none() | TEXT,
    "ключ": st.none() | TEXT,
}


@st.composite
def tables(draw):
    names = draw(st.lists(st.sampled_from(sorted(COLUMNS)), unique=True))
    rows = []
    for q in range(draw(st.integers(1, 4))):
        end = draw(st.sampled_from(["max_rounds", "exhausted", "rule", "failed"]))
        for r in range(1, draw(st.integers(1, 3)) + 1):
            values = {name: draw(COLUMNS[name]) for name in names}
            rows.append({"question_id": f"q{q}", "round": r, "end": end, "cluster": "c", **values})
    return draw(st.permutations(rows))


@settings(max_examples=40, deadline=None)
@given(tables(), st.dictionaries(TEXT, TEXT | st.integers(-5, 5) | st.none(), max_size=3))
def test_every_column_reads_back_equal_unknown_ones_too(rows, metadata):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.parquet"
        recording = written(path, rows, {"user": metadata})
        again = Path(folder) / "again.parquet"
        write_recording(again, recording.table, recording.metadata)
        for read in (recording, read_recording(again)):
            assert read.metadata["user"] == metadata
            for name in rows[0]:
                column = read.table.column(name).to_pylist()
                for given_row, value in zip(rows, column, strict=True):
                    expected = given_row[name]
                    if isinstance(expected, float) and math.isnan(expected):
                        expected = None  # undefined
                    assert same(expected, value), name
        assert read.data_hash == recording.data_hash


def test_numbers_say_their_unit_and_every_column_its_kind(tmp_path):
    recording = written(
        tmp_path / "r.parquet",
        [
            row(
                answer_margin=1.0,
                em=1.0,
                mine=0.5,
                recorded_at=1.0,
                overlap=None,
                **{f"cost.generator.{kind}": 1.0 for kind in COST_KINDS},
            )
        ],
        kinds={"mine": "signal"},
    )
    schema = recording.table.schema
    units = {field.name: field.metadata.get(b"unit", b"").decode() for field in schema}
    assert units["answer_margin"] == SIGNALS["answer_margin"].unit == "nats"
    assert units["cost.generator.seconds"] == "seconds"
    assert units["cost.generator.calls"] == "count"
    assert units["cost.generator.output_tokens"] == "tokens"
    assert units["recorded_at"] == "seconds since 1970"
    assert recording.names("signal") == ["answer_margin", "mine", "overlap"]
    assert recording.names("metric") == ["em"]
    assert all(b"kind" in field.metadata for field in schema)


def test_nan_and_null_are_undefined_and_infinities_follow_the_signal(tmp_path):
    rows = [
        row(r=1, answer_margin=NAN, overlap=math.inf, mine=math.inf),
        row(r=2, answer_margin=None, overlap=0.5, mine=1.0),
        row(r=3, answer_margin=math.inf, overlap=-math.inf, mine=NAN),
    ]
    recording = written(tmp_path / "r.parquet", rows)
    assert recording.table.column("answer_margin").null_count == 2
    np.testing.assert_array_equal(recording.column("answer_margin"), [[NAN, NAN, 30.0]])
    np.testing.assert_array_equal(recording.column("overlap"), [[NAN, 0.5, NAN]])
    np.testing.assert_array_equal(recording.column("mine"), [[NAN, 1.0, NAN]])


def test_rows_may_come_in_any_order_and_short_trajectories_are_padded(tmp_path):
    rows = [
        row("b", 1, em=0.0),
        row("a", 3, em=1.0),
        row("a", 1, em=0.0),
        row("b", 2, em=1.0, end="max_rounds"),
        row("a", 2, em=0.5),
    ]
    recording = written(tmp_path / "r.parquet", rows)
    assert recording.question_ids == ["b", "a"]
    assert recording.index.tolist() == [1, 2, 3]
    assert recording.seen.tolist() == [[True, True, False], [True, True, True]]
    np.testing.assert_array_equal(recording.column("em"), [[0, 1, NAN], [0, 0.5, 1]])
    assert recording.answers.tolist() == [["Oslo", "Oslo", None], ["Oslo"] * 3]


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([row(r=1), row(r=1)], "more than once"),
        ([row(r=1), row(r=3)], "round 2"),
        ([row("a", 0), row("a", 1), row("b", 1)], "'b' lacks"),
        ([row(r=2)], "not at 2"),
        ([row(r=-1), row(r=0)], "not at -1"),
        ([row(end="bored")], "bored"),
        ([row(end=None)], "unknown end"),
        ([], "no rounds"),
    ],
)
def test_rows_that_contradict_each_other_are_refused(tmp_path, rows, says):
    with pytest.raises(DataError, match=says):
        written(tmp_path / "r.parquet", rows or build_table([row()]).slice(0, 0))


@pytest.mark.parametrize("name", ["question_id", "round"])
def test_without_an_identity_there_is_no_recording(tmp_path, name):
    incomplete = row()
    del incomplete[name]
    with pytest.raises(SchemaError, match=f"'{name}'"):
        written(tmp_path / "r.parquet", [incomplete])


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"question_id": [1, 2]}, "question_id"),
        ({"question_id": ["a", None]}, "question_id"),
        ({"round": ["one", "two"]}, "round"),
        ({"round": [1, None]}, "round"),
        ({"round": [1.0, 1.5]}, "round"),
        ({"round": [1, 2_000_000_000]}, "round"),
    ],
)
def test_identities_of_another_kind_are_refused_not_guessed(tmp_path, changes, says):
    table = pa.table({"question_id": ["a", "a"], "round": [1, 2], **changes})
    with pytest.raises(DataError, match=says):
        written(tmp_path / "r.parquet", table)


def test_a_missing_file_a_folder_and_foreign_files_are_told(tmp_path):
    with pytest.raises(DataError, match="exist"):
        read_recording(tmp_path / "nowhere.parquet")
    with pytest.raises(DataError, match="without a recording"):
        read_recording(tmp_path)
    pq.write_table(pa.table({"question_id": ["a"], "round": [1]}), tmp_path / "foreign.parquet")
    with pytest.raises(SchemaError, match="suffice import"):
        read_recording(tmp_path / "foreign.parquet")
    (tmp_path / "text.parquet").write_bytes(b"\xff\xfe not parquet at all")
    with pytest.raises(SchemaError, match="corrupt"):
        read_recording(tmp_path / "text.parquet")


@pytest.mark.parametrize(
    "header",
    [
        b"{}",
        b"[]",
        b"not json",
        b"\xff",
        b'{"format": "suffice.recording", "version": 99}',
        b'{"format": "suffice.recording"}',
        b'{"format": "other", "version": 1}',
    ],
)
def test_another_version_or_header_is_refused(tmp_path, header):
    table = build_table([row()]).replace_schema_metadata({META_KEY: header})
    pq.write_table(table, tmp_path / "r.parquet")
    with pytest.raises(SchemaError, match=r"format|header|version"):
        read_recording(tmp_path / "r.parquet")


def test_a_file_cut_anywhere_is_an_error_or_nothing_changed(tmp_path):
    path = tmp_path / "r.parquet"
    written(path, [row(f"q{i}", r, text="x" * 50) for i in range(20) for r in (1, 2)])
    whole = path.read_bytes()
    for length in range(0, len(whole), 10):
        path.write_bytes(whole[:length])
        with pytest.raises(SchemaError):
            read_recording(path)


def test_a_flipped_byte_never_raises_anything_but_our_errors(tmp_path):
    path = tmp_path / "r.parquet"
    written(path, [row(f"q{i}", r, answer_margin=0.5) for i in range(5) for r in (1, 2)])
    whole = path.read_bytes()
    for place in range(0, len(whole), 10):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            recording = read_recording(path)
            recording.column("answer_margin")
        except SufficeError:
            pass


def test_select_keeps_what_is_asked_for_and_the_metadata(tmp_path):
    rows = [row(f"q{i}", r, em=float(i)) for i in range(3) for r in (1, 2)]
    recording = written(tmp_path / "r.parquet", rows, {"config": {"a": 1}})
    chosen = recording.select(np.array([True, False, True]))
    assert chosen.question_ids == ["q0", "q2"]
    assert chosen.metadata == recording.metadata
    assert chosen.column("em").tolist() == [[0, 0], [2, 2]]
    with pytest.raises(DataError, match="no rounds"):
        recording.select(np.zeros(3, dtype=bool))


def test_unknown_and_textual_columns_are_told():
    recording = Recording(build_table([row(mine="text")]))
    with pytest.raises(UnknownSignalError, match="'nothing'"):
        recording.column("nothing")
    with pytest.raises(DataError, match="not numbers"):
        recording.column("mine")


def test_the_hash_changes_with_answers_and_metrics_and_not_with_times():
    base = [row(r=1, em=0.0, recorded_at=1.0), row(r=2, em=1.0, recorded_at=2.0)]
    hashes = {
        name: Recording(build_table(rows)).data_hash
        for name, rows in {
            "base": base,
            "later": [{**one, "recorded_at": 9.0} for one in base],
            "answer": [base[0], {**base[1], "answer": "Lima"}],
            "metric": [base[0], {**base[1], "em": 0.0}],
            "question": [{**one, "question_id": "p"} for one in base],
            "shorter": base[:1],
        }.items()
    }
    assert hashes["base"] == hashes["later"]
    assert len(set(hashes.values())) == 5


def test_a_failing_write_leaves_the_old_file_and_no_litter(tmp_path, monkeypatch):
    path = tmp_path / "r.parquet"
    written(path, [row()])
    before = path.read_bytes()

    def fails(writer, table):
        raise OSError(28, "no space left on device")

    monkeypatch.setattr(pq.ParquetWriter, "write_table", fails)
    with pytest.raises(DataError, match="no space"):
        write_recording(path, [row(r=1), row(r=2)])
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.iterdir()] == ["r.parquet"]


def test_a_folder_that_is_missing_is_made(tmp_path):
    assert written(tmp_path / "a" / "b" / "r.parquet", [row()]).shape == (1, 1)


def test_the_header_is_json_with_format_and_version(tmp_path):
    written(tmp_path / "r.parquet", [row()], {"note": "ü"})
    header = json.loads(pq.read_schema(tmp_path / "r.parquet").metadata[META_KEY])
    assert header == {"format": "suffice.recording", "version": RECORDING_VERSION, "note": "ü"}


def test_a_path_that_looks_like_a_partition_adds_no_column(tmp_path):
    folder = tmp_path / "model=x"
    recording = written(folder / "r.parquet", [row()])
    assert "model" not in recording.table.column_names
