"""`suffice import` of the shapes and files that people have: each is read like the same rounds as plain JSON lines."""

from __future__ import annotations

import bz2
import csv
import gzip
import io
import json
import lzma
import pickle
import shlex
import sqlite3
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from suffice import import_recording
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers import kind_of
from suffice.recordings import read_recording
from tests.support.cli_tools import cli
from tests.support.logs import paired, written

N, ROUNDS = 24, (1, 2, 3, 4)
CITIES = ("Oslo", "Lima", "Rome", "Cairo")


def said(q, r):
    return CITIES[q % 4] if r > 1 and q % 5 else "Bern"


def rows():
    return [{"id": f"q{q}", "round": r, "answer": said(q, r), "gold": CITIES[q % 4]} for q in range(N) for r in ROUNDS]


def of_questions(make):
    """Return a record for each question, with what `make` says of it."""
    return [{"id": f"q{q}", "gold": CITIES[q % 4], **make(q)} for q in range(N)]


def answers(q):
    return [said(q, r) for r in ROUNDS]


def objects(q):
    return [{"answer": answer} for answer in answers(q)]


def as_csv(records):
    sink = io.StringIO()
    table = csv.DictWriter(sink, list(records[0]))
    table.writeheader()
    table.writerows(records)
    return sink.getvalue()


def read(path, tmp_path, **options):
    """Import a file; return the answers and gold answers of each question, in the order of its rounds."""
    out = tmp_path / "out" / "read.parquet"
    out.parent.mkdir(exist_ok=True)
    import_recording(path, out=out, **options)
    table = read_recording(out).table
    result = {}
    for row in table.select(["question_id", "round", "answer", "golds"]).to_pylist():
        result.setdefault(row["question_id"], []).append((row["round"], row["answer"], row["golds"]))
    return [*result.values()]


def plain():
    """Return what the rounds are."""
    return [[(r, said(q, r), [CITIES[q % 4]]) for r in ROUNDS] for q in range(N)]


def test_rows_of_json_lines_are_read_as_they_are(tmp_path):
    assert read(written(tmp_path, rows()), tmp_path) == plain()


RECORDS = {
    "a list in an object": of_questions(lambda q: {"result": {"trace": {"steps": objects(q)}}}),
    "parallel lists in an object": of_questions(lambda q: {"log": {"run": {"answers": answers(q), "tokens": [5] * 4}}}),
    "an object of lists": of_questions(lambda q: {"rounds": {"answer": answers(q), "output_tokens": [5] * 4}}),
    "single-item lists": of_questions(lambda q: {"answers": [[answer] for answer in answers(q)]}),
    "lists of single objects": of_questions(lambda q: {"steps": [[item] for item in objects(q)]}),
    "one list in a list": of_questions(lambda q: {"drafts": [answers(q)]}),
    "rounds by number": of_questions(lambda q: {"rounds": {f"round_{r}": {"answer": said(q, r)} for r in ROUNDS}}),
    "our names": [
        {**row, "end": 0.5 * row["round"], "answer_id": i, "feedback": ["a"], "abstained": "n. s.", "round_": 1}
        for i, row in enumerate(rows())
    ],
}


@pytest.mark.parametrize("shape", RECORDS)
def test_nested_records_are_read_like_rows(shape, tmp_path):
    assert read(written(tmp_path, RECORDS[shape]), tmp_path) == plain()


def test_a_column_with_our_name_and_another_meaning_is_renamed(tmp_path):
    done = cli("import", written(tmp_path, RECORDS["our names"]), "-o", tmp_path / "log.parquet")
    assert "imported_end" in done.out + done.err
    table = read_recording(tmp_path / "log.parquet").table
    assert {"imported_end", "imported_answer_id", "imported_feedback", "imported_abstained"} <= {*table.column_names}
    assert set(table.column("end").to_pylist()) == {"max_rounds"}


