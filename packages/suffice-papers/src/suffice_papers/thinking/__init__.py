"""Stopping inside a chain of thought: the demonstration on recorded chains of a model, with known answers."""
