"""Names of rankings and answers of CBDR's pipeline, in its journals and its tables."""

from __future__ import annotations

from pathlib import Path

ALIGNED = "aligned"
"""The name of the reranker trained here, in the tables."""

RETRIEVER = "BM25 order"
"""The name of the retriever's own order, without a reranker."""

CLOSED_BOOK, ONE_PASSAGE = "closed book", "one passage"
"""Names of answers."""


def answers_of_order(name: str, depth: int) -> str:
    """Return the name of the answers from prompts with the first `depth` passages of an order of passages."""
    return f"{name} top-{depth}"


def display_name(reranker: str) -> str:
    """Return a reranker's name for the tables: its id, or the name of its folder."""
    return Path(reranker).name if Path(reranker).is_dir() else reranker
