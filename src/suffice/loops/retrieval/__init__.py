"""Questions, and retrievers that rank passages for them."""

from __future__ import annotations

from suffice.data import BUNDLED_QUESTIONS
from suffice.loops.retrieval.bm25 import PoolBM25
from suffice.loops.retrieval.datasets import (
    GOLD_FIELDS,
    Question,
    QuestionShare,
    bundled_path,
    dataset_hash,
    load_questions,
    load_share,
    text_id,
)
from suffice.loops.retrieval.foreign import from_callable, from_haystack, from_langchain, from_llamaindex
from suffice.loops.retrieval.fused import Fused
from suffice.loops.retrieval.retriever import (
    AsyncRetriever,
    InMemoryRetriever,
    Retriever,
    ScoreKind,
    identity_of,
    is_async,
    ranked_now,
    score_kind_of,
)

__all__ = [
    "BUNDLED_QUESTIONS",
    "GOLD_FIELDS",
    "AsyncRetriever",
    "Fused",
    "InMemoryRetriever",
    "PoolBM25",
    "Question",
    "QuestionShare",
    "Retriever",
    "ScoreKind",
    "bundled_path",
    "dataset_hash",
    "from_callable",
    "from_haystack",
    "from_langchain",
    "from_llamaindex",
    "identity_of",
    "is_async",
    "load_questions",
    "load_share",
    "ranked_now",
    "score_kind_of",
    "text_id",
]
