"""A recording that is put together piece by piece is the one that was put together at once."""

from __future__ import annotations

import contextlib
import json
import math
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from suffice import Reply, ScriptedModel, record
from suffice.errors import ConfigMismatchError, SchemaError
from suffice.loops.assembly import Assembly
from suffice.recordings import Journal, read_recording, write_recording
from suffice.recordings.file_checks import DIGEST_KEY
from suffice.recordings.opened import write_tables
from suffice.recordings.recording import open_recording
from suffice.recordings.schema import Columns, build_table, cost_names, fill_costs
from suffice.recordings.stored import StoredRows
from tests.support.recording import scripted

TEXT = st.text(max_size=8)
NUMBER = st.floats(allow_nan=True, allow_infinity=True)
COLUMNS = {
    "answer": st.none() | TEXT,
    "passage_ids": st.none() | st.lists(TEXT, max_size=3),
    "embedding": st.none() | st.lists(st.floats(-1, 1, width=32), max_size=3),
    "answer_margin": st.none() | NUMBER,
    "em": st.none() | st.sampled_from([0.0, 1.0]),
    "cost.generator.calls": st.none() | st.integers(0, 9).map(float),
    "cost.judge:j.calls": st.integers(0, 9).map(float),
    "my text": st.none() | TEXT,
}
ANYTHING = (
    st.none() | TEXT | NUMBER | st.integers(-(2**40), 2**40) | st.booleans() | st.lists(st.integers(), max_size=2)
)
LOOSE = {
    **COLUMNS,
    "mine": ANYTHING,
    "my number": st.none() | NUMBER | st.integers(-5, 5),
    "my own": st.none() | NUMBER,
    "nothing": st.none(),
}


