"""A streamed replay of any division of a recording, in any number of processes, has the same figures."""

import itertools
import json
from functools import reduce
from operator import add

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings, strategies as st

from suffice.cli.main import run
from suffice.errors import SchemaError
from suffice.evaluation.replay import parts, replay
from suffice.evaluation.replay.blocks import Source
from suffice.evaluation.replay.prices import Price, with_priced_spend
from suffice.evaluation.statistics import Resampling
from suffice.recordings.file_checks import DIGEST_KEY, ColumnDigest
from suffice.recordings.opened import write_tables
from suffice.recordings.recording import read_recording, write_recording
from suffice.recordings.text_keys import text_keys
from tests.support.replayed import assert_same_replay, replay_in_blocks

FEW = Resampling(n_resamples=50)


def questions(n: int, seed: int = 0) -> list[dict]:
    rng = np.random.default_rng(seed)
    return [
        {
            "question_id": f"q{q}",
            "round": r,
            "end": "max_rounds" if q % 3 else "exhausted",
            "answer": None if rng.random() < 0.1 else f"a{rng.integers(3)}",
            "score_gap": rng.random(),
            "cost.generator.calls": 1.0,
            "cost.generator.seconds": rng.random() if rng.random() < 0.9 else None,
            "f1": rng.random(),
            "em": float(q % 2),
        }
        for q in range(n)
        for r in range(1, 5 if q % 3 else 3)
    ]


def in_row_groups(path, rows: list[dict], cuts: list[int]) -> None:
    """Write a recording whose row groups begin at `cuts`."""
    whole = path.with_name("whole.parquet")
    write_recording(whole, rows, kinds={"score_gap": "signal"})
    table = pq.read_table(whole)
    table = table.replace_schema_metadata(read_recording(whole).table.schema.metadata)
    ends = sorted({0, *cuts, table.num_rows})
    pieces = [table.slice(a, b - a) for a, b in itertools.pairwise(ends)]
    write_tables(path, table.schema, pieces)
    assert pq.ParquetFile(path).metadata.num_row_groups == len(pieces)


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 9), st.lists(st.integers(1, 30), max_size=6), st.integers(1, 12), st.integers(1, 40))
def test_pieces_of_a_file_whose_questions_straddle_row_groups_are_the_file(
    tmp_path_factory, n, cuts, block_rows, piece_rows
):
    path = tmp_path_factory.mktemp("pieces") / "r.parquet"
    rows = questions(n)
    in_row_groups(path, rows, [cut for cut in cuts if cut < len(rows)])
    whole = replay_in_blocks(path, "score_gap > 0.7", baseline="fixed_k(1)", resampling=FEW)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts, "PIECE_ROWS", piece_rows)
        some = replay_in_blocks(path, "score_gap > 0.7", baseline="fixed_k(1)", resampling=FEW, block_rows=block_rows)
    assert_same_replay(some, whole)


@pytest.mark.parametrize("block_rows", [1, 5, 9, 40])
def test_money_that_a_log_lacks_is_the_same_in_any_block(tmp_path, block_rows):
    path = tmp_path / "r.parquet"
    tokens = {f"cost.generator.{kind}": 1e5 for kind in ("uncached_tokens", "cached_tokens", "output_tokens")}
    rows = [
        {
            **row,
            **tokens,
            "spend": None if row["question_id"] in ("q1", "q5") and row["round"] > 1 else row["round"] / 4,
        }
        for row in questions(9)
    ]
    in_row_groups(path, rows, [7, 11])
    priced = {"prices": Price(uncached=1, cached=1, output=1), "baseline": "full", "resampling": FEW}
    whole = replay_in_blocks(path, "spend > 0.28", **priced)
    assert_same_replay(replay_in_blocks(path, "spend > 0.28", **priced, block_rows=block_rows), whole)
    one, *others = (
        with_priced_spend(read_recording(path).select(own), priced["prices"]) for own in np.eye(9, dtype=bool)
    )
    assert one.column("spend")[0].tolist()[:2] == [0.25, 0.5]
    assert others[0].column("spend")[0].tolist() == pytest.approx([0.3, 0.6, 0.9, 1.2])


