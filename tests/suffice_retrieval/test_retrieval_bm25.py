"""BM25 over pools and corpora, against bm25s and against the formula."""

from __future__ import annotations

import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile

import bm25s
import numpy as np
import pytest
from bm25s.stopwords import STOPWORDS_EN
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Retriever, load_questions
from suffice.loops.retrieval.tokens import STOP_WORDS, words
from suffice.policy.rounds import Passage
from suffice_retrieval.indexes import CorpusBM25, corpus_bm25, maxscore, postings, storage
from suffice_retrieval.indexes.storage import MANIFEST

QUESTIONS = load_questions("hotpotqa_tune", limit=30)
VOCABULARY = ["red", "green", "blue", "apple", "pear", "sky"]
CORPUS = [passage for question in QUESTIONS for passage in question.passages]


def passages(*texts):
    return [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(texts)]


def ids(ranked):
    return [passage.passage_id for passage in ranked]


def library_scores(question, pool):
    """bm25s itself, with its own tokeniser."""
    tokens = bm25s.tokenize([f"{p.title}\n{p.text}" for p in pool], show_progress=False)
    index = bm25s.BM25()
    index.index(tokens, show_progress=False)
    asked = bm25s.tokenize([question], return_ids=False, show_progress=False)[0]
    return index.get_scores(asked) if asked else np.zeros(len(pool))


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
    assert ids(rank("needle", passages("hay " * 250_000, "hay " * 250_000 + "needle", "hay"), 1)) == ["1"]


@pytest.mark.parametrize(("k1", "b"), [(-1, 0.5), (math.nan, 0.5), (math.inf, 0.5), (1.5, -0.1), (1.5, 1.1)])
def test_parameters_outside_their_range_are_refused(k1, b):
    for build in (lambda: PoolBM25(k1=k1, b=b), lambda: CorpusBM25([], k1=k1, b=b)):
        with pytest.raises(DataError, match="allowed:"):
            build()


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(VOCABULARY), max_size=8), min_size=1, max_size=12),
    st.lists(st.sampled_from([*VOCABULARY, "zebra"]), max_size=5),
    st.integers(1, 14),
)
def test_pool_and_corpus_agree_and_the_best_k_are_the_head_of_the_whole_ranking(texts, question, k):
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


@pytest.mark.parametrize("k", [1, 10, 128, 129, 299])
def test_a_corpus_is_ranked_as_bm25s_ranks_it_but_for_ties(index, k):
    for question in QUESTIONS[:8]:
        scores = library_scores(question.question, CORPUS)
        positions, found = index.search(question.question, k)
        assert positions.tolist() == np.argsort(-scores, kind="stable")[:k].tolist()
        np.testing.assert_array_equal(found, scores[positions])


def test_a_corpus_takes_no_notice_of_a_pool(index):
    assert index.rank("tempest", pool=passages("tempest"), k=5) == index.rank("tempest", k=5)


def test_an_empty_corpus_returns_nothing_and_can_be_saved(tmp_path):
    empty = CorpusBM25([])
    assert empty.rank("anything", k=5) == []
    assert CorpusBM25.load(empty.save(tmp_path / "index")).rank("anything") == []


def test_a_saved_index_ranks_the_same(tmp_path, index):
    index.save(tmp_path / "index", source="tests")
    again = CorpusBM25.load(tmp_path / "index", source="tests")
    assert again.fingerprint() == index.fingerprint()
    assert tuple(again.passages) == index.passages
    for question in QUESTIONS[:5]:
        assert again.rank(question.question, k=20) == index.rank(question.question, k=20)


def test_saving_twice_writes_the_same_bytes_and_replaces_the_old_index(tmp_path, index):
    folder = tmp_path / "index"
    CorpusBM25(passages("old")).save(folder)
    contents = []
    for _ in range(2):
        index.save(folder)
        contents.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert contents[0] == contents[1]
    assert len(CorpusBM25.load(folder)) == len(index)


def test_an_index_is_written_over_what_a_killed_process_left(tmp_path, index):
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / ".data.npy.77.tmp").write_bytes(b"half")
    index.save(tmp_path / "index")
    assert not list((tmp_path / "index").glob(".*"))


def test_an_index_holds_no_pickle(tmp_path, index):
    index.save(tmp_path / "index")
    assert {path.suffix for path in (tmp_path / "index").iterdir()} == {".json", ".jsonl", ".npy", ".bin"}
    for path in (tmp_path / "index").glob("*.npy"):
        np.load(path, allow_pickle=False)


