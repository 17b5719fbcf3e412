"""Retrievers around functions; those of frameworks are in tests/frameworks."""

import pytest

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel, read_recording, record
from suffice.errors import DataError
from suffice.loops.retrieval import (
    AsyncRetriever,
    InMemoryRetriever,
    PoolBM25,
    Question,
    Retriever,
    from_callable,
    from_haystack,
    from_langchain,
    from_llamaindex,
    ranked_now,
    score_kind_of,
)
from suffice.recordings import merge_recordings
from suffice_gates.rerank import CrossEncoderScorer, Reranked
from suffice_gates.training.preferences import candidates_of
from suffice_retrieval.indexes import CorpusBM25, DenseRetriever

CHUNKS = [Passage(passage_id=str(i), title="Manual", text=f"Chunk {i}.", score=9.0 - i) for i in range(9)]


def search(question, k):
    return iter(CHUNKS)


async def search_async(question, k):
    return CHUNKS[:k]


@pytest.mark.parametrize(("function", "protocol"), [(search, Retriever), (search_async, AsyncRetriever)])
def test_a_loop_reveals_what_a_function_finds(function, protocol):
    retriever = from_callable(function, name="mine", settings={"index": "2026-11"})
    assert isinstance(retriever, protocol)
    assert retriever.fingerprint() == {"kind": "foreign", "name": "mine", "index": "2026-11"}
    model = ScriptedModel(lambda question, passages: f"after {len(passages)}")
    loop = RetrievalLoop(model=model, retriever=retriever, policy=Policy(rule="fixed_k(3)", max_rounds=5))
    outcome = loop.run("Which chunk?")
    assert outcome.answer == "after 3"
    assert outcome.rounds[-1].passages == tuple(CHUNKS[:3])  # one title, but three passages


def test_k_is_a_limit_also_for_a_function_that_ignores_it():
    assert from_callable(search, name="mine").rank("?", k=2) == CHUNKS[:2]
    assert from_callable(search, name="mine").rank("?") == CHUNKS


def test_something_else_than_a_passage_is_an_error():
    with pytest.raises(DataError, match="'text'"):
        from_callable(lambda question, k: ["text"], name="mine").rank("?")


def test_a_pool_is_refused_as_it_would_be_ignored():
    with pytest.raises(DataError, match="its own"):
        from_callable(search, name="mine").rank("?", pool=CHUNKS)


@pytest.mark.parametrize("adapter", [from_langchain, from_llamaindex, from_haystack])
def test_something_else_than_a_retriever_is_an_error(adapter):
    with pytest.raises(DataError, match="retriever"):
        adapter(search)


def test_retrievers_say_what_their_scores_are():
    class Scorer:
        def predict(self, sentences):
            return [0.0 for _ in sentences]

    dense = DenseRetriever("letters", similarity="dot")
    reranked = Reranked(PoolBM25(), CrossEncoderScorer("none", encoder=Scorer()))
    ranked = from_callable(search, name="mine", score_kind="bm25")
    kinds = [score_kind_of(item) for item in (PoolBM25(), CorpusBM25(CHUNKS), dense, reranked, ranked)]
    assert kinds == ["bm25", "bm25", "inner_product", "cross_encoder", "bm25"]
    assert score_kind_of(DenseRetriever("letters")) == "cosine"
    assert score_kind_of(InMemoryRetriever()) == score_kind_of(from_callable(search, name="mine")) == "unknown"
    with pytest.raises(DataError, match="is 'points'"):
        score_kind_of(from_callable(search, name="mine", score_kind="points"))


@pytest.mark.parametrize("function", [search, search_async])
def test_either_kind_is_ranked_from_synchronous_code(function):
    retriever = from_callable(function, name="mine")
    assert ranked_now(retriever, "?", k=2) == CHUNKS[:2]
    question = Question(question_id="q", question="Which chunk?")
    assert candidates_of(question, retriever, 3)[0] == CHUNKS[:3]


def test_a_recording_says_what_the_scores_are_and_merging_keeps_it(tmp_path):
    questions = [Question(question_id=name, question=f"Which {name}?") for name in "abc"]
    paths = [tmp_path / f"{question.question_id}.parquet" for question in questions]
    for question, path, kind in zip(questions, paths, ("bm25", "bm25", "cosine"), strict=True):
        retriever = from_callable(search, name="mine", score_kind=kind)
        record([question], RetrievalLoop(model=ScriptedModel(lambda *_: "x"), retriever=retriever), path)
    assert read_recording(paths[0]).metadata["score_kind"] == "bm25"
    merge_recordings(tmp_path / "same.parquet", paths[:2])
    assert read_recording(tmp_path / "same.parquet").metadata["score_kind"] == "bm25"
    merge_recordings(tmp_path / "both.parquet", paths)
    assert "score_kind" not in read_recording(tmp_path / "both.parquet").metadata
