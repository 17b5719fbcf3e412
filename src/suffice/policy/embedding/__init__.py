"""Embedders of drafts: the packaged one, and sentence-transformers models; for endpoints see `suffice.loops.models`."""

from suffice.policy.embedding.base import DraftEmbedder, Embedder, identity
from suffice.policy.embedding.clusters import MeaningClusters

__all__ = ["DraftEmbedder", "Embedder", "MeaningClusters", "identity"]
