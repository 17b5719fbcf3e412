"""BM25 over pools and corpora, against bm25s and against the formula."""

from __future__ import annotations

import hashlib
import json
import math
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import bm25s
import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import given, settings, strategies as st

from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Retriever, load_questions
from suffice.loops.retrieval.bm25 import STOP_WORDS, words
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes import CorpusBM25, corpus_bm25, index_corpus, storage
from suffice_retrieval.indexes.engines import IN_MEMORY, choose_engine
from suffice_retrieval.indexes.storage import MANIFEST

QUESTIONS = load_questions("hotpotqa_tune", limit=30)
VOCABULARY = ["red", "green", "blue", "apple", "pear", "sky"]
CORPUS = [passage for question in QUESTIONS for passage in question.passages]


def passages(*texts):
    return [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(texts)]


def ids(ranked):
    return [passage.passage_id for passage in ranked]


def library_index(pool):
    """bm25s itself, with its own tokeniser."""
    tokens = bm25s.tokenize([f"{p.title}\n{p.text}" for p in pool], show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    return index


def library_scores(question, pool, index=None):
    asked = bm25s.tokenize([question], return_ids=False, show_progress=False)[0]
    return (index or library_index(pool)).get_scores(asked) if asked else np.zeros(len(pool))


@pytest.fixture(scope="module")
def index():
    return CorpusBM25(CORPUS)


# Tokens


def test_the_stop_words_are_those_of_bm25s():
    assert frozenset(STOPWORDS_EN) == STOP_WORDS


def test_the_words_are_those_of_bm25s_on_every_bundled_text():
    texts = [f"{passage.title}\n{passage.text}" for passage in CORPUS]
    assert [words(text) for text in texts] == bm25s.tokenize(texts, return_ids=False, show_progress=False)


def test_words_of_other_scripts_are_kept():
    assert words("BJÖRK à Москва 東京 x") == ["björk", "москва", "東京"]


# Pools


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.question_id[-6:])
def test_a_pool_is_scored_as_bm25s_scores_it(question):
    ours = PoolBM25().scores(question.question, question.passages)
    np.testing.assert_allclose(ours, library_scores(question.question, question.passages), rtol=1e-5, atol=1e-6)


def test_a_pool_is_ranked_by_score_and_every_passage_carries_its_score():
    question = QUESTIONS[0]
    ranked = PoolBM25().rank(question.question, pool=question.passages)
    scores = [passage.score for passage in ranked]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] > 0
    assert {passage.passage_id for passage in ranked} == {passage.passage_id for passage in question.passages}
    assert PoolBM25().rank(question.question, pool=question.passages, k=3) == ranked[:3]


def test_the_formula_by_hand():
    pool = passages("red apple", "green apple tree", "blue sky")
    (found,) = PoolBM25().rank("green", pool=pool, k=1)
    idf = math.log(1 + (3 - 1 + 0.5) / (1 + 0.5))
    norm = 1.5 * (1 - 0.75 + 0.75 * 3 / (7 / 3))
    assert found.passage_id == "1"
    assert found.score == pytest.approx(idf * 1 / (1 + norm))


def test_a_repeated_question_word_counts_each_time():
    pool = passages("apple", "pear")
    once, twice = (PoolBM25().scores(text, pool)[0] for text in ("apple", "apple apple"))
    assert twice == pytest.approx(2 * once)


def test_the_title_is_searched_too():
    pool = [
        Passage(passage_id="a", title="Jubilee", text="film"),
        Passage(passage_id="b", title="Tempest", text="film"),
    ]
    assert ids(PoolBM25().rank("tempest", pool=pool)) == ["b", "a"]
    assert ids(CorpusBM25(pool).rank("tempest")) == ["b", "a"]


def test_the_supporting_passages_come_early_in_real_pools():
    # Chance is 0.5 at rank 5 of 10.
    questions = load_questions("hotpotqa_tune")
    found = [
        len(question.supporting.intersection(ids(PoolBM25().rank(question.question, pool=question.passages, k=5))))
        / len(question.supporting)
        for question in questions
    ]
    assert float(np.mean(found)) > 0.8