@pytest.mark.parametrize(
    "name",
    [
        *("answer{}", "answer_{}", "answer-{}", "Answer {}", "answer[{}]", "answer #{}", "answer@{}", "answer.{}"),
        *(
            "round{}_answer",
            "r{}.answer",
            "r{}_answer",
            "{}_answer",
            "{}.answer",
            "t{}_answer",
            "answer_t{}",
            "answer_r{}",
        ),
        *("Round {}: answer", "answer_{}_text", "ans{}", "pred_{}"),
    ],
)
def test_numbered_columns_of_any_spelling_are_rounds(name, tmp_path):
    records = of_questions(lambda q: {name.format(r): said(q, r) for r in ROUNDS})
    assert read(written(tmp_path, records), tmp_path) == plain()


@pytest.mark.parametrize(
    ("name", "gold"),
    [
        *(("generated_answer", "gt"), ("pred_answer", "groundtruth"), ("ans", "gold_label")),
        *(("generated", "answer_key"), ("output_text", "refs"), ("llm_response", "gt")),
    ],
)
def test_usual_names_of_answers_and_golds_are_known(name, gold, tmp_path):
    records = [{"id": row["id"], "round": row["round"], name: row["answer"], gold: row["gold"]} for row in rows()]
    assert read(written(tmp_path, records), tmp_path) == plain()


DOCUMENTS = {
    "questions by id": {f"q{q}": {"gold": CITIES[q % 4], "answers": answers(q)} for q in range(N)},
    "rounds by number": {
        f"q{q}": {str(r): {"answer": said(q, r), "gold": CITIES[q % 4]} for r in ROUNDS} for q in range(N)
    },
    "rounds, then questions": {
        f"round_{r}": {f"q{q}": {"answer": said(q, r), "gold": CITIES[q % 4]} for q in range(N)} for r in ROUNDS
    },
    "split": {"columns": [*rows()[0]], "index": [*range(len(rows()))], "data": [[*row.values()] for row in rows()]},
    "index": {str(i): row for i, row in enumerate(rows())},
    "columns": {name: {str(i): row[name] for i, row in enumerate(rows())} for name in rows()[0]},
}


@pytest.mark.parametrize(("shape", "write"), paired(DOCUMENTS, [json.dumps, repr]))
def test_documents_by_key_are_read_like_rows(shape, write, tmp_path):
    path = tmp_path / "log.json"
    path.write_text(write(DOCUMENTS[shape]), "utf-8")
    assert read(path, tmp_path) == plain()


def test_rounds_of_one_question_by_number_are_its_rounds(tmp_path):
    path = tmp_path / "log.json"
    path.write_text(json.dumps({f"round_{r}": {"answer": said(1, r), "gold": "Lima"} for r in ROUNDS}))
    assert [[row[1] for row in one] for one in read(path, tmp_path)] == [answers(1)]


TEXT = "".join(json.dumps(row) + "\n" for row in rows())
ZIPPED = io.BytesIO()
with zipfile.ZipFile(ZIPPED, "w", zipfile.ZIP_DEFLATED) as archive:
    archive.writestr("log.jsonl", TEXT)
    archive.writestr("README.md", "read me")
FILES = {
    "log.jsonl.zst": pa.Codec("zstd").compress(TEXT.encode()).to_pybytes(),
    "log.jsonl.bz2": bz2.compress(TEXT.encode()),
    "log.jsonl.xz": lzma.compress(TEXT.encode()),
    "log.zip": ZIPPED.getvalue(),
    "mac.jsonl": TEXT.replace("\n", "\r").encode(),
    "mac.csv": as_csv(rows()).replace("\r\n", "\r").encode(),
    **{
        f"{encoding}.{ending}": text.encode(encoding)
        for encoding in ("utf-16", "utf-16-le", "utf-16-be")
        for ending, text in (("csv", as_csv(rows())), ("jsonl", TEXT), ("json", json.dumps(rows())))
    },
    "python.jsonl": "".join(
        f"{ ({**row, 'extra': None, 'ok': True, 'low': float('nan')})!r}\n" for row in rows()
    ).encode(),
    "python.json": ("[" + ",\n".join(map(repr, rows())) + ",]").encode(),
    "index.csv": as_csv([{"Unnamed: 0": i, **row} for i, row in enumerate(rows())]).encode(),
}