def test_a_damaged_column_shows_when_its_pieces_are_added(tmp_path, monkeypatch):
    path, changed = tmp_path / "r.parquet", tmp_path / "changed.parquet"
    in_row_groups(path, questions(12), [5, 11, 20])
    file = pq.ParquetFile(path)
    with pq.ParquetWriter(changed, file.schema_arrow) as writer:
        for group in range(file.metadata.num_row_groups):
            table = file.read_row_group(group)
            if group == 2:
                column = table.column_names.index("f1")
                values = [0.5, *table.column("f1").to_pylist()[1:]]
                table = table.set_column(column, table.schema.field("f1"), pa.array(values, pa.float64()))
            writer.write_table(table)
        writer.add_key_value_metadata({DIGEST_KEY: file.metadata.metadata[DIGEST_KEY]})
    monkeypatch.setattr(parts, "PIECE_ROWS", 6)
    assert len(Source(path).pieces(["question_id"], 6)) == 3
    replay_in_blocks(path, "full", baseline="fixed_k(1)")
    with pytest.raises(SchemaError, match="checksum"):
        replay_in_blocks(changed, "full", baseline="fixed_k(1)")


@settings(max_examples=30, deadline=None)
@given(
    st.one_of(
        st.lists(st.none() | st.floats(), max_size=30).map(lambda values: pa.array(values, pa.float64())),
        st.lists(st.none() | st.text(max_size=4), max_size=30).map(lambda values: pa.array(values, pa.string())),
        st.lists(st.none() | st.booleans(), max_size=30).map(lambda values: pa.array(values, pa.bool_())),
    ),
    st.lists(st.integers(0, 30), max_size=4),
)
def test_checksums_of_pieces_add_up_to_that_of_the_column(column, cuts):
    ends = sorted({0, *(min(cut, len(column)) for cut in cuts), len(column)})
    pieces = []
    for begin, end in itertools.pairwise(ends):
        pieces.append(ColumnDigest(begin))
        pieces[-1].update(column.slice(begin, end - begin))
    whole = ColumnDigest()
    whole.update(column)
    assert reduce(add, pieces, ColumnDigest()).value == whole.value
    if len(pieces) > 1:
        with pytest.raises(ValueError, match="the order of"):
            pieces[1] + pieces[0]


@given(st.lists(st.text(max_size=20), max_size=20))
def test_a_key_depends_on_the_text_alone(texts):
    keys = text_keys(pa.array(texts, pa.string())).tolist()
    assert len(set(keys)) == len(set(texts))
    assert keys == [text_keys(pa.array([text])).item() for text in texts]
    padded = pa.array(["x", *texts, "y" * 30], pa.string()).slice(1, len(texts))
    assert text_keys(padded).tolist() == keys
    assert text_keys(pa.chunked_array([padded, pa.array(texts, pa.string())])).tolist() == keys * 2
    assert text_keys(pa.array(texts, pa.string()), np.arange(len(texts))[::-1]).tolist() == keys[::-1]


def test_a_cut_question_has_bounds_in_any_piece(tmp_path, monkeypatch):
    rows = questions(9)
    rows[-1]["end"] = rows[-2]["end"] = rows[-3]["end"] = rows[-4]["end"] = "rule"
    del rows[-1]
    in_row_groups(tmp_path / "r.parquet", rows, [8, 16])
    monkeypatch.setattr(parts, "PIECE_ROWS", 4)
    found = replay_in_blocks(tmp_path / "r.parquet", "full", baseline="fixed_k(1)", block_rows=3)
    assert found.rows[0].n_censored == 1
    assert_same_replay(found, replay(read_recording(tmp_path / "r.parquet"), "full", baseline="fixed_k(1)"))


@pytest.mark.whole
def test_processes_give_the_figures_of_one(tmp_path, capsys):
    folder = tmp_path / "log"
    folder.mkdir()
    rows = questions(60)
    for part in range(2):
        own = [row for row in rows if int(row["question_id"][1:]) % 2 == part]
        write_recording(folder / f"part-{part}.parquet", own, kinds={"score_gap": "signal"})
    results = []
    for jobs in ("1", "2"):
        command = ["replay", str(folder), "--rule", "score_gap > 0.7", "--baseline", "fixed_k(1)"]
        with pytest.raises(SystemExit) as left:
            run([*command, "--jobs", jobs, "--json"])
        assert left.value.code == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0] == results[1]
    assert results[0]["n"] == 60
    damaged = folder / "part-1.parquet"
    damaged.write_bytes(damaged.read_bytes()[:-200] + bytes(200))
    with pytest.raises(SystemExit) as left:
        run(["replay", str(folder), "--rule", "full", "--jobs", "1"])
    assert left.value.code == 1
    assert "part-1.parquet" in capsys.readouterr().err
