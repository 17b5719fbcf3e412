"""CBDR: its tables 1-3 on local models, a tiny world in which a model's knowledge is known, and a demonstration."""

__all__: list[str] = []
