"""Build retrievers from the options of a command: by words, by vectors, or by both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from suffice.cli.console import progress_bar
from suffice.cli.datasets import Search
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops.retrieval import AsyncRetriever, Fused, PoolBM25, Retriever


def ranked_by(search: Search, device: str | None) -> Retriever | AsyncRetriever:
    """Return the retriever that the options describe; without a corpus, it ranks each question's own passages."""
    more = search.of_dense()
    if search.hybrid is None or search.dense is None:
        return _ranked(search, more, device)
    own = search.hybrid == "bm25"
    if own and search.corpus is not None and provided("retrieval.is_engine")(search.corpus):
        raise DataError(
            f"{search.corpus} is searched as it is, and has no BM25 index here: name one of the same passages and ids with "
            "--set hybrid=INDEX (`suffice index`)"
        )
    words = replace(search, dense=None, hybrid=None, corpus=search.corpus if own else search.hybrid)
    dense = _ranked(search, [name for name in more if name != "hybrid"], device)
    return Fused(_ranked(words, [], device), dense)


def _ranked(search: Search, more: list[str], device: str | None) -> Retriever | AsyncRetriever:
    """Return the retriever that ranks by words or by vectors; `more` are the given options that only `--dense` uses."""
    if search.corpus is not None and provided("retrieval.is_engine")(search.corpus):
        settings = {} if search.dense is None else search.settings(search.dense, device)
        return provided("retrieval.open_engine")(search.corpus, search.dense, settings, more)
    if search.dense is None:
        if search.corpus is None:
            return PoolBM25()
        if provided("retrieval.is_dense_index")(Path(search.corpus)):
            raise DataError(f"{search.corpus} is an index of vectors: name the model that encoded them with --dense")
        with progress_bar(f"indexing {search.corpus}", quiet=False) as progress:
            return provided("retrieval.open_corpus")(search.corpus, on_progress=progress)
    settings = search.settings(search.dense, device)
    if search.corpus is None:
        return provided("retrieval.DenseRetriever")(**settings)
    with progress_bar(f"indexing {search.corpus}", quiet=False) as progress:
        return provided("retrieval.open_dense")(search.corpus, **settings, on_progress=progress)
