"""`suffice index`, and its folder as the corpus of every command that takes one."""

from __future__ import annotations

import json

import pytest

from suffice.loops.retrieval import load_questions
from suffice_retrieval.indexes import CorpusBM25, index_corpus, open_corpus, open_dense, read_corpus
from tests.support.cli_tools import cli, dataset, reply
from tests.support.endpoint import Endpoint

PASSAGES = [passage for question in load_questions("hotpotqa_tune", limit=12) for passage in question.passages]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.jsonl"
    rows = [{"id": str(i), "title": p.title, "text": p.text} for i, p in enumerate(PASSAGES)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_a_corpus_is_indexed_and_searched_without_itself(corpus, tmp_path):
    done = cli("index", corpus, "-o", tmp_path / "index", code=0)
    assert f"{len(PASSAGES)} passages of {corpus}" in done.words
    assert "next: suffice record QUESTIONS.jsonl --corpus" in done.words
    kept = open_corpus(corpus)
    corpus.unlink()
    found = open_corpus(tmp_path / "index")
    assert found.fingerprint() == kept.fingerprint()
    assert found.rank("Who directed the film?", k=5) == kept.rank("Who directed the film?", k=5)
    assert [p.text for p in read_corpus(tmp_path / "index")] == [p.text for p in PASSAGES]


def test_index_figures_are_json_and_an_unchanged_index_stays(corpus, tmp_path):
    arguments = ("index", corpus, "-o", tmp_path / "index", "--json")
    first = cli(*arguments, "--set=k1=0.9", "--set=b=0.4").json
    assert (first["is_new"], first["n_passages"], first["k1"], first["b"]) == (True, len(PASSAGES), 0.9, 0.4)
    assert first["n_bytes"] == sum(file.stat().st_size for file in (tmp_path / "index").rglob("*") if file.is_file())
    assert first["n_terms"] < first["n_tokens"]
    assert not cli(*arguments, "--set=k1=0.9", "--set=b=0.4").json["is_new"]
    assert "the index was up to date" in cli(*arguments[:-1], "--set=k1=0.9", "--set=b=0.4").words
    assert cli(*arguments).json["is_new"]
    assert open_corpus(tmp_path / "index").k1 == 1.5
    other = cli(*arguments, "--engine", "tantivy").json
    assert (other["is_new"], other["k1"], other["n_terms"]) == (True, 1.2, None)
    assert other["library"].startswith("tantivy ")
    assert open_corpus(corpus, tmp_path / "index").engine == "tantivy"
    refused = cli(*arguments, "--engine", "tantivy", "--set=k1=0.9")
    assert (refused.code, "engine bm25s" in refused.error) == (1, True)
    with corpus.open("a") as lines:
        lines.write('{"id": "new", "text": "one more"}\n')
    assert cli(*arguments).json["n_passages"] == len(PASSAGES) + 1


def test_an_index_spares_other_files_and_damage_is_named(corpus, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("mine")
    refused = cli("index", corpus, "-o", tmp_path / "notes")
    assert (refused.code, "contains other files" in refused.error) == (1, True)
    index_corpus(corpus, tmp_path / "index")
    (tmp_path / "index" / "suffice-index.json").unlink()
    for use in (open_corpus, lambda path: list(read_corpus(path)), lambda path: open_dense(path, "any")):
        with pytest.raises(ValueError, match="complete index"):
            use(tmp_path / "index")
    assert index_corpus(corpus, tmp_path / "index").is_new


@pytest.mark.whole
def test_a_live_loop_and_a_recording_search_an_index(corpus, tmp_path):
    index_corpus(corpus, tmp_path / "index", k1=0.9)
    dataset(tmp_path / "q.jsonl", n=3)
    with Endpoint(reply) as endpoint:
        at = ("--base-url", endpoint.url, "--model", "m")
        searched = ("--corpus", tmp_path / "index", "--max-rounds", 2)
        shown = cli("answer", "Who directed the film?", *searched, *at, "--json").json
        done = cli("record", tmp_path / "q.jsonl", "-o", tmp_path / "r.parquet", *searched, *at)
    assert done.code == 0, done
    assert shown["rounds"]


def test_an_index_of_this_release_is_read_by_the_class(corpus, tmp_path):
    index_corpus(corpus, tmp_path / "index")
    assert len(CorpusBM25.load(tmp_path / "index")) == len(PASSAGES)
