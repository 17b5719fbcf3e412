"""Large tables are read part by part, with the same result as in one piece."""

from __future__ import annotations

import csv
import gzip
import json
import math
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice import import_recording
from suffice.common.json_text import array_items, load_json
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.files import recognise
from suffice.importers.tables import table_parts
from suffice.policy.signals import definitions, register_signal
from suffice.recordings import read_recording
from tests.support.cli_tools import CITIES

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


class Letters:
    """Embed a text by its lengths and letters."""

    id, revision, pooling = "letters", "1", "sum"

    def embed(self, texts):
        return np.array([[1.0, len(text), sum(map(ord, text))] for text in texts], dtype=np.float32)


@pytest.fixture
def in_parts(monkeypatch):
    """Return what lets every table be read in parts of some questions, or none."""

    def start(every=True):
        monkeypatch.setattr(table_parts, "LARGE", 0 if every else math.inf)
        monkeypatch.setattr(table_parts, "PART", 40)  # the first rows do not show what comes late
        monkeypatch.setattr(table_parts, "_ROUNDS_A_RECORD", 2)
        monkeypatch.setattr(recognise, "LARGE_DOCUMENT", 0 if every else math.inf)
        monkeypatch.setattr(recognise, "_PIECE", 100)

    return start


@pytest.fixture
def both(tmp_path, in_parts):
    """Return what imports a source in one piece and in parts, compares the two, and returns the summary."""

    def compare(source, **options):
        in_parts(False)
        whole = import_recording(source, out=tmp_path / "whole.parquet", **options)
        in_parts()
        parts = import_recording(source, out=tmp_path / "parts.parquet", **options)
        assert [note for note in parts.notes if "first rows" not in note] == list(whole.notes)
        assert len(parts.notes) == len(whole.notes) + 1
        for name in ("trajectories", "clusters", "rounds", "censored", "ends", "readings"):
            assert getattr(parts, name) == getattr(whole, name), name
        assert {item.name: item for item in parts.columns} == {item.name: item for item in whole.columns}
        for one, other in zip(parts.by_round, whole.by_round, strict=True):
            assert (one.round, one.n, one.scored) == (other.round, other.n, other.scored)
            assert [one.em, one.f1] == pytest.approx([other.em, other.f1], nan_ok=True)
        one, other = (read_recording(tmp_path / f"{name}.parquet").table for name in ("whole", "parts"))
        assert other.column_names == one.column_names
        for name in one.column_names:
            assert other.column(name).equals(one.column(name)), name
            assert other.schema.field(name).equals(one.schema.field(name), check_metadata=True), name
        assert not list(tmp_path.glob(".*"))  # the parts are gone
        return parts

    return compare


def lines(path, records):
    content = "".join(json.dumps(record) + "\n" for record in records).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_importing_in_parts_equals_importing_at_once(ending, tmp_path, both):
    summary = both(write(tmp_path / f"log{ending}", rows()))
    assert summary.clusters < summary.trajectories


def test_embedded_answers_of_parts_are_those_of_one_piece(tmp_path, both):
    both(write(tmp_path / "log.csv", rows()), embedder=Letters())
    recording = read_recording(tmp_path / "parts.parquet")
    assert recording.metadata["depends"]["embedder"]["id"] == "letters"
    assert not np.isnan(recording.column("semantic_distance")[:, 1:]).all()


def test_scattered_rounds_are_joined_in_question_order(tmp_path, both):
    assert both(write(tmp_path / "mixed.csv", rows(shuffle=True))).trajectories == N


def test_a_question_at_both_ends_of_a_file_is_one_trajectory(tmp_path, both):
    table = rows()
    last = next(row for row in table[1:] if row["qid"] == "q0" and row["attempt"] == 1)
    table.remove(last)
    assert both(write(tmp_path / "apart.csv", [*table, last])).trajectories == N


def test_rows_without_numbers_of_rounds_count_in_their_order(tmp_path, both):
    table = [{"id": f"q{q}", "response": f"{q} {r}", "messages": "x"} for q in range(N) for r in range(q % 3 + 1)]
    assert both(lines(tmp_path / "log.jsonl", table)).rounds == 3
    table.sort(key=lambda row: row["response"][-1])
    both(lines(tmp_path / "log.jsonl", table))


def drafts(n=N, seed=1):
    """Return records with a list of rounds each; fields of some rounds and records appear late."""
    draw = random.Random(seed)
    return [
        {
            "id": f"q{q}",
            "question": f"Where is tower {q % 50}?",
            "gold": draw.choice(["Oslo", "Rome"]),
            "score": q,
            "steps": [
                {
                    "draft": draw.choice(["Oslo", "Lima", "the Rome"]),
                    "confidence": draw.random(),
                    "critique": draw.choice(["APPROVED", "More.", None]),
                    "usage": {"prompt_tokens": 100 + r, "completion_tokens": 5},
                    **({"score": 0.5} if q > 40 else {}),
                    **({"late": [r]} if q > 50 else {}),
                }
                for r in range(q % 4)
            ],
        }
        for q in range(n)
    ]


