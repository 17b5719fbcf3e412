"""Probes: from a model's hidden state to the probability that it knows the answer, served with numpy alone."""

__all__: list[str] = []