@pytest.mark.parametrize("name", FILES)
def test_packed_and_encoded_files_are_read_like_plain_ones(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(FILES[name])
    assert read(path, tmp_path) == plain()
    assert kind_of(path) == "tabular"


def test_structs_of_parquet_are_read_like_rows(tmp_path):
    nested = tmp_path / "nested.parquet"
    pq.write_table(pa.Table.from_pylist(of_questions(lambda q: {"result": {"steps": objects(q)}})), nested)
    flat = tmp_path / "flat.parquet"
    pq.write_table(
        pa.Table.from_pylist(
            [
                {"id": row["id"], "round": row["round"], "out": {"answer": row["answer"], "gold": row["gold"]}}
                for row in rows()
            ]
        ),
        flat,
    )
    assert read(nested, tmp_path) == read(flat, tmp_path) == plain()


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (pa.Codec("zstd").compress(TEXT.encode()).to_pybytes()[:-9], "not a complete"),
        (lzma.compress(TEXT.encode())[:-9], "not a complete"),
        (gzip.compress(TEXT.encode())[:-9], "not a complete"),
        (b"{'id': __import__('os').getcwd(), 'round': 1}\n{}\n", "not JSON"),
        (b"{'id': " + b"[" * 3000 + b"}\n{}\n", "not JSON"),
        (b"[{'a': '" + b"x" * (1 << 22) + b"'}]", "not JSON"),
        (b"notes, of one\n\nmore than that, and, so on\n", "--pattern"),
        (b"only prose\nand more\n", "--pattern"),
    ],
)
def test_damaged_and_foreign_files_are_refused(data, words, tmp_path):
    path = tmp_path / "log.txt"
    path.write_bytes(data)
    with pytest.raises(DataError, match=words):
        read(path, tmp_path)


# Raw calls


def openai_call(q, r):
    request = {"model": "m", "temperature": 0.5, "messages": [{"role": "user", "content": f"Tower {q}?"}]}
    reply = {
        "choices": [{"index": 0, "message": {"role": "assistant", "content": said(q, r)}, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 50, "completion_tokens": 3},
    }
    return request, reply


def anthropic_call(q, r):
    request = {"model": "m", "system": "Short.", "messages": [{"role": "user", "content": f"Tower {q}?"}]}
    reply = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "content": [{"type": "text", "text": said(q, r)}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 50, "output_tokens": 3},
    }
    return request, reply


@pytest.mark.parametrize(
    ("call", "write"),
    paired([openai_call, anthropic_call], [lambda body: body, json.dumps, lambda body: {"status": 200, "body": body}]),
)
def test_raw_calls_are_rounds_in_the_order_of_their_times(call, write, tmp_path):
    calls = [
        {
            "trace": f"q{q}",
            "created": 100 * q + r,
            "gold": CITIES[q % 4],
            **dict(zip(("request", "response"), map(write, call(q, r)), strict=True)),
        }
        for q in range(N)
        for r in reversed(ROUNDS)
    ]
    assert read(written(tmp_path / "calls.jsonl", calls), tmp_path) == plain()
    recording = read_recording(tmp_path / "out" / "read.parquet")
    assert set(recording.table.column("question").to_pylist()) == {f"Tower {q}?" for q in range(N)}
    assert recording.column("cost.generator.output_tokens").tolist() == [[3.0] * 4] * N