def test_records_with_their_rounds_in_a_list_are_read_in_parts(tmp_path, both):
    summary = both(lines(tmp_path / "log.jsonl.gz", drafts()))
    assert summary.trajectories == 45
    assert "15 records without a round left out" in summary.notes


def test_a_json_array_is_read_item_by_item(tmp_path, both):
    path = tmp_path / "log.json"
    content = json.dumps([{**item, "place": "Zürich \ud800"} for item in drafts()], indent=1).encode()
    path.write_bytes(gzip.compress(content))
    assert both(path).trajectories == 45
    path.write_bytes(content[:-200])  # not packed
    with pytest.raises(DataError, match="record 59"):
        import_recording(path, out=tmp_path / "r.parquet")


def in_pieces(text, size):
    return array_items(text[place : place + size] for place in range(0, len(text), size))


@pytest.mark.parametrize("size", range(1, 9))
def test_array_items_do_not_depend_on_where_the_text_is_cut(size):
    for text in (
        "[]",
        " [ ] ",
        '[1, 2.5,"a,]\\"" , {"a":[1,{"b":"]"}]},null]',
        "[[1],[2e3]]\n",
        '["\\ud83d\\ude00 \\ud83d"]',
    ):
        assert [*in_pieces(text, size)] == load_json(text)


@pytest.mark.parametrize(
    "text", ["", "[", "[1", "[1,", "[1,]", "[1 2]", "[1]x", '{"a":1}', "[,1]", "[nul]", "[" * 100_000]
)
def test_what_is_not_an_array_is_refused(text):
    for size in (3, 200_000):
        with pytest.raises(ValueError):
            [*in_pieces(text, size)]


def test_a_large_document_is_announced_before_it_is_read_in_one_piece(tmp_path, in_parts, caplog, monkeypatch):
    monkeypatch.setattr(table_parts, "_LARGE_PIECE", 1000)
    in_parts()
    path = tmp_path / "log.json"
    path.write_text(json.dumps({"model": "small", "data": drafts()}))
    assert import_recording(path, out=tmp_path / "r.parquet").trajectories == 45
    (record,) = caplog.records
    assert "read in one piece" in record.getMessage()
    assert "JSON lines" in record.getMessage()
    caplog.clear()
    import_recording(lines(tmp_path / "log.jsonl", drafts()), out=tmp_path / "r.parquet")
    assert not caplog.records


def test_rows_without_numbers_are_ordered_by_their_times(tmp_path, both):
    table = [
        {"id": f"q{q}", "response": f"{q} {r}", "messages": "x", "timestamp": f"2026-01-01T00:{q:02}:{9 - r:02}Z"}
        for q in range(N)
        for r in range(q % 3 + 1)
    ]
    assert any("by 'timestamp'" in note for note in both(lines(tmp_path / "log.jsonl", table)).notes)
    table[-1]["timestamp"] = None
    summary = import_recording(lines(tmp_path / "log.jsonl", table), out=tmp_path / "r.parquet")
    assert any("in their order" in note for note in summary.notes)


def test_parallel_lists_dialogues_and_columns_with_numbers_are_read_in_parts(tmp_path, both):
    lists = [{"id": q, "answers": ["a", "b"][: q % 2 + 1], "scores": [0.1, 0.9][: q % 2 + 1]} for q in range(N)]
    assert both(lines(tmp_path / "lists.jsonl", lists), expected=["sample-list"]).rounds == 2
    said = [{"role": "user", "content": "Where?"}, {"role": "assistant", "content": "Oslo", "cost": 1}]
    assert both(lines(tmp_path / "said.jsonl", [{"id": q, "messages": said * (q % 2 + 1)} for q in range(N)]))
    wide = [{"id": q, **{f"answer_{r}": f"a{q * r}" for r in range(1, 3 + (q > 50))}, "gold": "a4"} for q in range(N)]
    assert both(lines(tmp_path / "wide.jsonl", wide), expected=["sample-list"]).rounds == 3
    wide_csv = [{"answer_1": "a", "answer_2": q % 3 or "", "conf_1": 0.1, "conf_2": 0.2} for q in range(N)]
    assert both(write(tmp_path / "wide.csv", wide_csv), expected=["sample-list"]).trajectories == N
    runs = [{"id": f"q{q}", "agents": [["a", "b"], ["c"]]} for q in range(N)]
    assert both(lines(tmp_path / "runs.jsonl", runs)).trajectories == 2 * N


