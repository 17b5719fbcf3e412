"""Gates: local models, hidden states, probes, gates side by side, preference data and rerankers."""
