"""CBDR: the paper's tables 1-3 on local models, a tiny world with a model of known knowledge, and a demonstration."""

__all__: list[str] = []
