"""Open users' own search engines, given as `--corpus`: the address of a store, or a function of a module."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

from suffice.cli.extensions import import_named
from suffice.common.files import file_sha256
from suffice.common.provided import provided
from suffice.errors import DataError
from suffice.loops.models import EndpointEmbedder
from suffice.loops.retrieval import AsyncRetriever, Retriever, from_callable
from suffice_retrieval.indexes import DenseRetriever
from suffice_retrieval.indexes.corpus_forms import HUB
from suffice_retrieval.stores import QuestionEmbedder, Store, is_store_address, open_store, shown_address

_FUNCTION = re.compile(r"(?P<module>[\w./-]+\.py|[A-Za-z_][\w.]*):(?P<name>[A-Za-z_]\w*)")
_AT_ENDPOINT = "endpoint:"


def is_engine(corpus: str | None) -> bool:
    """Return whether the value of `--corpus` is a store or a function, as opposed to the files of a corpus.

    >>> is_engine("qdrant://localhost/wiki"), is_engine("mine.py:search"), is_engine("documents"), is_engine(None)
    (True, True, False, False)
    >>> is_engine("hf:wiki")
    False
    """
    if corpus is None or Path(corpus).exists() or corpus.startswith(HUB):
        return False
    return is_store_address(corpus) or _FUNCTION.fullmatch(corpus) is not None


def shown_corpus(corpus: str) -> str:
    """Return the value of `--corpus` for messages and files; in an address, user and password are removed."""
    return shown_address(corpus)


def open_engine(
    corpus: str, dense: str | None, dense_settings: dict[str, Any], options: Collection[str]
) -> Retriever | AsyncRetriever:
    """Return the store or function given as `--corpus`, as a retriever; a store is opened and checked.

    Args:
        corpus: The value of `--corpus`.
        dense: The value of `--dense`, the embedder of questions for a store.
        dense_settings: Arguments of `DenseRetriever` for a model of sentence-transformers.
        options: Names of further options on the command line, for which an error is raised if they do not apply.

    Raises:
        DataError: The address or the function cannot be used, or an option does not apply to it.
    """
    if not is_store_address(corpus):
        if dense is not None:
            raise DataError(f"--dense is for a corpus or a store, and {corpus!r} is a function: leave it out")
        return _function(corpus)
    store: Store = open_store(corpus, None if dense is None else _embedder(dense, dense_settings, options))
    store.fingerprint()  # so that errors appear before a model is loaded or asked
    return store


def _embedder(dense: str, settings: dict[str, Any], options: Collection[str]) -> QuestionEmbedder:
    """Return the embedder of questions: the packaged model, an endpoint, or a model of sentence-transformers."""
    of_passages = sorted({"passage-prefix", "similarity"} & set(options))
    if of_passages:
        raise DataError(
            f"{of_passages[0]} is for passages that are encoded here: a store has its vectors (distance= in its address)"
        )
    packaged = dense == "minilm"
    if (packaged or dense.startswith(_AT_ENDPOINT)) and options:
        raise DataError(
            f"{min(options)} is for a model of sentence-transformers, and --dense is {dense!r}: leave it out"
        )
    if packaged:
        return provided("reader.MiniLM")()
    if dense.startswith(_AT_ENDPOINT):
        return EndpointEmbedder(dense.removeprefix(_AT_ENDPOINT))
    return DenseRetriever(**{**settings, "similarity": "dot"})  # do not scale vectors, since the store compares them


def _function(corpus: str) -> Retriever | AsyncRetriever:
    """Import a retriever or a function from a module; return it as a retriever."""
    match = _FUNCTION.fullmatch(corpus)
    assert match is not None
    module, name = match["module"], match["name"]
    here = str(Path.cwd())
    sys.path.insert(0, here)  # find modules in the current folder, as `python -m` does
    try:
        loaded = import_named(module)
    finally:
        sys.path.remove(here)
    search: Any = getattr(loaded, name, None)
    if isinstance(search, type) and hasattr(search, "rank"):
        search = search()
    if isinstance(search, Retriever | AsyncRetriever):
        return search
    if not callable(search):
        raise DataError(
            f"{module} has no function {name!r}: write  def {name}(question, k)  that returns passages, best first, or a "
            "retriever of that name (an object, or a class without arguments)"
        )
    file = getattr(loaded, "__file__", None)
    settings = {} if file is None else {"code": file_sha256(Path(file)).hex()[:16]}
    return from_callable(search, name=f"{loaded.__name__}:{name}", settings=settings)