def test_a_missing_pool_is_an_error_and_an_empty_one_is_not():
    with pytest.raises(DataError, match="pass pool="):
        PoolBM25().rank("question")
    assert PoolBM25().rank("question", pool=[]) == []


# Laws for both


@pytest.fixture(params=["pool", "corpus"])
def rank(request):
    if request.param == "pool":
        return lambda question, texts, k=None: PoolBM25().rank(question, pool=texts, k=k)
    return lambda question, texts, k=None: CorpusBM25(texts).rank(question, k=k)


@pytest.mark.parametrize("question", ["", "   ", "the of and", "zebra", "東京 ✨", "?!", "\x00"])
def test_without_a_known_word_every_passage_scores_zero_in_its_order(rank, question):
    found = rank(question, passages("red apple", "green apple", "blue sky"))
    assert ids(found) == ["0", "1", "2"]
    assert [passage.score for passage in found] == [0.0, 0.0, 0.0]


def test_ties_keep_their_order(rank):
    texts = passages("pear", "red apple", "sky", "red apple", "red apple", "pear")
    assert ids(rank("apple", texts)) == ["1", "3", "4", "0", "2", "5"]
    assert ids(rank("apple", texts, 2)) == ["1", "3"]


def test_more_may_be_asked_for_than_there_is(rank):
    assert len(rank("apple", passages("apple", "pear"), 99)) == 2


@pytest.mark.parametrize("k", [0, -1])
def test_a_k_below_one_is_refused(rank, k):
    with pytest.raises(DataError, match="k is"):
        rank("apple", passages("apple"), k)


def test_passages_without_a_word_are_fine(rank):
    assert ids(rank("apple", passages("", "the", "!"))) == ["0", "1", "2"]
    assert ids(rank("apple", passages("", "apple", "!"))) == ["1", "0", "2"]


def test_a_passage_of_one_megabyte_is_fine(rank):
    assert ids(rank("needle", passages("hay", "hay " * 250_000 + "needle"), 1)) == ["1"]


@pytest.mark.parametrize(("k1", "b"), [(-1, 0.5), (math.nan, 0.5), (math.inf, 0.5), (1.5, -0.1), (1.5, 1.1)])
def test_parameters_outside_their_range_are_refused(k1, b):
    for build in (lambda: PoolBM25(k1=k1, b=b), lambda: CorpusBM25([], k1=k1, b=b)):
        with pytest.raises(DataError, match="allowed:"):
            build()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=8), min_size=1, max_size=12),
    st.lists(st.sampled_from([*VOCABULARY, "zebra"]), max_size=5),
    st.integers(1, 14),
)
def test_pool_and_corpus_agree_and_k_takes_the_head(texts, question, k):
    documents, text = passages(*map(" ".join, texts)), " ".join(question)
    corpus = CorpusBM25(documents)
    by_id = {passage.passage_id: passage.score for passage in PoolBM25().rank(text, pool=documents)}
    whole = corpus.rank(text)
    for passage in whole:
        assert passage.score == pytest.approx(by_id[passage.passage_id], rel=1e-5, abs=1e-6)
    assert corpus.rank(text, k=k) == whole[:k]
    order = sorted(whole, key=lambda passage: (-passage.score, int(passage.passage_id)))
    assert whole == order


# A corpus


def test_bm25s_ranks_a_corpus_with_its_own_scores_and_ordered_ties(index):
    library = library_index(CORPUS)
    for question in QUESTIONS[:8]:
        scores = library_scores(question.question, CORPUS, library)
        for k in (1, 10, 129, 299):
            positions, found = index.search(question.question, k)
            assert positions.tolist() == np.argsort(-scores, kind="stable")[:k].tolist()
            np.testing.assert_array_equal(found, scores[positions])


def rounded_length(n):
    """The length that one byte of Lucene's and tantivy's form holds: exact up to 40, then in steps that double."""
    values, step = list(range(41)), 2
    while values[-1] < n:
        values += [values[-1] + step * (i + 1) for i in range(8)]
        step *= 2
    return max(value for value in values if value <= n)


