"""Embedders of drafts: the packaged one, and sentence-transformers models; for endpoints see `suffice.loops.models`."""

from suffice.policy.embedding.clusters import MeaningClusters
from suffice.policy.embedding.embedder import DraftEmbedder, Embedder, identity

__all__ = ["DraftEmbedder", "Embedder", "MeaningClusters", "identity"]