def test_an_index_is_not_written_among_other_files(tmp_path, index):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(DataError, match=r"thesis\.txt"):
        index.save(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "precious"
    with pytest.raises(DataError, match="cannot be written"):
        index.save(tmp_path / "thesis.txt")


@pytest.fixture
def saved(tmp_path, index):
    return index.save(tmp_path / "index", source="tests")


@pytest.mark.parametrize(
    "name", ["data.npy", "indices.npy", "starts.npy", "words.bin", "passages.jsonl", "offsets.npy"]
)
def test_a_truncated_changed_or_missing_part_is_refused(saved, name):
    whole = (saved / name).read_bytes()
    for content in (whole[:-7], whole[:-1] + b"?", b""):
        (saved / name).write_bytes(content)
        with pytest.raises(SchemaError, match=name):
            CorpusBM25.load(saved)
    (saved / name).unlink()
    with pytest.raises(SchemaError, match=name):
        CorpusBM25.load(saved)


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"kind": "other", "version": 1}', "\x00\xff"])
def test_a_foreign_or_broken_manifest_is_refused(saved, content):
    (saved / MANIFEST).write_bytes(content.encode("latin-1"))
    with pytest.raises(SchemaError):
        CorpusBM25.load(saved)


def test_a_folder_without_an_index_is_refused(tmp_path):
    for folder in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(SchemaError, match="no complete index"):
            CorpusBM25.load(folder)


def change(folder, edit):
    manifest = json.loads((folder / MANIFEST).read_text())
    edit(manifest)
    (folder / MANIFEST).write_text(json.dumps(manifest))


@pytest.mark.parametrize(
    "edit",
    [
        lambda manifest: manifest.update(version=1),
        lambda manifest: manifest.pop("files"),
        lambda manifest: manifest.update(meta=[]),
        lambda manifest: manifest["meta"].pop("k1"),
        lambda manifest: manifest["meta"].update(tokens="other"),
        lambda manifest: manifest["files"].update({"../../secret": "0"}),
        lambda manifest: manifest["files"].pop("data.npy"),
    ],
)
def test_a_manifest_of_another_release_or_with_changed_values_is_refused(saved, edit):
    change(saved, edit)
    with pytest.raises(SchemaError):
        CorpusBM25.load(saved)


def test_another_source_is_refused_if_asked_for(saved):
    with pytest.raises(SchemaError, match="'tests', not 'other'"):
        CorpusBM25.load(saved, source="other")