def tantivy_scores(question, texts):
    """tantivy's formula as plain loops."""
    documents = [words(text) for text in texts]
    mean = sum(map(len, documents)) / len(documents)
    within = {token: sum(token in document for document in documents) for token in words(question)}
    scores = []
    for document in documents:
        norm = 1.2 * (1 - 0.75 + 0.75 * rounded_length(len(document)) / mean)
        score = 0.0
        for token in words(question):
            df = within[token]
            tf = document.count(token)
            score += math.log(1 + (len(documents) - df + 0.5) / (df + 0.5)) * 2.2 * tf / (tf + norm)
        scores.append(score)
    return scores


@pytest.fixture(scope="module")
def on_disk(tmp_path_factory):
    return CorpusBM25.build(tmp_path_factory.mktemp("tantivy"), CORPUS, engine="tantivy")


def test_tantivy_scores_a_corpus_by_its_published_formula(on_disk):
    texts = [f"{passage.title}\n{passage.text}" for passage in CORPUS]
    for question in QUESTIONS[:4]:
        expected = np.array(tantivy_scores(question.question, texts))
        positions, found = on_disk.search(question.question, len(CORPUS))
        np.testing.assert_allclose(found, expected[positions], rtol=1e-5, atol=1e-6)
        assert sorted(positions.tolist()) == list(range(len(CORPUS)))


@pytest.mark.parametrize("engine", ["bm25s", "tantivy"])
@settings(max_examples=20, deadline=None)
@given(
    texts=st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=4), min_size=1, max_size=30),
    question=st.lists(st.sampled_from([*VOCABULARY, "zebra"]), max_size=5),
    k=st.integers(1, 34),
)
def test_ties_keep_the_order_of_the_corpus_for_every_k(engine, texts, question, k):
    with tempfile.TemporaryDirectory() as folder:
        index = CorpusBM25.build(folder, passages(*map(" ".join, texts)), engine=engine)
        text = " ".join(question)
        whole = index.rank(text)
        assert whole == sorted(whole, key=lambda passage: (-passage.score, int(passage.passage_id)))
        assert len(whole) == len(texts)
        assert index.rank(text, k=k) == whole[:k]


def test_tantivy_reads_many_ties_of_the_last_passage(tmp_path):
    texts = [f"film number{i}" for i in range(300)]
    index = CorpusBM25.build(tmp_path / "index", passages(*texts), engine="tantivy")
    assert index.search("film", 7)[0].tolist() == list(range(7))


def test_both_engines_search_the_same_words(index, on_disk):
    shares = []
    for question in QUESTIONS:
        ours, theirs = (set(ids(found.rank(question.question, k=10))) for found in (index, on_disk))
        shares.append(len(ours & theirs) / 10)
    assert float(np.mean(shares)) > 0.85


def test_a_corpus_takes_no_notice_of_a_pool(index):
    assert index.rank("tempest", pool=passages("tempest"), k=5) == index.rank("tempest", k=5)


@pytest.mark.parametrize("engine", ["bm25s", "tantivy"])
@pytest.mark.parametrize("texts", [(), ("", "!")])
def test_a_corpus_without_words_scores_nothing(tmp_path, engine, texts):
    index = CorpusBM25.build(tmp_path / "index", passages(*texts), engine=engine)
    assert [passage.score for passage in index.rank("anything")] == [0.0] * len(texts)
    assert CorpusBM25(passages(*texts)).rank("anything", k=1) == index.rank("anything", k=1)


@pytest.mark.parametrize(
    ("n", "asked", "chosen"),
    [
        (IN_MEMORY, (None, None, None), ("bm25s", 1.5, 0.75)),
        (IN_MEMORY + 1, (None, None, None), ("tantivy", 1.2, 0.75)),
        (IN_MEMORY + 1, (None, 0.9, None), ("bm25s", 0.9, 0.75)),
        (IN_MEMORY + 1, ("bm25s", None, 0.4), ("bm25s", 1.5, 0.4)),
        (1, ("tantivy", 1.2, 0.75), ("tantivy", 1.2, 0.75)),
    ],
)
def test_the_number_of_passages_and_parameters_choose_the_engine(n, asked, chosen):
    assert choose_engine(n, *asked) == chosen


