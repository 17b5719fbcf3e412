"""Embedders of drafts: the one in the package, and any sentence-transformers model; endpoints are in `suffice.loops.models`."""

from suffice.policy.embedding.base import DraftEmbedder, Embedder, identity
from suffice.policy.embedding.clusters import MeaningClusters

__all__ = ["DraftEmbedder", "Embedder", "MeaningClusters", "identity"]
