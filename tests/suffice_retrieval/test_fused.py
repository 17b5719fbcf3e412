"""Reciprocal rank fusion against a plain computation from its paper, and from the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest

from suffice.errors import DataError
from suffice.loops.retrieval import Fused, InMemoryRetriever, PoolBM25, Retriever, from_callable, ranked_now
from suffice.policy.rounds import Passage
from suffice.recordings import read_recording
from suffice_retrieval.indexes import DenseRetriever
from suffice_retrieval.indexes.cached import CachedRetriever
from tests.support.cli_tools import cli, dataset

LETTERS = "abcdefgh"


class Counts:
    """Counts a handful of words."""

    def encode(self, texts, **options):
        del options
        words = ("red", "green", "blue", "apple", "sky", "tower")
        return np.array([[text.lower().count(word) for word in words] for text in texts], dtype=float)


def ranking(names, **options):
    passages = [Passage(passage_id=name, title=name, text=name) for name in names]
    return InMemoryRetriever(passages, **options)


def plain_fusion(rankings: list[list[str]], constant: float) -> list[tuple[str, float]]:
    names = [name for order in rankings for name in order]
    distinct = sorted(set(names), key=names.index)
    scores = {
        name: sum(1 / (constant + 1 + order.index(name)) for order in rankings if name in order) for name in distinct
    }
    return sorted(scores.items(), key=lambda item: -item[1])


@pytest.mark.parametrize("constant", [0, 1, 60])
def test_a_fusion_is_what_a_plain_computation_gives(constant):
    rng = np.random.default_rng(3)
    for _ in range(50):
        orders = [list(rng.permutation(list(LETTERS))[: rng.integers(2, 9)]) for _ in range(2)]
        fused = Fused(*map(ranking, orders), constant=constant)
        found = [(passage.title, passage.score) for passage in fused.rank("anything")]
        expected = plain_fusion(orders, constant)
        assert [name for name, _ in found] == [name for name, _ in expected]
        assert [score for _, score in found] == pytest.approx([score for _, score in expected])


def test_words_and_vectors_rank_a_pool_together():
    texts = ["a red tower", "blue sky", "red apple red apple", "green"]
    pool = [Passage(passage_id=str(i), title="", text=text) for i, text in enumerate(texts)]
    words, vectors = PoolBM25(), DenseRetriever("counts", encoder=Counts(), revision="1")
    fused = Fused(words, vectors)
    orders = [[p.passage_id for p in item.rank("red apple sky", pool=pool)] for item in (words, vectors)]
    found = fused.rank("red apple sky", pool=pool, k=3)
    expected = dict(plain_fusion(orders, 60)[:3])
    assert [p.passage_id for p in found] == list(expected)
    assert {p.passage_id: p.score for p in found} == pytest.approx(expected)
    assert isinstance(fused, Retriever)
    assert (fused.has_corpus, fused.identity, fused.score_kind) == (False, "title", "reciprocal_ranks")
    assert [item["name"] for item in fused.fingerprint()["retrievers"]] == [words.name, vectors.name]


def test_a_fusion_costs_what_its_retrievers_cost_and_may_be_cached():
    class Kept(dict):
        def get(self, request):
            return super().get(str(request))

        def put(self, request, response):
            self[str(request)] = response

    fused = Fused(PoolBM25(), PoolBM25(k1=0.9))
    pool = [Passage(passage_id=name, title=name, text=name) for name in LETTERS]
    cached = CachedRetriever(fused, Kept())
    assert cached.rank("a", pool=pool) == cached.rank("a", pool=pool) == fused.rank("a", pool=pool)
    assert (cached.hits, cached.misses) == (1, 1)
    from suffice.common.blocking import finished

    assert finished(fused.costed_rank("a", pool=pool)).costs["retrieval"].calls == 2
    assert not Fused(ranking("ab"), ranking("ba")).is_pinned


def test_a_fusion_with_an_awaited_retriever_is_awaited():
    async def search(question, k):
        del question
        return [Passage(passage_id=name, title=name, text=name) for name in "cba"][:k]

    def here(question, k):
        del question
        return [Passage(passage_id=name, title=name, text=name) for name in "ab"][:k]

    fused = Fused(from_callable(search, name="remote"), from_callable(here, name="here"))
    assert [p.title for p in ranked_now(fused, "anything", k=2)] == ["a", "b"]


def test_what_cannot_be_fused_is_refused():
    with pytest.raises(DataError, match="two or more"):
        Fused(PoolBM25())
    with pytest.raises(DataError, match="all of one"):
        Fused(PoolBM25(), from_callable(lambda question, k: [], name="corpus"))
    for options in ({"constant": -1}, {"constant": float("inf")}, {"candidates": 0}):
        with pytest.raises(DataError, match="least 1 candidate"):
            Fused(PoolBM25(), PoolBM25(), **options)
    with pytest.raises(DataError, match="k is 0"):
        Fused(PoolBM25(), PoolBM25()).rank("a", pool=[Passage(passage_id="a", title="a", text="a")], k=0)


@pytest.fixture
def toy(monkeypatch):
    monkeypatch.setattr("suffice_retrieval.indexes.dense.load_encoder", lambda *_: Counts())


def recorded(path, *more):
    done = cli("record", *more, "--dense", "toy", "--max-rounds", 2, "-o", path)
    return done, read_recording(path).metadata["config"]["retriever"] if done.code == 0 else None


@pytest.mark.usefixtures("toy")
def test_record_fuses_words_and_vectors_of_own_passages_and_of_a_corpus(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=2)
    done, retriever = recorded(tmp_path / "own.parquet", questions, "--set=hybrid=bm25")
    assert done.code == 0, done
    assert retriever["name"].endswith("+fused")
    assert retriever["constant"] == 60
    lines = [{"id": str(i), "title": f"T{i}", "text": text} for i, text in enumerate(["red tower", "blue sky"])]
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(line) + "\n" for line in lines))
    done, retriever = recorded(tmp_path / "c.parquet", questions, "--corpus", corpus, "--set=hybrid=bm25")
    assert done.code == 0, done
    assert len({item["corpus_hash"] for item in retriever["retrievers"]}) == 1
    vectors, words = tmp_path / "vectors", tmp_path / "words"
    assert cli("index", corpus, "-o", vectors, "--dense", "toy").code == 0
    assert cli("index", corpus, "-o", words).code == 0
    done, retriever = recorded(tmp_path / "i.parquet", questions, "--corpus", vectors, f"--set=hybrid={words}")
    assert done.code == 0, done
    assert retriever["name"].endswith("+fused")


@pytest.mark.usefixtures("toy")
def test_a_hybrid_that_cannot_be_is_refused(tmp_path):
    questions = dataset(tmp_path / "q.jsonl", n=1)
    assert "--dense" in cli("record", questions, "--set=hybrid=bm25", "-o", tmp_path / "r.parquet").error
    store = ("--corpus", "qdrant://localhost/c?content=text", "--set=hybrid=bm25")
    assert "hybrid=INDEX" in recorded(tmp_path / "s.parquet", questions, *store)[0].error