@pytest.mark.parametrize("asked", [("tantivy", 0.9, None), ("tantivy", None, 0.4), ("lucene", None, None)])
def test_an_engine_refuses_parameters_that_it_lacks(asked, tmp_path):
    with pytest.raises(DataError, match="bm25s"):
        CorpusBM25.build(tmp_path / "index", passages("a film"), engine=asked[0], k1=asked[1], b=asked[2])
    assert not (tmp_path / "index").exists()


# A folder


@pytest.fixture(scope="module", params=["bm25s", "tantivy"])
def engine(request):
    return request.param


@pytest.fixture(scope="module")
def built(tmp_path_factory, engine):
    folder = tmp_path_factory.mktemp("built") / "index"
    CorpusBM25.build(folder, CORPUS, engine=engine, source="tests")
    return folder


@pytest.fixture
def saved(tmp_path, built):
    """An index of the test's own, to be changed."""
    return shutil.copytree(built, tmp_path / "index")


def test_words_of_other_scripts_are_searched_by_both_engines(saved_words):
    for word in ("Björk", "Москва", "東京", "İstanbul"):
        assert saved_words.rank(f"it's {word.upper()}'s", k=1)[0].score > 0


@pytest.fixture
def saved_words(tmp_path, engine):
    return CorpusBM25.build(tmp_path / "words", passages("Björk Москва 東京 İstanbul", "other"), engine=engine)


def test_a_saved_index_ranks_the_same(tmp_path, index):
    CorpusBM25.build(tmp_path / "index", iter(CORPUS), source="tests")
    again = CorpusBM25.load(tmp_path / "index", source="tests")
    assert again.fingerprint() == index.fingerprint()
    assert tuple(again.passages) == index.passages
    assert (again.n_tokens, again.n_terms) == (index.n_tokens, index.n_terms)
    for question in QUESTIONS[:5]:
        assert again.rank(question.question, k=20) == index.rank(question.question, k=20)


def test_a_new_index_replaces_the_old_one_of_either_engine(saved, engine):
    other = "bm25s" if engine == "tantivy" else "tantivy"
    CorpusBM25.build(saved, CORPUS[:9], engine=other)
    assert len(CorpusBM25.load(saved)) == 9
    assert not (saved / engine).exists()
    assert not list(saved.glob(".spill*"))


def test_several_threads_search_one_index(saved):
    index = CorpusBM25.load(saved)
    asked = [question.question for question in QUESTIONS[:8]]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(index.rank, asked * 3)) == [index.rank(question) for question in asked] * 3


def test_a_folder_that_cannot_be_written_is_searched(saved, tmp_path, monkeypatch):
    expected = CorpusBM25.load(saved).rank("film", k=3)
    unopened = (
        tmp_path / "unopened"
    )  # an index that was opened for writing watches its own folder, and locks it now and then
    shutil.copytree(saved, unopened, ignore=shutil.ignore_patterns("*.lock"))
    monkeypatch.setattr("os.access", lambda *_: False)
    assert CorpusBM25.load(unopened).rank("film", k=3) == expected
    assert not list(unopened.rglob("*.lock"))


def test_progress_counts_stored_and_then_indexed_passages(tmp_path, monkeypatch):
    monkeypatch.setattr(corpus_bm25, "_PROGRESS", 120)
    counts = []
    CorpusBM25.build(tmp_path / "index", CORPUS, on_progress=lambda *count: counts.append(count))
    assert counts == [(120, None), (240, None), (300, None), (120, 300), (240, 300), (300, 300)]


def test_an_index_is_written_over_what_a_killed_process_left(tmp_path):
    (tmp_path / "index" / ".spill.killed.tmp").mkdir(parents=True)
    (tmp_path / "index" / ".data.npy.77.tmp").write_bytes(b"half")
    CorpusBM25.build(tmp_path / "index", CORPUS)
    assert not list((tmp_path / "index").glob(".*"))


