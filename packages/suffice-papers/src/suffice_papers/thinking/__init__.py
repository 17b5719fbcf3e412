"""Stopping inside a chain of thought: the demonstration on recorded chains of a model whose truth is known."""
