"""Training: probes, preference data and rerankers aligned with a model; needs the extra `torch`."""

__all__: list[str] = []
