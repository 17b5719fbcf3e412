"""Read corpora in their published forms, and index them on disk by BM25 or vectors."""

from suffice_retrieval.indexes.cached import CachedRetriever
from suffice_retrieval.indexes.converting import CorpusConversion, convert_corpus
from suffice_retrieval.indexes.corpus import CorpusIndex, index_corpus, open_corpus, read_corpus
from suffice_retrieval.indexes.corpus_bm25 import CorpusBM25
from suffice_retrieval.indexes.dense import DenseRetriever, Encoder
from suffice_retrieval.indexes.dense_index import DenseIndex, index_dense, open_dense

__all__ = [
    "CachedRetriever",
    "CorpusBM25",
    "CorpusConversion",
    "CorpusIndex",
    "DenseIndex",
    "DenseRetriever",
    "Encoder",
    "convert_corpus",
    "index_corpus",
    "index_dense",
    "open_corpus",
    "open_dense",
    "read_corpus",
]