@pytest.mark.parametrize("name", ["indices.npy", "starts.npy", "word-terms.npy"])
def test_numbers_that_point_outside_their_arrays_are_refused_even_with_a_matching_checksum(saved, name):
    array = np.load(saved / name)
    array[len(array) // 2] = 1_000_000_000
    np.save(saved / name, array)
    digest = hashlib.sha256((saved / name).read_bytes()).hexdigest()
    change(saved, lambda manifest: manifest["files"].update({name: digest}))
    with pytest.raises(SchemaError, match="do not match"):
        CorpusBM25.load(saved)


def test_an_index_that_was_not_finished_is_refused(tmp_path, index, monkeypatch):
    index.save(tmp_path / "index")
    monkeypatch.setattr(np, "save", lambda *_args, **_kwargs: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        index.save(tmp_path / "index")
    with pytest.raises(SchemaError, match="no complete index"):
        CorpusBM25.load(tmp_path / "index")


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
def test_importing_retrieval_loads_neither_bm25s_nor_a_compiler_nor_torch():
    code = (
        "import sys, suffice.loops.retrieval\n"
        "print([m for m in ('bm25s', 'numba', 'torch', 'sentence_transformers', 'pyarrow') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


# Built in blocks, searched by bounds


def arrays(index):
    lists = index._lists
    return [values.tobytes() for values in (lists.data, lists.indices, lists.starts, lists.maxima)]


@pytest.mark.parametrize(("k1", "b"), [(1.5, 0.75), (0.9, 0.4), (0.0, 0.0), (3.0, 1.0)])
def test_every_posting_and_score_is_that_of_bm25s_to_the_bit(k1, b):
    index = CorpusBM25(CORPUS, k1=k1, b=b)
    peer = bm25s.BM25(k1=k1, b=b)
    tokens = [words(f"{passage.title}\n{passage.text}") for passage in CORPUS]
    numbers = {}
    ids = [[numbers.setdefault(word, len(numbers)) for word in row] for row in tokens]
    peer.index((ids, numbers), create_empty_token=False, show_progress=False)
    assert [index._words.number(word) for word in numbers] == list(numbers.values())
    for ours, theirs in (("data", "data"), ("indices", "indices"), ("starts", "indptr")):
        np.testing.assert_array_equal(getattr(index._lists, ours), peer.scores[theirs])
    assert index._lists.maxima.tolist() == np.maximum.reduceat(index._lists.data, index._lists.starts[:-1]).tolist()


@settings(max_examples=40, deadline=None)
@given(
    st.lists(
        st.lists(st.sampled_from("abcdefgh"), max_size=9).map(lambda letters: " ".join(2 * x for x in letters)),
        max_size=30,
    ),
    st.integers(1, 7),
    st.integers(1, 40),
)
def test_an_index_is_the_same_in_blocks_of_any_size(texts, chunk, block):
    whole = CorpusBM25(passages(*texts))
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as folder:
        patch.setattr(postings, "_PASSAGES_AT_ONCE", chunk)
        patch.setattr(postings, "_POSTINGS_AT_ONCE", block)
        assert arrays(CorpusBM25(passages(*texts))) == arrays(whole)
        built = CorpusBM25.build(folder, passages(*texts))
        assert arrays(built) == arrays(whole)
        assert (built.fingerprint(), built.n_tokens) == (whole.fingerprint(), whole.n_tokens)


@pytest.mark.whole
def test_a_build_in_processes_writes_the_same_bytes_as_saving(tmp_path, index, monkeypatch):
    monkeypatch.setattr(postings, "_PASSAGES_AT_ONCE", 40)
    counts = []
    CorpusBM25.build(tmp_path / "built", CORPUS, jobs=2, on_progress=lambda done, _: counts.append(done))
    index.save(tmp_path / "saved")
    built, saved = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("built", "saved"))
    assert built == saved
    assert counts == [*range(40, len(CORPUS), 40), len(CORPUS)]


class Broken(Exception):
    pass


def test_a_build_that_is_interrupted_leaves_no_index_and_begins_again(tmp_path, index, monkeypatch):
    def broken():
        yield from CORPUS[:50]
        raise Broken

    monkeypatch.setattr(postings, "_PASSAGES_AT_ONCE", 20)
    monkeypatch.setattr(postings, "_POSTINGS_AT_ONCE", 100)
    index.save(tmp_path / "index")
    with pytest.raises(Broken):
        CorpusBM25.build(tmp_path / "index", broken())
    with pytest.raises(SchemaError, match="no complete index"):
        CorpusBM25.load(tmp_path / "index")
    (tmp_path / "index" / ".spill.killed.tmp").mkdir()
    again = CorpusBM25.build(tmp_path / "index", CORPUS)
    assert arrays(again) == arrays(index)
    assert not list((tmp_path / "index").glob(".*"))


def test_a_corpus_of_any_number_of_blocks_keeps_few_files_open(tmp_path, monkeypatch):
    resource = pytest.importorskip("resource")  # not on Windows
    monkeypatch.setattr(postings, "_PASSAGES_AT_ONCE", 1)
    monkeypatch.setattr(postings, "_POSTINGS_AT_ONCE", 1)
    corpus = passages(*(f"film {'opera' * (i % 3)}" for i in range(60)))
    free = os.open(os.devnull, os.O_RDONLY)
    os.close(free)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 40, hard))
    try:
        built = CorpusBM25.build(tmp_path / "index", corpus)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert arrays(built) == arrays(CorpusBM25(corpus))


def test_large_files_stay_on_disk_and_are_searched_there(saved, index, monkeypatch):
    monkeypatch.setattr(storage, "_WHOLE", 0)
    loaded = CorpusBM25.load(saved)
    assert isinstance(loaded._lists.data.base, np.memmap)
    assert isinstance(loaded._lists.indices.base, np.memmap)
    assert not isinstance(loaded._words.text, bytes)
    for word in {word for passage in CORPUS[:20] for word in words(passage.text)}:
        assert word.encode() in (saved / "words.bin").read_bytes().split(b"\n")
        assert loaded._words.number(word) is not None
        assert loaded._words.number(word + "zzzz") is None
    assert loaded.rank(QUESTIONS[0].question, k=9) == index.rank(QUESTIONS[0].question, k=9)
    assert [loaded._words.number(word) for word in ("", "\U0010ffff", "!")] == [None] * 3


texts_of_few_words = st.lists(st.lists(st.sampled_from("aaaabbbccdefgh"), max_size=6), min_size=1, max_size=60)


@settings(max_examples=150, deadline=None)
@given(texts_of_few_words, st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=8), st.integers(1, 70))
def test_a_search_by_bounds_is_the_full_sum_to_the_bit_also_where_scores_are_equal(texts, question, k):
    index = CorpusBM25(passages(*(" ".join(2 * letter for letter in text) for text in texts)))
    terms = [number for letter in question if (number := index._words.number(2 * letter)) is not None]
    assume(terms)
    k = min(k, len(index))
    bounded, full = (part(index, terms, k) for part in (by_bounds, by_sums))
    assert [part.tolist() for part in bounded] == [part.tolist() for part in full]


