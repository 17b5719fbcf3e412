"""Large tables are read part by part, with the same result as in one piece."""

from __future__ import annotations

import csv
import json
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice import import_recording
from suffice.adapters import streaming
from suffice.errors import DataError, UnsettledError
from suffice.store import read_recording

N = 60


def rows(n=N, *, shuffle=False):
    """Return rows of questions of one to four rounds, some with a text of another question."""
    draw = random.Random(1)
    table = [
        {
            "qid": f"q{q}",
            "attempt": r,
            "query": f"Where is tower {q % 50}?",
            "prediction": draw.choice(["Oslo", "Lima", "the Rome"]),
            "target": draw.choice(["Oslo", "Rome"]) if r == 0 else None,
            "reward": draw.choice([0, 0.5, 1]),
            "prompt_tokens": 100 * r,
            "cached_tokens": 10 * r,
            "llm": "small",
            "extra": f"x{q}" if q > n // 2 else None,
        }
        for q in range(n)
        for r in range(1 + (q % 4 if q % 3 else 3))
    ]
    if shuffle:
        draw.shuffle(table)
    return table


def write(path, table):
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(table), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(table[0]))
            writer.writeheader()
            writer.writerows(table)
    else:
        path.write_text("".join(json.dumps({k: v for k, v in row.items() if v is not None}) + "\n" for row in table))
    return path


@pytest.fixture
def in_parts(monkeypatch):
    """Return what lets every table be read in parts of some questions."""

    def start():
        monkeypatch.setattr(streaming, "LARGE", 0)
        monkeypatch.setattr(streaming, "_PART", 25)

    return start


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
def test_a_table_read_in_parts_gives_the_recording_that_it_gives_in_one_piece(ending, tmp_path, in_parts):
    source = write(tmp_path / f"log{ending}", rows())
    whole = import_recording(source, out=tmp_path / "whole.parquet")
    in_parts()
    parts = import_recording(source, out=tmp_path / "parts.parquet")
    assert any("first rows" in note for note in parts.notes)
    assert [note for note in parts.notes if "first rows" not in note] == list(whole.notes)
    for name in ("trajectories", "clusters", "rounds", "censored", "ends", "readings"):
        assert getattr(parts, name) == getattr(whole, name), name
    assert {item.name: item for item in parts.columns} == {item.name: item for item in whole.columns}
    assert [(item.round, item.n, item.scored) for item in parts.by_round] == [
        (item.round, item.n, item.scored) for item in whole.by_round
    ]
    assert [item.em for item in parts.by_round] == pytest.approx([item.em for item in whole.by_round], nan_ok=True)
    one, other = (read_recording(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert set(one.table.column_names) == set(other.table.column_names)
    assert (
        other.table.select(one.table.column_names).drop_columns(["cluster"]).equals(one.table.drop_columns(["cluster"]))
    )
    same = {(a, b) for a, b in zip(one.clusters, other.clusters, strict=True)}
    assert len(same) == whole.clusters < whole.trajectories
    assert not list(tmp_path.glob(".*"))  # the parts are gone


def test_rows_that_are_not_adjacent_and_tables_that_are_not_long_are_read_in_one_piece(tmp_path, in_parts):
    in_parts()
    mixed = import_recording(write(tmp_path / "mixed.csv", rows(shuffle=True)), out=tmp_path / "r.parquet")
    sorted_ = import_recording(write(tmp_path / "sorted.csv", rows()), out=tmp_path / "s.parquet")
    assert not any("first rows" in note for note in mixed.notes)
    assert (mixed.trajectories, mixed.rounds, mixed.ends) == (sorted_.trajectories, sorted_.rounds, sorted_.ends)
    nested = [{"id": q, "drafts": ["a", "b"]} for q in range(40)]
    path = tmp_path / "nested.jsonl"
    path.write_text("".join(json.dumps(item) + "\n" for item in nested))
    assert import_recording(path, out=tmp_path / "n.parquet").trajectories == 40
    twice = [{**row, "seed": seed} for row in rows(4) for seed in (1, 2)]
    assert import_recording(write(tmp_path / "runs.csv", twice), out=tmp_path / "t.parquet").trajectories == 8


def test_a_value_that_contradicts_the_first_rows_is_named_and_nothing_is_written(tmp_path, in_parts):
    in_parts()
    table = rows()
    table[-1]["reward"] = 7
    with pytest.raises(DataError, match=rf"line {len(table) + 1}: reward is 7.0"):
        import_recording(write(tmp_path / "log.csv", table), out=tmp_path / "r.parquet")
    copied = [{**row, "target": row["prediction"]} for row in rows() if row["attempt"] == 0]
    copied = [{**row, "attempt": r} for row in copied for r in (1, 2)]
    source = write(tmp_path / "copied.csv", copied)
    with pytest.raises(UnsettledError, match="--log-golds keep"):
        import_recording(source, out=tmp_path / "r.parquet")
    assert {path.name for path in tmp_path.iterdir()} == {"log.csv", "copied.csv"}
    summary = import_recording(
        source, out=tmp_path / "r.parquet", settle=lambda error: error.choices["--log-golds drop"][0]
    )
    assert "golds" not in {item.ours for item in summary.readings}


def test_a_round_that_only_looks_like_a_number_is_refused_in_parts_too(tmp_path, in_parts):
    table = rows()
    table[3]["attempt"] = "²"
    path = write(tmp_path / "a.csv", table)
    in_parts()
    with pytest.raises(DataError, match=r"expected a number"):
        import_recording(path, out=tmp_path / "out.parquet")
