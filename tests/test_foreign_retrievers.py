"""Retrievers around functions; those of frameworks are in tests/frameworks."""

import pytest

from suffice import Passage, Policy, RetrievalLoop, ScriptedModel
from suffice.errors import DataError
from suffice.retrieval import AsyncRetriever, Retriever, from_callable, from_haystack, from_langchain, from_llamaindex

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
    with pytest.raises(DataError, match="returns passages, best first, not 'text'"):
        from_callable(lambda question, k: ["text"], name="mine").rank("?")


def test_a_pool_is_refused_as_it_would_be_ignored():
    with pytest.raises(DataError, match="searches passages of its own"):
        from_callable(search, name="mine").rank("?", pool=CHUNKS)


@pytest.mark.parametrize("adapter", [from_langchain, from_llamaindex, from_haystack])
def test_something_else_than_a_retriever_is_an_error(adapter):
    with pytest.raises(DataError, match="is not a retriever of"):
        adapter(search)
