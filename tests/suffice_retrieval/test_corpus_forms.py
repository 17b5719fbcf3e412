"""Corpora as they are published: DPR's table, Pyserini's and BEIR's folders, data sets, compressed or not."""

from __future__ import annotations

import csv
import gzip
import io
import json
import logging

import pytest

from suffice.errors import DataError, MissingExtraError
from suffice.loops.retrieval import load_questions
from suffice_retrieval.indexes import index_corpus, open_corpus, read_corpus
from suffice_retrieval.indexes.corpus import corpus_source
from suffice_retrieval.indexes.corpus_forms import corpus_of
from tests.support.cli_tools import cli

PASSAGES = [passage for question in load_questions("2wiki_tune", limit=4) for passage in question.passages][:30]
ROWS = [(str(i), p.title, p.text) for i, p in enumerate(PASSAGES, start=1)]
QUOTED = [*ROWS, ("q", 'The "Ninth"', '"Ode" by "Schiller"\n'.strip()), ("r", "Plain", 'a " within'), ("s", '"', '""')]


def triples(path):
    return [(p.passage_id, p.title, p.text) for p in read_corpus(path)]


def dpr(rows):
    """The bytes of `psgs_w100.tsv`: Python's csv with tabs, as DPR wrote it."""
    text = io.StringIO()
    writer = csv.writer(text, delimiter="\t", lineterminator="\n")
    writer.writerow(["id", "text", "title"])
    writer.writerows((name, body, title) for name, title, body in rows)
    return text.getvalue().encode()


def lines(*rows):
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


FORMS = {
    "DPR tsv": dpr(ROWS),
    "BEIR": lines(*({"_id": i, "title": t, "text": x, "metadata": {}} for i, t, x in ROWS)),
    "Pyserini": lines(*({"id": i, "contents": f'"{t}"\n{x}'} for i, t, x in ROWS)),
    "JSON lines of id, title and text": lines(*({"id": i, "title": t, "text": x} for i, t, x in ROWS)),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize("packed", [False, True])
def test_published_forms_are_recognised_and_give_the_same_passages(name, packed, tmp_path):
    path = tmp_path / ("corpus.gz" if packed else "corpus")
    path.write_bytes(gzip.compress(FORMS[name]) if packed else FORMS[name])
    assert corpus_of(path).form == name
    assert triples(path) == ROWS


def test_quotes_of_a_table_are_read_as_csv_reads_them(tmp_path):
    (tmp_path / "psgs_w100.tsv").write_bytes(dpr(QUOTED))
    assert triples(tmp_path / "psgs_w100.tsv") == QUOTED
    with (tmp_path / "psgs_w100.tsv").open(newline="") as file:
        read = [(row["id"], row["title"], row["text"]) for row in csv.DictReader(file, delimiter="\t")]
    assert triples(tmp_path / "psgs_w100.tsv") == read


def test_a_table_of_id_and_text_is_not_quoted(tmp_path):
    (tmp_path / "collection.tsv").write_text('0\t"Ode" begins\n1\tplain\n')
    assert corpus_of(tmp_path / "collection.tsv").form == "tsv of id and text"
    assert triples(tmp_path / "collection.tsv") == [("0", "0", '"Ode" begins'), ("1", "1", "plain")]


@pytest.mark.parametrize("heading", ["id\ttext", "pid\tpassage"])
def test_a_tables_heading_is_not_a_passage(heading, tmp_path):
    path = tmp_path / "collection.tsv"
    path.write_text(f"{heading}\nd0\tOslo\npid\tpassage\n")
    assert triples(path) == [("d0", "d0", "Oslo"), ("pid", "pid", "passage")]


@pytest.mark.parametrize("name", ["docid", "doc_id", "pid", "passage_id"])
def test_an_id_in_another_field_is_not_replaced_by_line_numbers(name, tmp_path):
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(lines({name: "d7", "title": "Oslo", "text": "A city."}, {name: "d8", "text": "Lima"}))
    assert triples(path) == [("d7", "Oslo", "A city."), ("d8", "d8", "Lima")]
    path.write_bytes(lines({name: "d7", "text": "A city."}, {"text": "Lima"}))
    with pytest.raises(DataError, match=f"{name} is None"):
        triples(path)


def test_an_empty_file_of_a_folder_does_not_decide_its_form(tmp_path):
    (tmp_path / "0.tsv").touch()
    (tmp_path / "1.tsv").write_text("d0\tOslo\n")
    assert triples(tmp_path) == [("d0", "d0", "Oslo")]


def test_the_folder_of_beir_is_its_corpus_and_not_its_queries(tmp_path):
    (tmp_path / "qrels").mkdir()
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n")
    (tmp_path / "queries.jsonl").write_bytes(lines({"_id": "q1", "text": "Who?"}))
    (tmp_path / "README.md").write_text("BEIR")
    (tmp_path / "corpus.jsonl.gz").write_bytes(gzip.compress(FORMS["BEIR"]))
    assert (corpus_of(tmp_path).form, triples(tmp_path)) == ("BEIR", ROWS)


def test_files_of_a_pyserini_folder_are_one_corpus_in_name_order(tmp_path):
    parts = FORMS["Pyserini"].splitlines(keepends=True)
    (tmp_path / "docs01.jsonl").write_bytes(b"".join(parts[7:]))
    (tmp_path / "docs00.jsonl.gz").write_bytes(gzip.compress(b"".join(parts[:7])))
    assert (corpus_of(tmp_path).form, triples(tmp_path)) == ("Pyserini", ROWS)
    before = corpus_source(tmp_path)
    (tmp_path / "docs01.jsonl").rename(tmp_path / "docs02.jsonl")
    assert corpus_source(tmp_path) != before
    (tmp_path / "docs02.jsonl").write_bytes(FORMS["BEIR"])
    with pytest.raises(DataError, match="'contents'"):
        triples(tmp_path)


def test_passages_beside_documents_are_ambiguous_and_other_json_lines_are_skipped(tmp_path, caplog):
    (tmp_path / "notes.md").write_text("# Notes\n\nOne.")
    (tmp_path / "log.jsonl").write_bytes(lines({"time": 1}))
    with caplog.at_level(logging.WARNING):
        assert [name for name, _, _ in triples(tmp_path)] == ["notes.md#0"]
    assert "skipped 1 .jsonl" in caplog.text
    (tmp_path / "log.jsonl").write_bytes(FORMS["Pyserini"])
    with pytest.raises(DataError, match="log.jsonl"):
        triples(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"id\ttext\ttitle\n1\tfine\tT\n2\tcut", "2 fields"),
        (b"id\ttext\ttitle\n1\tfine\tT\n\tno id\tT\n", "line 3"),
        (b'id\ttext\ttitle\n1\tfine\tT\n2\t"open\tT\n', "'\"open' begins"),
        (b'id\ttext\ttitle\n1\tfine\tT\n2\t"a" b"\tT\n', "a quote"),
        (b"id\ttext\ttitle\n1\tfine\tT\n2\t\xe9\tT\n", "line 3: byte"),
        (b"1\ta\tb\tc\n", "not a passage"),
        (b"some text\n", "'some text'"),
        (lines({"_id": "1", "text": "a"}, {"id": "2", "text": "b"}), "_id is None"),
        (lines({"id": "1", "contents": "a"}, {"id": "2", "text": "b"}), "'contents'"),
        (lines({"id": "1", "contents": "a", "text": "b"}), "'text' and 'contents'"),
        (lines({"id": "1", "_id": "2", "text": "b"}), "another '_id'"),
        (lines({"id": "1", "text": "a"}, {"id": "2", "text": "b"}, {"id": 1, "text": "c"}), "already used"),
        (b"1\ta\n2\tb\n1\tc\n", "already used"),
    ],
)
def test_what_is_damaged_or_ambiguous_is_an_error_with_file_and_line(content, message, tmp_path):
    (tmp_path / "corpus").write_bytes(content)
    for name in ("corpus", "corpus.gz"):
        with pytest.raises(DataError, match=message) as raised:
            index_corpus(tmp_path / name, tmp_path / "index")
        assert str(tmp_path / name) in str(raised.value)
        (tmp_path / "corpus.gz").write_bytes(gzip.compress(content))
    with pytest.raises(DataError, match="index|exist|contains"):
        open_corpus(tmp_path / "index")