def by_bounds(index, terms, k):
    """The compiled search, after the plain one found the same."""
    compiled = maxscore.best_passages(index._lists, terms, k)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(maxscore, "_compiled", lambda: None)
        plain = maxscore.best_passages(index._lists, terms, k)
    assert [part.tolist() for part in compiled] == [part.tolist() for part in plain]
    return compiled


def by_sums(index, terms, k):
    return maxscore.best_k(maxscore.added_up(index._lists, terms), k)


@pytest.mark.parametrize("k", [1, 3, 10, 100])
def test_a_search_by_bounds_is_the_full_sum_on_real_passages(index, k):
    for question in QUESTIONS:
        terms = [number for word in words(question.question) if (number := index._words.number(word)) is not None]
        bounded, full = (part(index, terms, k) for part in (by_bounds, by_sums))
        assert [part.tolist() for part in bounded] == [part.tolist() for part in full]


def test_a_search_by_bounds_does_not_read_the_list_of_a_common_word(monkeypatch):
    texts = [f"common word{i % 500}" + (" rare" if i % 1000 == 7 else "") for i in range(20_000)]
    index = CorpusBM25(passages(*texts))
    common, rare = (index._words.number(word) for word in ("common", "rare"))
    positions, _ = by_bounds(index, [common, rare], 5)
    assert positions.tolist() == [7, 1007, 2007, 3007, 4007]
    read, of = [], maxscore.TermLists.of
    monkeypatch.setattr(maxscore.TermLists, "of", lambda lists, term: read.append(term) or of(lists, term))
    monkeypatch.setattr(
        maxscore.TermLists, "looked_up", lambda lists, term, rows: looked_up(lists, of(lists, term), rows)
    )
    monkeypatch.setattr(maxscore, "_compiled", lambda: None)
    positions, _ = maxscore.best_passages(index._lists, [common, rare], 5)
    assert positions.tolist() == [7, 1007, 2007, 3007, 4007]
    assert read == [rare]


def looked_up(lists, listed, rows):
    assert len(rows) <= 20, "only the passages of the rare word"
    return np.array([dict(zip(*map(np.ndarray.tolist, listed), strict=True)).get(row, 0) for row in rows], np.float32)


def test_the_compiled_search_reads_a_common_word_only_at_candidates():
    n = 20_000
    indices = np.concatenate([np.arange(7, n, 1000), np.arange(n)]).astype(np.int32)
    data = np.concatenate([np.full(20, 5), np.full(n, 0.1)]).astype(np.float32)
    lists = maxscore.TermLists(data, indices, np.array([0, 20, 20 + n]), np.array([5, 0.1], np.float32), n)
    later = np.arange(n) > 4007  # five passages with the rare word are known by then
    data[20:][later & (np.arange(n) % 1000 != 7)] = np.nan  # would spoil every sum in which it were
    positions, scores = maxscore.best_passages(lists, [0, 1], 5)
    assert positions.tolist() == [7, 1007, 2007, 3007, 4007]
    assert scores.tolist() == [float(np.float32(5) + np.float32(0.1))] * 5


def test_a_large_damaged_index_gives_an_error_and_never_reads_outside_its_arrays(saved, monkeypatch):
    monkeypatch.setattr(corpus_bm25, "_CHECKED", 0)
    array = np.load(saved / "indices.npy")
    array[:] = 1_000_000_000
    np.save(saved / "indices.npy", array)
    change(saved, lambda manifest: manifest["files"].update({"indices.npy": storage._digest(saved / "indices.npy")}))
    index = CorpusBM25.load(saved)
    for small in (2**15, 0):
        monkeypatch.setattr(corpus_bm25, "_SMALL", small)
        with pytest.raises(SchemaError, match="is damaged"):
            index.rank(QUESTIONS[0].question, k=1)


def test_of_a_large_file_the_size_and_pieces_of_all_of_it_are_compared(tmp_path):
    path = tmp_path / "large"
    content = bytearray(2**24 + 5)
    path.write_bytes(content)
    digest = storage._digest(path)
    assert digest.startswith("pieces:")
    for place in (2**15, 2**23, 2**24 + 4):
        changed = content.copy()
        changed[place - 2**15 : place + 2**16] = bytes([1]) * len(changed[place - 2**15 : place + 2**16])
        path.write_bytes(changed)
        assert not storage._is_unchanged(path, digest)
    path.write_bytes(content[:-1])
    assert not storage._is_unchanged(path, digest)
    path.write_bytes(content)
    assert storage._is_unchanged(path, digest)
    assert storage._is_unchanged(path, hashlib.sha256(content).hexdigest())  # of an earlier release