def test_an_object_that_is_no_call_stays_as_it_is(tmp_path):
    records = [{**row, "request": "please", "response": {"text": row["answer"]}} for row in rows()]
    assert read(written(tmp_path, records), tmp_path, columns={"answer": "answer"}) == plain()


# Folders and archives of several files


def by_file(folder, names, keep=("id", "answer", "gold")):
    for r, name in zip(ROUNDS, names, strict=True):
        written(folder / name, [{k: row[k] for k in keep} for row in rows() if row["round"] == r])
    return folder


@pytest.mark.parametrize(
    "names", [[f"preds-{n}-v2.jsonl" for n in (1, 2, 3, 4)], ["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"]]
)
def test_a_file_may_be_a_round(names, tmp_path):
    assert read(by_file(tmp_path / "run", names), tmp_path, file_is="round") == plain()


def test_numbers_in_names_of_rounds_sort_as_numbers(tmp_path):
    for r in range(1, 13):
        written(tmp_path / "run" / f"preds-v{r}.jsonl", [{"id": "q", "answer": f"{r}", "gold": "1"}])
    assert [row[1] for row in read(tmp_path / "run", tmp_path, file_is="round")[0]] == [f"{r}" for r in range(1, 13)]


def test_files_in_an_archive_are_read_like_a_folder(tmp_path):
    folder = by_file(tmp_path / "run", [f"round_{r}.jsonl" for r in ROUNDS])
    with zipfile.ZipFile(tmp_path / "run.zip", "w") as archive:
        for file in folder.iterdir():
            archive.write(file, f"out/{file.name}")
    assert read(tmp_path / "run.zip", tmp_path) == plain()


