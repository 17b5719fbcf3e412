"""The commands of gates and rerankers."""