def test_several_runs_of_a_question_are_told_apart_in_parts(tmp_path, both):
    twice = [{**row, "seed": seed} for row in rows(30) for seed in (1, 2)]
    assert both(write(tmp_path / "seeds.csv", twice)).trajectories == 60
    nested = [record for record in drafts(30) for _ in (1, 2)]
    assert both(lines(tmp_path / "nested.jsonl", nested)).clusters < 30


def test_a_folder_is_read_in_parts(tmp_path, both, in_parts):
    folder = tmp_path / "logs"
    folder.mkdir()
    lines(folder / "b.jsonl", drafts()[:30])
    lines(folder / "a.jsonl.gz", drafts()[30:])
    (folder / "c.json").write_text(json.dumps([{**record, "id": f"c{i}"} for i, record in enumerate(drafts(20))]))
    assert both(folder).trajectories == 60
    lines(folder / "d.jsonl", [{"id": 1, "steps": []}])
    for every in (False, True):
        in_parts(every)
        with pytest.raises(SchemaError, match="file 'd'"):
            import_recording(folder, out=tmp_path / "r.parquet")


@pytest.mark.parametrize("keep", ["keep", None])
def test_gold_answers_from_a_file_are_joined_in_parts(keep, tmp_path, both):
    golds = [{"id": f"q{q}", "question": f"Where is tower {q}?", "golds": ["Rome", f"{q}"]} for q in range(0, 50, 2)]
    lines(tmp_path / "golds.jsonl", golds)
    table = [{**row, "f1": None if row["attempt"] else 0.25} for row in rows()]
    options = {"golds": tmp_path / "golds.jsonl", "log_golds": keep}
    summary = both(write(tmp_path / "log.jsonl", table), **options)
    assert any("matched" in note and "by text" in note and "missing for 'q1'" in note for note in summary.notes)
    if keep is None:
        return
    both(lines(tmp_path / "nested.jsonl", drafts()), **options)
    other = lines(tmp_path / "others.jsonl", [{"id": "z", "golds": ["Rome"]}])
    with pytest.raises(DataError, match="'q1', 'q2', 'q3'"):
        both(tmp_path / "nested.jsonl", golds=other)


def test_values_of_every_kind_are_read_in_parts_as_in_one_piece(tmp_path, both):
    draw = random.Random(2)
    table = [
        {
            "question_id": str(q),
            "round": str(r) if q % 2 else r + 0.0,
            "answer": draw.choice(["Oslo", "", None, 7, True, 0.5, "[x]", "I do not know", "  "]),
            "golds": draw.choice([["Oslo", "7"], '["Oslo"]', "Oslo"]) if q % 3 and r == 1 else None,
            "end": draw.choice(["failed", "exhausted", ""]) if r == 1 else None,
            "feedback": draw.choice(["Approved!", "Good, but unclear.", None]),
            "text": draw.choice(["Confidence: 4", "", None]),
            "answer_margin": draw.choice([40, -1, "inf", "NA", None]),
            "p_correct": draw.choice([0.5, "0.25", None]),
            "mine": draw.choice([1, True, "nan", None, 1e308]),
            "em": draw.choice([0, 1, None]),
            "cost.writer.output_tokens": draw.choice([3, None]),
            "cost.critic.calls": 1,
            "note": draw.choice([1, "x", None, [1], True]) if q > 20 else 3,
            "lexical_support": draw.choice([0.5, None]),
            "seconds": 1.5,
            **({"late": 1} if q > 50 else {}),
        }
        for q in range(N)
        for r in range(1, 2 + q % 4)
    ]
    options = {"columns": {"mine": "mine"}, "log_golds": "keep"}
    assert both(lines(tmp_path / "log.jsonl", table), **options).columns


def test_signals_of_ones_own_are_computed_in_parts(tmp_path, both):
    register_signal("count", (0, 100), name="own_length")(lambda rounds: len(rounds[-1].answer or ""))
    try:
        summary = both(write(tmp_path / "log.csv", rows()))
    finally:
        del definitions._REGISTRY["own_length"]
    assert "own_length" in {item.name for item in summary.columns}


def test_records_that_differ_in_their_shape_are_read_in_one_piece(tmp_path, in_parts):
    in_parts()
    records = [{"id": q, "answers": ["a", "b"], "scores": [1, 2] if q < 50 else [1]} for q in range(N)]
    summary = import_recording(
        lines(tmp_path / "log.jsonl", records), out=tmp_path / "r.parquet", expected=["sample-list"]
    )
    assert summary.trajectories == N
    assert not any("first rows" in note for note in summary.notes)


