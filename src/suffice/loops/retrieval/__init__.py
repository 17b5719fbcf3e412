"""Questions, and retrievers that rank passages for them."""

from __future__ import annotations

from suffice.retrieval.base import (
    AsyncRetriever,
    Retriever,
    ScoreKind,
    identity_of,
    is_async,
    ranked_now,
    score_kind_of,
)
from suffice.retrieval.bm25 import PoolBM25
from suffice.retrieval.cached import CachedRetriever
from suffice.retrieval.corpus import CorpusIndex, index_corpus, open_corpus, read_corpus
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
from suffice.retrieval.dense_index import DenseIndex, index_dense, open_dense
from suffice.retrieval.foreign import from_callable, from_haystack, from_langchain, from_llamaindex
from suffice.retrieval.pool import InMemoryRetriever
from suffice.retrieval.rerank import CrossEncoderScorer, Reranked
from suffice.retrieval.shares import QuestionShare, load_share

__all__ = [
    "BUNDLED_QUESTIONS",
    "GOLD_FIELDS",
    "AsyncRetriever",
    "CachedRetriever",
    "CorpusBM25",
    "CorpusIndex",
    "CrossEncoderScorer",
    "DenseIndex",
    "DenseRetriever",
    "Encoder",
    "InMemoryRetriever",
    "PoolBM25",
    "Question",
    "QuestionShare",
    "Reranked",
    "Retriever",
    "ScoreKind",
    "bundled_path",
    "dataset_hash",
    "from_callable",
    "from_haystack",
    "from_langchain",
    "from_llamaindex",
    "identity_of",
    "index_corpus",
    "index_dense",
    "is_async",
    "load_questions",
    "load_share",
    "open_corpus",
    "open_dense",
    "ranked_now",
    "read_corpus",
    "score_kind_of",
    "text_id",
]