def test_an_index_holds_no_pickle(tmp_path):
    CorpusBM25.build(tmp_path / "index", CORPUS)
    files = [path for path in (tmp_path / "index").rglob("*") if path.is_file()]
    assert {path.suffix for path in files} == {".json", ".jsonl", ".npy"}
    for path in files:
        if path.suffix == ".npy":
            np.load(path, allow_pickle=False)


def test_an_index_is_not_written_among_other_files(tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(DataError, match=r"thesis\.txt"):
        CorpusBM25.build(tmp_path, CORPUS)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
    with pytest.raises(DataError, match="be written"):
        CorpusBM25.build(tmp_path / "thesis.txt", CORPUS)


def test_a_truncated_changed_or_missing_part_is_refused(saved):
    for path in [path for path in saved.rglob("*") if path.is_file() and path.name != MANIFEST]:
        whole = path.read_bytes()
        if path.suffix == ".lock":
            continue
        for content in (whole[:-7] + b"?", whole[:-1] + b"?", b""):
            path.write_bytes(content)
            with pytest.raises(SchemaError, match=path.name):
                CorpusBM25.load(saved)
        path.unlink()
        with pytest.raises(SchemaError, match=path.name):
            CorpusBM25.load(saved)
        path.write_bytes(whole)
    assert len(CorpusBM25.load(saved)) == len(CORPUS)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"kind": "other", "version": 1}', "\x00\xff"])
def test_a_foreign_or_broken_manifest_is_refused(saved, content):
    (saved / MANIFEST).write_bytes(content.encode("latin-1"))
    with pytest.raises(SchemaError):
        CorpusBM25.load(saved)


def test_a_folder_without_an_index_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SchemaError, match="complete index"):
            CorpusBM25.load(folder)


def change(folder, edit):
    manifest = json.loads((folder / MANIFEST).read_text())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.pop("files"),
        lambda manifest: manifest.update(meta=[]),
        lambda manifest: manifest["meta"].pop("k1"),
        lambda manifest: manifest["meta"].update(tokens="other"),
        lambda manifest: manifest["meta"].update(library="lucene 9.1"),
        lambda manifest: manifest["files"].update({"../../secret": "0"}),
        lambda manifest: manifest["files"].update({"bm25s/../../secret": "0"}),
        lambda manifest: manifest["files"].pop("passages.jsonl"),
    ],
)
def test_a_manifest_with_changed_values_is_refused(saved, edit):
    change(saved, edit)
    with pytest.raises(SchemaError):
        CorpusBM25.load(saved)


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(version=2),
        lambda manifest: manifest["meta"].update(library=manifest["meta"]["library"].split()[0] + " 0.0"),
    ],
)
def test_an_index_of_another_release_says_how_to_build_it_again(saved, edit, tmp_path):
    change(saved, edit)
    with pytest.raises(SchemaError, match=f"suffice index {saved}"):
        CorpusBM25.load(saved)
    index_corpus(saved, tmp_path / "again")
    assert len(CorpusBM25.load(tmp_path / "again")) == len(CORPUS)


def test_another_source_is_refused_if_asked_for(saved):
    with pytest.raises(SchemaError, match="'tests', not 'other'"):
        CorpusBM25.load(saved, source="other")


def test_arrays_that_do_not_match_are_refused_even_with_a_matching_checksum(tmp_path):
    folder = tmp_path / "index"
    CorpusBM25.build(folder, CORPUS)
    name = "bm25s/indptr.csc.index.npy"
    starts = np.load(folder / name)
    np.save(folder / name, starts[:-1])
    change(folder, lambda manifest: manifest["files"].update({name: storage._digest(folder / name)}))
    with pytest.raises(SchemaError, match="not match"):
        CorpusBM25.load(folder)


