"""Gates and what they need: local models, hidden states, probes, comparisons, preference data and rerankers."""

from suffice_gates.rerank import CrossEncoderScorer, Reranked

__all__ = ["CrossEncoderScorer", "Reranked"]
