"""Benchmarks: each module states its question, asserts correctness first, and returns its figures from `run()`."""
