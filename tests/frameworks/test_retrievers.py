"""Retrievers of LangChain, LlamaIndex and Haystack in a live loop."""

import math

import pytest
from haystack import Document as HaystackDocument
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import TextNode

from suffice import Policy, RetrievalLoop, ScriptedModel
from suffice.loops.retrieval import Retriever, from_haystack, from_langchain, from_llamaindex

TEXTS = {"a": "Munch was born in Norway.", "b": "Oslo is the capital of Norway.", "c": "Vienna is in Austria."}


class Letters(Embeddings):
    def embed_documents(self, texts):
        return [[float(text.lower().count(letter)) for letter in "abcdefghijklmnopqrstuvwxyz"] for text in texts]

    def embed_query(self, text):
        return self.embed_documents([text])[0]


class Fixed(BaseRetriever):
    def _get_relevant_documents(self, query, *, run_manager):
        return [Document(text, metadata={"title": "Page"}) for text in TEXTS.values()]


def langchain_store():
    store = InMemoryVectorStore(Letters())
    store.add_documents([Document(text, id=name, metadata={"title": name.upper()}) for name, text in TEXTS.items()])
    return from_langchain(store.as_retriever(search_kwargs={"k": 1}))  # a loop asks for more


def llamaindex():
    nodes = [TextNode(id_=name, text=text, metadata={"title": name.upper()}) for name, text in TEXTS.items()]
    index = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=4))
    return from_llamaindex(index.as_retriever(similarity_top_k=3))


def haystack():
    store = InMemoryDocumentStore()
    documents = [HaystackDocument(id=name, content=text, meta={"title": name.upper()}) for name, text in TEXTS.items()]
    store.write_documents(documents)
    return from_haystack(InMemoryBM25Retriever(store, top_k=1))


@pytest.mark.parametrize("build", [langchain_store, llamaindex, haystack])
def test_a_loop_reveals_what_the_retriever_finds(build):
    retriever = build()
    assert isinstance(retriever, Retriever)
    model = ScriptedModel(lambda question, passages: f"after {len(passages)}")
    loop = RetrievalLoop(model=model, retriever=retriever, policy=Policy(rule="fixed_k(2)", max_rounds=3))
    outcome = loop.run("What is the capital of Norway?")
    assert outcome.answer == "after 2"
    for passage in outcome.rounds[-1].passages:
        assert passage.text == TEXTS[passage.passage_id]
        assert passage.title == passage.passage_id.upper()
    assert retriever.fingerprint()["class"].endswith("Retriever")


def test_documents_without_id_are_identified_by_text_and_have_no_score():
    passages = from_langchain(Fixed()).rank("?", k=2)
    assert [passage.title for passage in passages] == ["Page", "Page"]
    assert len({passage.passage_id for passage in passages}) == 2
    assert all(math.isnan(passage.score) for passage in passages)
