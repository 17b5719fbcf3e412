"""The commands of corpora."""