def test_a_repeated_id_names_both_files_and_a_truncated_file_fails(tmp_path):
    (tmp_path / "a.jsonl").write_bytes(FORMS["BEIR"])
    (tmp_path / "b.jsonl").write_bytes(lines({"_id": "5", "text": "again"}))
    with pytest.raises(DataError, match="a.jsonl, line 5;"):
        triples(tmp_path)
    (tmp_path / "b.jsonl.gz").write_bytes(gzip.compress(FORMS["BEIR"])[:-9])
    with pytest.raises(DataError, match="gzip"):
        triples(tmp_path / "b.jsonl.gz")


def test_the_command_says_as_what_a_corpus_was_read(tmp_path):
    (tmp_path / "psgs_w100.tsv").write_bytes(dpr(QUOTED))
    done = cli("index", tmp_path / "psgs_w100.tsv", "-o", tmp_path / "index")
    assert "33 passages of" in done.words
    assert "read as DPR tsv" in done.words
    assert {p.passage_id for p in open_corpus(tmp_path / "index").rank("Ninth Schiller", k=1)} == {"q"}


@pytest.mark.whole
def test_a_saved_data_set_and_one_by_its_name_are_corpora(tmp_path, monkeypatch):
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    rows = datasets.Dataset.from_list([{"_id": i, "title": t, "text": x} for i, t, x in ROWS])
    rows.save_to_disk(str(tmp_path / "saved"))
    assert triples(tmp_path / "saved") == ROWS
    assert index_corpus(tmp_path / "saved", tmp_path / "index").form == "a data set of _id, title and text"
    datasets.DatasetDict(corpus=rows, other=rows).save_to_disk(str(tmp_path / "two"))
    with pytest.raises(DataError, match="several splits"):
        triples(tmp_path / "two")
    assert triples(tmp_path / "two" / "corpus") == ROWS
    (tmp_path / "hub").mkdir()
    (tmp_path / "hub" / "train.jsonl").write_bytes(FORMS["BEIR"])
    assert triples(f"hf:{tmp_path / 'hub'}") == triples(f"hf:{tmp_path / 'hub'}:default:train") == ROWS
    with pytest.raises(DataError, match="'test'"):
        triples(f"hf:{tmp_path / 'hub'}::test")
    with pytest.raises(DataError, match="be read"):
        triples(f"hf:{tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="this disk"):
        open_corpus(f"hf:{tmp_path / 'hub'}")


@pytest.mark.parametrize("damage", ["missing", "changed"])
def test_a_damaged_data_set_is_an_error_of_ours(damage, tmp_path):
    import datasets

    datasets.Dataset.from_list([{"id": "1", "text": "Oslo"}]).save_to_disk(tmp_path / "set")
    for file in (tmp_path / "set").glob("*.arrow"):
        file.unlink() if damage == "missing" else file.write_bytes(b"changed")
    with pytest.raises(DataError, match="datasets saved"):
        triples(tmp_path / "set")


def test_without_the_library_a_data_set_names_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"suffice-retrieval\[datasets\]"):
        corpus_of("hf:BeIR/nq")