@pytest.mark.parametrize("number", [1_000_000_000, -1_000_000_000])
def test_a_damaged_index_never_reads_outside_its_arrays(tmp_path, number):
    folder = tmp_path / "index"
    CorpusBM25.build(folder, CORPUS)
    name = "bm25s/indices.csc.index.npy"
    np.save(folder / name, np.full_like(np.load(folder / name), number))
    change(folder, lambda manifest: manifest["files"].update({name: storage._digest(folder / name)}))
    with pytest.raises(SchemaError, match="damaged"):
        CorpusBM25.load(folder).rank(QUESTIONS[0].question, k=1)


class Broken(Exception):
    pass


def test_an_interrupted_build_keeps_the_old_index(saved):
    def broken():
        yield from CORPUS[:50]
        raise Broken

    before = CorpusBM25.load(saved).rank("film")
    with pytest.raises(Broken):
        CorpusBM25.build(saved, broken())
    assert CorpusBM25.load(saved).rank("film") == before
    assert not list(saved.glob(".spill*"))


def test_an_index_that_was_not_put_in_place_is_refused(saved, monkeypatch):
    monkeypatch.setattr(storage, "write_file", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        CorpusBM25.build(saved, CORPUS)
    with pytest.raises(SchemaError, match="complete index"):
        CorpusBM25.load(saved)


def test_large_files_stay_on_disk_and_are_searched_there(saved, monkeypatch):
    expected = CorpusBM25.load(saved).rank(QUESTIONS[0].question, k=9)
    monkeypatch.setattr(storage, "_WHOLE", 0)
    loaded = CorpusBM25.load(saved)
    assert not isinstance(loaded.passages._content, bytes)
    assert loaded.rank(QUESTIONS[0].question, k=9) == expected


# The seam


def test_every_retriever_meets_the_protocol_and_has_a_json_fingerprint(index):
    for retriever in (PoolBM25(), index, InMemoryRetriever([])):
        assert isinstance(retriever, Retriever)
        assert json.loads(json.dumps(retriever.fingerprint()))["name"] == retriever.name


def test_a_fingerprint_changes_with_parameters_and_corpus():
    prints = [
        PoolBM25().fingerprint(),
        PoolBM25(k1=0.9).fingerprint(),
        PoolBM25(b=0.4).fingerprint(),
        CorpusBM25(passages("a b")).fingerprint(),
        CorpusBM25(passages("a c")).fingerprint(),
    ]
    assert len({json.dumps(item, sort_keys=True) for item in prints}) == len(prints)
    assert CorpusBM25(passages("a b")).fingerprint() == prints[3]


def test_the_double_returns_what_it_was_given():
    pool = passages("one", "two", "three")
    double = InMemoryRetriever(pool, scores={"1": 7.0})
    assert [passage.score for passage in double.rank("x")] == [1.0, 7.0, 1 / 3]
    assert ids(double.rank("x", pool=pool[::-1], k=2)) == ["2", "1"]
    scored = [Passage(passage_id="s", title="", text="", score=0.25)]
    assert double.rank("x", pool=scored)[0].score == 0.25
    with pytest.raises(DataError, match="in-memory"):
        InMemoryRetriever().rank("x")
    with pytest.raises(DataError, match="k is"):
        double.rank("x", k=0)


@pytest.mark.whole
def test_importing_retrieval_loads_no_search_engine_and_no_torch():
    code = (
        "import sys, suffice.loops.retrieval\n"
        "print([m for m in ('bm25s', 'tantivy', 'torch', 'sentence_transformers', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_large_files_size_and_sampled_pieces_show_its_changes(tmp_path):
    path = tmp_path / "large"
    content = bytearray(2**24 + 5)
    path.write_bytes(content)
    digest = storage._digest(path)
    assert digest.startswith("pieces:")
    for place in (2**15, 2**23, 2**24 + 4):
        changed = content.copy()
        changed[place - 2**15 : place + 2**16] = bytes([1]) * len(changed[place - 2**15 : place + 2**16])
        path.write_bytes(changed)
        assert not storage.is_unchanged(path, digest)
    path.write_bytes(content[:-1])
    assert not storage.is_unchanged(path, digest)
    path.write_bytes(content)
    assert storage.is_unchanged(path, digest)
    assert storage.is_unchanged(path, hashlib.sha256(content).hexdigest())  # of an earlier release
