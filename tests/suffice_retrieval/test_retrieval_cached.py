"""Rankings kept on disk: paid once, and never those of other passages."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import DataError, SchemaError
from suffice.loops.retrieval import InMemoryRetriever, PoolBM25, Question, from_callable, is_async
from suffice.loops.retrieval.ranking import RankedPassages, costed_ranking, is_pinned
from suffice.policy.rounds import Cost
from suffice.recordings import ResponseCache
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_retrieval.indexes import CachedRetriever, CorpusBM25, DenseRetriever
from tests.support.cli_tools import cli, corpus, dataset

TEXTS = ["red apple", "green apple", "blue sky", "red sky"]
PASSAGES = [Passage(passage_id=str(i), title=f"t{i}", text=text) for i, text in enumerate(TEXTS)]


class Counted(CorpusBM25):
    """A corpus that counts how often it is searched."""

    def __init__(self, passages=PASSAGES):
        super().__init__(passages)
        self.asked = []

    def rank(self, question, *, pool=None, k=None):
        self.asked.append((question, k))
        return super().rank(question, pool=pool, k=k)


@pytest.fixture
def cache(tmp_path):
    with ResponseCache(tmp_path / "cache.sqlite") as opened:
        yield opened


def test_the_same_search_is_made_once_for_all_runs(cache):
    first, second = Counted(), Counted()
    rankings = [CachedRetriever(inner, cache).rank("red apple", k=2) for inner in (first, second)]
    assert rankings == [CorpusBM25(PASSAGES).rank("red apple", k=2)] * 2
    assert (first.asked, second.asked) == ([("red apple", 2)], [])


def test_another_question_k_retriever_or_pool_is_another_search(cache):
    inner = Counted()
    retriever = CachedRetriever(inner, cache)
    for question, k in (("red", 2), ("red", 3), ("red", None), ("sky", 2), ("red", 2)):
        assert retriever.rank(question, k=k) == CorpusBM25(PASSAGES).rank(question, k=k)
    assert (len(inner.asked), retriever.hits, retriever.misses) == (4, 1, 4)
    longer = [*PASSAGES, Passage(passage_id="new", title="", text="red red")]
    assert CachedRetriever(Counted(longer), cache).rank("red", k=1) == CorpusBM25(longer).rank("red", k=1)
    pools = CachedRetriever(PoolBM25(), cache)
    for pool in (PASSAGES, PASSAGES[:2], longer):
        assert pools.rank("red", pool=pool) == PoolBM25().rank("red", pool=pool)
    assert (pools.hits, pools.misses) == (0, 3)


def test_a_hit_has_the_original_costs_and_names_its_source(cache):
    scorer = CrossEncoderScorer("toy", encoder=Letters(), revision="1")
    retriever = CachedRetriever(Reranked(Counted(), scorer, candidates=3), cache)
    first, again = (asyncio.run(costed_ranking(retriever, "red sky", k=2)) for _ in range(2))
    assert (first.from_cache, again.from_cache) == (False, True)
    assert again.passages == first.passages
    assert again.costs == first.costs
    assert {name: cost.calls for name, cost in again.costs.items()} == {"retrieval": 1, "reranking": 1}
    assert all(cost.seconds > 0 for cost in again.costs.values())


def test_a_recording_from_the_cache_has_the_seconds_of_the_first_search(tmp_path, cache):
    questions = [Question(question_id=str(i), question=f"red {i}", answers=("yes",)) for i in range(3)]
    inner, columns = Counted(), []
    for name in ("a", "b"):
        model = ScriptedModel(lambda question, passages: "yes")
        loop = RetrievalLoop(model=model, retriever=CachedRetriever(inner, cache), policy=Policy(max_rounds=2))
        record(questions, loop, tmp_path / f"{name}.parquet")
        recording = read_recording(tmp_path / f"{name}.parquet")
        columns.append([recording.column(f"cost.retrieval.{kind}").tolist() for kind in ("calls", "seconds")])
    assert columns[0] == columns[1]
    assert (np.array(columns[0][1])[:, 0] > 0).all()
    assert len(inner.asked) == 3
    loop = RetrievalLoop(model=model, retriever=inner, policy=Policy(max_rounds=2))
    record(questions, loop, tmp_path / "a.parquet")  # without the cache it is the same recording


@pytest.mark.whole
def test_threads_and_processes_share_one_cache(tmp_path):
    path = tmp_path / "cache.sqlite"
    script = (
        "from suffice_retrieval.indexes.cached import CachedRetriever\n"
        "from suffice_retrieval.indexes import CorpusBM25\n"
        "from suffice.policy.rounds import Passage\n"
        "from suffice.recordings import ResponseCache\n"
        f"texts = {TEXTS!r}\n"
        "passages = [Passage(passage_id=str(i), title=f't{i}', text=text) for i, text in enumerate(texts)]\n"
        f"retriever = CachedRetriever(CorpusBM25(passages), ResponseCache({str(path)!r}))\n"
        "for i in range(50): retriever.rank(f'red {i}')\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script])
    with ResponseCache(path) as opened, ThreadPoolExecutor(8) as threads:
        retriever = CachedRetriever(Counted(), opened)
        rankings = list(threads.map(lambda i: retriever.rank(f"red {i % 50}"), range(200)))
        assert process.wait(600) == 0
        assert len(opened) == 50
    assert rankings == [CorpusBM25(PASSAGES).rank(f"red {i % 50}") for i in range(200)]
    assert retriever.hits + retriever.misses == 200


def search(question, k):
    return [Passage(passage_id="1", title="t", text="text")]


@pytest.mark.parametrize(
    "retriever",
    [
        from_callable(search, name="mine"),
        from_callable(search, name="mine", settings={"index": "main"}),
        InMemoryRetriever(PASSAGES),
        DenseRetriever("toy", encoder=object()),
        Reranked(CorpusBM25(PASSAGES), CrossEncoderScorer("org/model")),
        Reranked(from_callable(search, name="mine"), CrossEncoderScorer("org/model", revision="1")),
    ],
)
def test_what_may_change_unseen_is_not_cached(retriever, cache):
    with pytest.raises(DataError, match="nothing says"):
        CachedRetriever(retriever, cache)


def test_a_version_makes_a_foreign_retriever_cacheable_until_it_changes(cache):
    asked = []

    async def find(question, k):
        asked.append(question)
        return [Passage(passage_id=str(len(asked)), title="t", text="text")]

    versions = [from_callable(find, name="mine", settings={"version": v}) for v in ("1", "1", "2")]
    cached = [CachedRetriever(retriever, cache) for retriever in versions]
    assert all(is_async(retriever) and retriever.identity == "passage_id" for retriever in cached)
    ids = [asyncio.run(retriever.rank("red", k=1))[0].passage_id for retriever in cached]
    assert ids == ["1", "1", "2"]


def test_undefined_scores_survive(cache):
    class Own:
        name, has_corpus, is_pinned = "own", True, True

        def fingerprint(self):
            return {"name": self.name, "version": 1}

        async def costed_rank(self, question, *, pool=None, k=None):
            cost = Cost(calls=2.0, seconds=math.nan)
            return RankedPassages(
                passages=[Passage(passage_id="\ud800", title="", text="é")], costs={"retrieval": cost}
            )

        def rank(self, question, *, pool=None, k=None):
            raise AssertionError

    retriever = CachedRetriever(Own(), cache)
    assert is_pinned(retriever)
    for _ in range(2):
        [passage] = retriever.rank("red")
        assert (passage.passage_id, math.isnan(passage.score)) == ("\ud800", True)
    costs = asyncio.run(costed_ranking(retriever, "red")).costs["retrieval"]
    assert (costs.calls, math.isnan(costs.seconds)) == (2, True)


def test_an_entry_of_something_else_is_an_error(cache):
    retriever = CachedRetriever(Counted(), cache)
    cache.put({"retriever": retriever.fingerprint(), "question": "red", "pool": None, "k": 1}, {"body": "a reply"})
    with pytest.raises(SchemaError, match="invalid ranking"):
        retriever.rank("red", k=1)


def test_the_commands_keep_rankings_of_a_corpus_in_the_cache(tmp_path, monkeypatch):
    monkeypatch.setattr("suffice_gates.rerank.load_cross_encoder", lambda *_: Letters())
    questions, documents, path = dataset(tmp_path / "q.jsonl"), corpus(tmp_path / "documents"), tmp_path / "c.sqlite"
    run = ("record", questions, "--corpus", documents, "--max-rounds", 1, f"--set=cache={path}", "-o")
    assert cli(*run, tmp_path / "a.parquet").code == 0
    with ResponseCache(path) as cache:
        assert len(cache) == 4
    assert cli(*run, tmp_path / "b.parquet").code == 0
    seconds = [read_recording(tmp_path / f"{n}.parquet").column("cost.retrieval.seconds").tolist() for n in "ab"]
    assert seconds[0] == seconds[1]
    unpinned = cli(*run, tmp_path / "c.parquet", "--reranker", "org/model")
    assert "rankings of bm25-corpus+reranked are not cached" in unpinned.err


class Letters:
    """Scores a pair by the length of its passage."""

    def predict(self, pairs):
        return np.array([float(len(text)) for _, text in pairs])