def test_errors_in_parts_equal_errors_in_one_piece(tmp_path, in_parts):
    table = rows()
    cases = {
        "cut.jsonl": "".join(json.dumps(row) + "\n" for row in table)[:-9],
        "twice.jsonl": "".join(json.dumps(row) + "\n" for row in [*table, table[0]]),
        "gap.jsonl": "".join(json.dumps(row) + "\n" for row in table if row != table[1]),
        "label.csv": "id,step,answer,who\n" + "".join(f"{q},{r},a,{r * (q > 50)}\n" for q in range(N) for r in (1, 2)),
        "short.csv": "id,step,answer\n" + "".join(f"{q},{r},a\n" for q in range(N) for r in (1, 2)) + "60,1",
    }
    long = [(q, r) for q in range(N) for r in (1, 2)]
    cases["zero.csv"] = "id,step,answer\n" + "".join(f"{q},{r - (q == 50)},a\n" for q, r in long)
    cases["golds.csv"] = "id,step,answer,gold\n" + "".join(f"{q},{r},a,{r if q == 50 else q}\n" for q, r in long)
    for name, content in cases.items():
        (tmp_path / name).write_text(content)
    packed = gzip.compress(cases["gap.jsonl"].encode())
    (tmp_path / "cut.jsonl.gz").write_bytes(packed[:-9])

    def messages():
        for name in [*cases, "cut.jsonl.gz"]:
            labels = {"who": "who"} if name == "label.csv" else None
            with pytest.raises(DataError) as raised:
                import_recording(tmp_path / name, out=tmp_path / "r.parquet", labels=labels)
            yield str(raised.value)

    whole = [*messages()]
    in_parts()
    assert [*messages()] == whole
    assert not (tmp_path / "r.parquet").exists()


def test_a_value_contradicting_the_first_rows_is_named_and_nothing_written(tmp_path, in_parts):
    in_parts()
    table = rows()
    table[-1]["reward"] = 7
    with pytest.raises(DataError, match=f"line {len(table) + 1}"):
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


def test_a_non_numeric_round_is_refused_in_parts_too(tmp_path, in_parts):
    table = rows()
    table[3]["attempt"] = "²"
    path = write(tmp_path / "a.csv", table)
    in_parts()
    with pytest.raises(DataError, match="a number"):
        import_recording(path, out=tmp_path / "out.parquet")


@pytest.mark.parametrize("known", [lambda q: q >= 30, lambda q: q < 30], ids=["late", "early"])
def test_a_column_without_values_in_one_part_has_the_others_type(known, tmp_path, both):
    table = [
        {
            "id": q,
            "step": r,
            "answer": "a",
            "conf": 0.5 if known(q) else None,
            "nothing": None,
            "word": "x" * known(q) or None,
        }
        for q in range(N)
        for r in (1, 2)
    ]
    both(lines(tmp_path / "log.jsonl", table))
    schema = read_recording(tmp_path / "parts.parquet").table.schema
    types = {name.removeprefix("imported_"): schema.field(name).type for name in schema.names}
    assert (types["conf"], types["word"]) == (pa.float64(), pa.string())


def test_passes_over_all_questions_without_numbers_are_read_in_one_piece(tmp_path, in_parts):
    in_parts()
    passes = [{"id": q, "answer": "ab"[(q + r) % 2]} for r in range(3) for q in range(N)]
    summary = import_recording(lines(tmp_path / "log.jsonl", passes), out=tmp_path / "r.parquet")
    assert (summary.trajectories, summary.rounds) == (N, 3)


def test_few_scattered_questions_of_many_rounds_are_gathered(tmp_path, both):
    table = [{"id": q, "step": r, "answer": "ab"[q * r % 2]} for r in range(1, 61) for q in range(3)]
    assert both(lines(tmp_path / "log.jsonl", table)).trajectories == 3


def test_merged_cells_of_a_large_sheet_are_filled_down(tmp_path, in_parts):
    lines = ["id,question,gold,round,answer"]
    for q in range(40):
        for r in (1, 2, 3):
            own = f"q{q},Where is tower {q}?,{CITIES[q % 4]}" if r == 1 else ",,"
            lines.append(f"{own},{r},{CITIES[(q + r) % 4]}")
    path = tmp_path / "sheet.csv"
    path.write_text("\n".join([*lines, "Total,,,,"]) + "\n", "utf-8")
    in_parts(False)
    whole = import_recording(path, out=tmp_path / "whole.parquet")
    in_parts()
    parts = import_recording(path, out=tmp_path / "parts.parquet")
    assert (parts.clusters, parts.rounds, parts.by_round) == (40, 3, whole.by_round)
    assert any("merged cells" in note for note in parts.notes)


def test_ids_that_look_alike_far_apart_are_asked_about(tmp_path, in_parts):
    table = [{**row, "qid": f"{int(row['qid'][1:]):0{1 + 3 * (row['attempt'] > 0)}}", "query": None} for row in rows()]
    path = write(tmp_path / "log.jsonl", table)
    for every in (True, False):
        in_parts(every)
        with pytest.raises(UnsettledError, match="leading zeros"):
            import_recording(path, out=tmp_path / "r.parquet")
