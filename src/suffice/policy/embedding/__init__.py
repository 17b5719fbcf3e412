"""Embedders of drafts: the one in the package, and any sentence-transformers model; endpoints are in `suffice.llm`."""

from suffice.embedding.base import DraftEmbedder, Embedder, identity
from suffice.embedding.clusters import MeaningClusters
from suffice.embedding.minilm import MiniLM
from suffice.embedding.sentence_transformers import SentenceTransformersEmbedder

__all__ = ["DraftEmbedder", "Embedder", "MeaningClusters", "MiniLM", "SentenceTransformersEmbedder", "identity"]
