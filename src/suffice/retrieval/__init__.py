"""Questions, and retrievers that rank passages for them."""

from __future__ import annotations

from suffice.retrieval.base import AsyncRetriever, Retriever, identity_of, is_async
from suffice.retrieval.bm25 import PoolBM25
from suffice.retrieval.corpus import open_corpus, open_dense, read_corpus
from suffice.retrieval.corpus_bm25 import CorpusBM25
from suffice.retrieval.datasets import (
    BUNDLED_QUESTIONS,
    GOLD_FIELDS,
    Question,
    bundled_path,
    dataset_hash,
    load_questions,
    text_id,
)
from suffice.retrieval.dense import DenseRetriever, Encoder
from suffice.retrieval.foreign import from_callable, from_haystack, from_langchain, from_llamaindex
from suffice.retrieval.pool import InMemoryRetriever
from suffice.retrieval.rerank import CrossEncoderScorer, Reranked

__all__ = [
    "BUNDLED_QUESTIONS",
    "GOLD_FIELDS",
    "AsyncRetriever",
    "CorpusBM25",
    "CrossEncoderScorer",
    "DenseRetriever",
    "Encoder",
    "InMemoryRetriever",
    "PoolBM25",
    "Question",
    "Reranked",
    "Retriever",
    "bundled_path",
    "dataset_hash",
    "from_callable",
    "from_haystack",
    "from_langchain",
    "from_llamaindex",
    "identity_of",
    "is_async",
    "load_questions",
    "open_corpus",
    "open_dense",
    "read_corpus",
    "text_id",
]