def at_once(rows, kinds):
    """Return rows as one table, column by column: each is known before it is built."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    arrays, types = [], []
    for name in names:
        values = [row.get(name) for row in rows]
        there = [value for value in values if value is not None]
        numbers = bool(there) and all(type(value) in (int, float) for value in there)
        if name == "round":
            types.append(pa.int16())
        elif name in ("golds", "passage_ids"):
            types.append(pa.list_(pa.string()))
        elif name == "embedding":
            types.append(pa.list_(pa.float32()))
        elif numbers or name in ("answer_margin", "em") or name.startswith("cost.") or name in kinds:
            types.append(pa.float64())
            values = [None if v is None or math.isnan(v) else float(v) for v in values]
        else:
            types.append(pa.string())
            values = [v if v is None or isinstance(v, str) else json.dumps(v) for v in values]
        arrays.append(pa.array(values, types[-1]))
    return pa.table(arrays, names=names)


@st.composite
def questions_of(draw, columns, prefix, least=0):
    """Draw questions with one to three rounds, whose columns need not be the same."""
    found = {}
    for q in range(draw(st.integers(least, 5))):
        name, end = f"{prefix}{q}", draw(st.sampled_from(["max_rounds", "exhausted", "failed"]))
        found[name] = [
            {
                "question_id": name,
                "round": r,
                "end": end,
                "question": "?",
                **{
                    column: draw(columns[column])
                    for column in draw(st.lists(st.sampled_from(sorted(columns)), unique=True))
                },
            }
            for r in range(1, draw(st.integers(1, 3)) + 1)
        ]
    return found


def pieces(rows, size):
    return [rows[start : start + size] for start in range(0, len(rows), size)]


@settings(max_examples=60, deadline=None)
@given(questions_of(LOOSE, "q", least=1), st.integers(1, 6))
def test_the_tables_of_pieces_of_rows_are_the_table_of_all(questions, size):
    rows = [row for found in questions.values() for row in found]
    kinds = {"my own": "signal"}
    columns = Columns(kinds)
    for piece in pieces(rows, size):
        columns.add(piece)
    tables = [columns.table(piece) for piece in pieces(rows, size)]
    whole = build_table(rows, kinds)
    assert all(table.schema.equals(whole.schema, check_metadata=True) for table in tables)
    assert pa.concat_tables(tables).equals(whole)
    assert whole.equals(at_once(rows, kinds))
    assert columns.blank == {n for n in whole.column_names if all(row.get(n) is None for row in rows)}


@settings(max_examples=20, deadline=None)
@given(questions_of(LOOSE, "q", least=1), st.integers(1, 6))
def test_writing_in_pieces_and_at_once_gives_equal_checksums(questions, size):
    table = build_table([row for found in questions.values() for row in found])
    with tempfile.TemporaryDirectory() as folder:
        whole, parts = Path(folder) / "whole.parquet", Path(folder) / "parts.parquet"
        write_recording(whole, table, {"mine": 1})
        write_tables(parts, table.schema, (table[i : i + size] for i in range(0, len(table), size)), {"mine": 1})
        a, b = (pq.read_metadata(path) for path in (whole, parts))
        assert a.metadata[DIGEST_KEY] == b.metadata[DIGEST_KEY]
        assert b.num_row_groups == math.ceil(len(table) / size)
        assert read_recording(whole).table.equals(read_recording(parts).table, check_metadata=True)


def put_together(new, old, order):
    """Return new and old rows in the order of the questions, all in memory."""
    rows = [dict(row) for name in order for row in new.get(name, [])]
    fill_costs(rows, cost_names(rows))
    parts = ([build_table(rows)] if rows else []) + old
    table = pa.concat_tables(parts, promote_options="permissive")
    place = {name: position for position, name in enumerate(order)}
    keys = [place[name] for name in table.column("question_id").to_pylist()]
    return table.take(pa.array(sorted(range(len(table)), key=keys.__getitem__)))


@settings(max_examples=30, deadline=None)
@given(questions_of(COLUMNS, "new"), questions_of(COLUMNS, "old", least=1), st.data())
def test_new_and_stored_rows_follow_the_order_of_questions(new, old, data):
    order = data.draw(st.permutations([*new, *old, "never answered"]))
    dropped = data.draw(st.sets(st.sampled_from(sorted(old)), max_size=len(old) - (not new)))
    kept = [name for name in old if name not in dropped]
    with tempfile.TemporaryDirectory() as folder, contextlib.closing(Journal(Path(folder) / "j", {})) as journal:
        path = Path(folder) / "r.parquet"
        write_recording(path, [row for rows in old.values() for row in rows])
        table = read_recording(path).table
        stays = pa.array([name in kept for name in table.column("question_id").to_pylist()])
        expected = put_together(new, [table.filter(stays)] if kept else [], order)
        for name, rows in new.items():
            (journal.cut_short if rows[0]["end"] == "failed" else journal.finish)(name, rows)
        costs = cost_names(row for rows in new.values() for row in rows)
        stored = StoredRows(path, open_recording(path))
        held = data.draw(st.integers(1, 9))
        whole = Assembly(journal, new, costs=costs, stored=stored, kept=kept, order=order, rows=held)
        whole.write(path, {"mine": 1})
        found = read_recording(path)
        assert sorted(item.name for item in Path(folder).iterdir() if item.suffix == ".tmp") == []
        groups = pq.read_metadata(path)
        sizes = [groups.row_group(i).num_rows for i in range(groups.num_row_groups)]
    assert found.table.replace_schema_metadata().equals(expected.replace_schema_metadata())
    for field in expected.schema:
        told = {
            key: value for key, value in found.table.schema.field(field.name).metadata.items() if b"PARQUET" not in key
        }
        assert told == {key: value for key, value in field.metadata.items() if b"PARQUET" not in key}
    assert found.metadata["mine"] == 1
    assert max(sizes) <= max(held, 3)  # a question is not split
    assert whole.sizes == {name: len((new | old)[name]) for name in order if name in new or name in kept}
    assert whole.complete == {name for name in whole.sizes if (new | old)[name][0]["end"] != "failed"}


@pytest.mark.parametrize("values", [(math.nan, 0.5), (0.5, math.nan)])
def test_an_own_measure_may_be_defined_in_only_one_run(values, tmp_path):
    questions, loop = scripted(n=2, rounds=1)
    script = {
        question.question: [None, Reply(answer="a", signals={"mine": value})]
        for question, value in zip(questions, values, strict=True)
    }
    loop = replace(loop, model=ScriptedModel(script))
    path = tmp_path / "r.parquet"
    record(questions[:1], loop, path)
    record(questions, loop, path)
    np.testing.assert_array_equal(read_recording(path).column("mine")[:, 0], values)


def test_columns_and_kinds_of_the_file_stay_when_a_question_is_added(tmp_path):
    questions, loop = scripted(n=2, rounds=2)
    path = tmp_path / "r.parquet"
    record(questions[:1], loop, path)
    before = read_recording(path)
    mark = pa.field("mark", pa.float64(), metadata={"kind": "metric", "unit": "score"})
    more = before.table.append_column(mark, pa.array([0.5, 0.75])).append_column("note", pa.array(["x", "y"]))
    write_recording(path, more, before.metadata)
    record(questions, loop, path)
    after = read_recording(path)
    assert "mark" in after.names("metric")
    assert after.table.column("mark").to_pylist() == [0.5, 0.75, None, None]
    assert after.table.column("note").to_pylist() == ["x", "y", None, None]


def test_a_file_without_a_column_that_recording_writes_is_not_added_to(tmp_path):
    questions, loop = scripted(n=2, rounds=1)
    path = tmp_path / "r.parquet"
    record(questions[:1], loop, path)
    before = read_recording(path)
    write_recording(path, before.table.drop_columns(["question"]), before.metadata)
    calls = loop.model.calls
    with pytest.raises(SchemaError, match="'question'"):
        record(questions, loop, path)
    write_recording(path, before.table.drop_columns(["question"]), {})
    with pytest.raises(ConfigMismatchError):
        record(questions, loop, path)
    assert loop.model.calls == calls


def test_a_journal_that_lost_the_rows_of_a_question_is_damaged(tmp_path):
    with contextlib.closing(Journal(tmp_path / "j", {})) as journal:
        journal.finish("q0", [{"round": 1}])
        assert journal.rows("q0") == [{"round": 1}]
        with pytest.raises(SchemaError, match="is damaged"):
            journal.rows("q1")


def test_rows_that_were_cut_short_go_when_the_journal_is_closed(tmp_path):
    for _ in range(2):
        with contextlib.closing(Journal(tmp_path / "j", {})) as journal:
            assert journal.questions() == set()
            assert list(journal.finished()) == []
            with pytest.raises(SchemaError):
                journal.rows("q0")
            journal.cut_short("q0", [{"round": 1}])
            assert journal.rows("q0") == [{"round": 1}]