@pytest.mark.parametrize(("file_is", "column"), [("model", "model"), ("run", "run")])
def test_a_file_may_be_a_model_or_a_run(file_is, column, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("1", "2"):
        written(tmp_path / "logs" / f"{name}.jsonl", rows())
    read_twice = read(tmp_path / "logs", tmp_path, file_is=file_is)
    assert sorted(map(repr, read_twice)) == sorted(map(repr, 2 * plain()))
    recording = read_recording(tmp_path / "out" / "read.parquet")
    assert set(recording.table.column(column).to_pylist()) == {"1", "2"}
    decided = cli("decide", tmp_path / "out" / "read.parquet", "--json")
    assert ("--where" in decided.err) == (file_is == "model")


def test_a_file_may_be_a_question(tmp_path):
    for q in range(N):
        own = [{k: row[k] for k in ("round", "answer", "gold")} for row in rows() if row["id"] == f"q{q}"]
        written(tmp_path / "logs" / f"q{q}.jsonl", own)
    assert read(tmp_path / "logs", tmp_path, file_is="question") == plain()


def test_files_of_answers_by_id_are_runs_or_rounds(tmp_path):
    for r, name in ((1, "first"), (2, "second")):
        path = tmp_path / "preds" / f"{name}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({f"q{q}": said(q, r) for q in range(N)}))
    assert {len(one) for one in read(tmp_path / "preds", tmp_path)} == {1}
    as_rounds = read(tmp_path / "preds", tmp_path, file_is="round")
    assert [[row[1] for row in one] for one in as_rounds] == [[said(q, 1), said(q, 2)] for q in range(N)]


def test_what_a_file_is_must_fit(tmp_path):
    folder = by_file(tmp_path / "run", ["a.jsonl", "b.jsonl", "c.jsonl", "d.jsonl"], keep=("id", "round", "answer"))
    one = written(tmp_path / "one.jsonl", rows())
    for name in ("a", "b"):
        written(tmp_path / "nested" / f"{name}.jsonl", of_questions(lambda q: {"steps": objects(q)}))
    for path, file_is, words in (
        (folder, "round", "already"),
        (folder, "page", "allowed"),
        (one, "round", "one file"),
        (tmp_path / "nested", "round", "not a round"),
    ):
        with pytest.raises(DataError, match=words):
            read(path, tmp_path, file_is=file_is)


def test_a_folder_of_single_rounds_is_refused(tmp_path):
    for name in ("a", "b"):
        written(
            tmp_path / "logs" / f"{name}.jsonl", [{"id": f"{name}{q}", "round": 1, "answer": "x"} for q in range(3)]
        )
    with pytest.raises(SchemaError, match="--file-is"):
        read(tmp_path / "logs", tmp_path)


# Runs that follow one another, and gaps


def test_commands_printed_for_repeated_and_missing_rounds_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    gaps = [row for row in rows() if row["round"] != 3]
    for records, length in ((2 * rows(), 4), (gaps, 3)):
        refused = cli("import", written(tmp_path, records), "-o", "log.parquet", code=2)
        cli(*refused.commands[0], code=0)
        recording = read_recording("log.parquet")
        assert recording.index.tolist() == [*range(1, length + 1)]
        assert len(set(recording.clusters.tolist())) == N


def test_a_column_may_tell_runs_apart(tmp_path):
    records = [{**row, "worker": name} for name in ("x", "y") for row in rows()]
    path = written(tmp_path, records)
    assert len(read(path, tmp_path, columns={"run": "worker"})) == 2 * N
    without = [{k: v for k, v in row.items() if k != "round"} for row in records]
    assert len(read(written(path, without), tmp_path, columns={"run": "worker"})) == 2 * N
    with pytest.raises(SchemaError, match="'nobody'"):
        read(path, tmp_path, columns={"run": "nobody"})


# Databases and prose


def database(path, tables):
    connection = sqlite3.connect(path)
    for name, records in tables.items():
        connection.execute(f'CREATE TABLE "{name}" ({", ".join(records[0])})')
        marks = ", ".join("?" * len(records[0]))
        connection.executemany(f'INSERT INTO "{name}" VALUES ({marks})', [[*record.values()] for record in records])
    connection.commit()
    connection.close()
    return path


def test_a_table_of_sqlite_is_read_like_rows(tmp_path):
    only = database(tmp_path / "only.sqlite", {"rounds": rows()})
    several = database(tmp_path / "several.db", {"rounds": rows(), "other": [{"x": b"1"}]})
    assert read(only, tmp_path) == plain()
    with pytest.raises(UnsettledError, match="--query"):
        read(several, tmp_path)
    chosen = read(several, tmp_path, settle=lambda error: error.choices["--query 'SELECT * FROM \"rounds\"'"][0])
    assert chosen == read(several, tmp_path, query="SELECT * FROM rounds") == plain()
    assert read(several, tmp_path, query="SELECT * FROM rounds WHERE id = 'q1'") == plain()[1:2]


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("DELETE FROM rounds", "cannot be run"),
        ("ATTACH 'new.db' AS other", "cannot be run"),
        ("SELECT 1; SELECT 2", "one SELECT"),
        ("SELECT id, id FROM rounds", "two columns"),
        ("SELECT * FROM missing", "no such table"),
    ],
)
def test_a_database_is_only_read_from(query, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = database(tmp_path / "log.sqlite", {"rounds": rows()})
    before = path.read_bytes()
    with pytest.raises(DataError, match=words):
        read(path, tmp_path, query=query)
    assert path.read_bytes() == before
    assert not (tmp_path / "new.db").exists()


def test_a_query_needs_a_database_with_tables(tmp_path):
    with pytest.raises(DataError, match="no query"):
        read(written(tmp_path, rows()), tmp_path, query="SELECT 1")
    empty = tmp_path / "empty.sqlite"
    connection = sqlite3.connect(empty)
    connection.execute("CREATE TABLE t (x)")
    connection.execute("DROP TABLE t")
    connection.commit()
    connection.close()
    with pytest.raises(DataError, match="no tables"):
        read(empty, tmp_path)


def test_duckdb_is_read_where_it_is_installed(tmp_path, monkeypatch):
    path = tmp_path / "log.duckdb"
    path.write_bytes(b"\0" * 8 + b"DUCK" + b"\0" * 100)
    monkeypatch.setitem(__import__("sys").modules, "duckdb", None)
    with pytest.raises(DataError, match="pip install duckdb"):
        read(path, tmp_path, query="SELECT 1")
    assert kind_of(path) == "tabular"


PROSE = "".join(
    f"== {q}: Where is tower {q}? ({CITIES[q % 4]})\n" + "".join(f"Draft {r}: it is in {said(q, r)}.\n" for r in ROUNDS)
    for q in range(N)
)
PATTERN = r"^== (?P<id>\d+): (?P<question>.+) \((?P<gold>.+)\)$|^Draft (?P<round>\d+): it is in (?P<answer>.+)\.$"


def test_prose_is_read_by_a_pattern(tmp_path):
    path = tmp_path / "log.txt"
    path.write_text(PROSE)
    assert read(path, tmp_path, pattern=PATTERN) == plain()
    for pattern, words in (
        ("(", "regular expression"),
        ("(?P<reply>.+)", "needs a group"),
        ("Answer: (?P<answer>.+)", "matches no answer"),
    ):
        with pytest.raises(DataError, match=words):
            read(path, tmp_path, pattern=pattern)
    with pytest.raises(DataError, match="not a file"):
        read(tmp_path, tmp_path, pattern=PATTERN)


# What is refused


class Trap:
    """An object whose pickle creates a file when it is read."""

    def __reduce__(self):
        return open, ("trapped", "w")


@pytest.mark.parametrize("name", ["log.pkl", "log.pickle", "log.bin", "log.joblib", "log.pt"])
def test_pickles_are_refused_unread(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / name
    if name == "log.pt":
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps(Trap()))
    else:
        path.write_bytes(pickle.dumps(Trap()))
    done = cli("import", path, code=1)
    assert "python -c" in done.error
    assert not (tmp_path / "trapped").exists()


def test_the_printed_conversion_of_a_pickle_is_a_log(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "log.pkl"
    path.write_bytes(pickle.dumps(rows()))
    command = cli("import", path).error.partition("python -c ")[2]
    exec(shlex.split(command)[0], {})
    assert read(tmp_path / "log.json", tmp_path) == plain()


def test_an_archive_that_is_too_large_or_damaged_is_refused(tmp_path):
    bomb = tmp_path / "bomb.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as archive, archive.open("log.jsonl", "w") as file:
        for _ in range(65):
            file.write(bytes(1 << 20))
    broken = tmp_path / "broken.zip"
    broken.write_bytes(ZIPPED.getvalue().replace(TEXT.encode()[:1], b"?", 1)[:40] + ZIPPED.getvalue()[41:])
    for path in (bomb, broken):
        with pytest.raises(SchemaError, match="unpack"):
            read(path, tmp_path)


def test_errors_in_an_archive_name_the_archive(tmp_path):
    path = tmp_path / "log.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("log.csv", "id,round,answer\nq1,1\n")
    with pytest.raises(DataError, match=r"log\.zip/log\.csv") as caught:
        read(path, tmp_path)
    assert ".tmp" not in str(caught.value)


@pytest.mark.parametrize("label", ["temperature", "prompt_id", "system_prompt"])
def test_a_verdict_is_about_one_prompt_and_temperature(label, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.txt").write_text("fixed_k(2)\n")
    values = (0, 0.7) if label == "temperature" else ("short", "long")
    read(written(tmp_path, [{**row, label: value} for value in values for row in rows()]), tmp_path)
    for command in (["decide"], ["certify", "--rules", "rules.txt", "--max-loss", "0.02"]):
        refused = cli(*command, tmp_path / "out" / "read.parquet", code=2)
        assert "--where" in refused.err
    only = read(tmp_path / "log.jsonl", tmp_path, where={label: str(values[1])})
    assert only == plain()
