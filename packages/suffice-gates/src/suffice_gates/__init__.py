"""Gates: local models, hidden states, probes, gates side by side, preference data and rerankers."""

from suffice_gates.rerank import CrossEncoderScorer, Reranked

__all__ = ["CrossEncoderScorer", "Reranked"]
