"""Wrap foreign retrievers: a function, or a retriever of LangChain, LlamaIndex or Haystack."""

from __future__ import annotations

import inspect
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

from suffice.errors import DataError
from suffice.loops.retrieval.datasets import text_id
from suffice.loops.retrieval.retriever import AsyncRetriever, Identity, Retriever, ScoreKind, refuse_pool
from suffice.policy.rounds import Passage

SearchFunction = Callable[[str, int | None], Iterable[Passage] | Awaitable[Iterable[Passage]]]
"""A function from a question and the most passages (None = all) to passages, best first."""


def from_callable(
    search: SearchFunction,
    *,
    name: str,
    settings: Mapping[str, Any] | None = None,
    identity: Identity = "passage_id",
    score_kind: ScoreKind = "unknown",
) -> Retriever | AsyncRetriever:
    """Return a retriever that calls a function, which may be a coroutine function.

    >>> def search(question, k):
    ...     return [Passage(passage_id="1", title="Munch", text="Munch was born in Norway.", score=3.2)]
    >>> from_callable(search, name="mine").rank("Where was Munch born?")[0].title
    'Munch'

    Args:
        search: Called with the question and the largest number of passages.
        name: The retriever's name in reports and recordings.
        settings: Further JSON-ready values that identify the retriever (index, version, ...); a recording stores them.
            Rankings are cached only if there is a `version`, which you must change whenever the passages or the search
            change.
        identity: The field that identifies a passage.
        score_kind: The kind of the passages' scores.
    """
    kind = _AsyncForeign if inspect.iscoroutinefunction(search) else _Foreign
    return kind(name=name, search=search, settings=dict(settings or {}), identity=identity, score_kind=score_kind)


def from_langchain(
    retriever: Any, *, name: str = "langchain", title: str = "title", settings: Mapping[str, Any] | None = None
) -> Retriever:
    """Wrap a retriever of LangChain.

    A vector store's retriever returns as many documents as a loop needs; other retrievers return their configured number.

    Args:
        retriever: A `BaseRetriever` of LangChain.
        name: The retriever's name in reports and recordings.
        title: The field of a document's metadata that holds its title; without it the passage's id is the title.
        settings: Further values that identify the retriever, see `from_callable`.

    Raises:
        DataError: The retriever has no `invoke`.
    """

    def search(question: str, k: int | None) -> list[Passage]:
        asked = {"k": k} if k is not None and hasattr(retriever, "search_kwargs") else {}
        documents = retriever.invoke(question, **asked)
        return [_foreign_passage(item.id, item.page_content, item.metadata, title, math.nan) for item in documents]

    return _wrapped(retriever, "invoke", "LangChain", search, name=name, settings=settings)


def from_llamaindex(
    retriever: Any, *, name: str = "llamaindex", title: str = "title", settings: Mapping[str, Any] | None = None
) -> Retriever:
    """Wrap a retriever of LlamaIndex; it returns its configured number of nodes (`similarity_top_k`).

    Args:
        retriever: A `BaseRetriever` of LlamaIndex.
        name: The retriever's name in reports and recordings.
        title: The field of a node's metadata that holds its title; without it the passage's id is the title.
        settings: Further values that identify the retriever, see `from_callable`.

    Raises:
        DataError: The retriever has no `retrieve`.
    """

    def search(question: str, k: int | None) -> list[Passage]:
        hits = retriever.retrieve(question)[:k]
        return [
            _foreign_passage(hit.node.node_id, hit.node.get_content(), hit.node.metadata, title, hit.score)
            for hit in hits
        ]

    return _wrapped(retriever, "retrieve", "LlamaIndex", search, name=name, settings=settings)


def from_haystack(
    retriever: Any, *, name: str = "haystack", title: str = "title", settings: Mapping[str, Any] | None = None
) -> Retriever:
    """Wrap a component of Haystack that takes a `query` and `top_k`, such as a BM25 retriever.

    Args:
        retriever: The component.
        name: The retriever's name in reports and recordings.
        title: The field of a document's `meta` that holds its title; without it the passage's id is the title.
        settings: Further values that identify the retriever, see `from_callable`.

    Raises:
        DataError: The component has no `run`.
    """

    def search(question: str, k: int | None) -> list[Passage]:
        documents = retriever.run(query=question, **({} if k is None else {"top_k": k}))["documents"]
        return [_foreign_passage(item.id, item.content or "", item.meta, title, item.score) for item in documents]

    return _wrapped(retriever, "run", "Haystack", search, name=name, settings=settings)


@dataclass(frozen=True, kw_only=True)
class _Foreign:
    """A retriever that calls a function, which searches its own corpus."""

    name: str
    search: SearchFunction
    settings: Mapping[str, Any] = field(default_factory=dict)
    identity: Identity = "passage_id"
    score_kind: ScoreKind = "unknown"
    has_corpus: bool = True

    @property
    def is_pinned(self) -> bool:
        """True if the settings contain a version, so that rankings may be cached."""
        return self.settings.get("version") is not None

    def fingerprint(self) -> dict[str, Any]:
        """Return the retriever's name and settings."""
        return {"kind": "foreign", "name": self.name, **self.settings}

    def rank(self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None) -> list[Passage]:
        """Return passages, best first; see `Retriever.rank`."""
        refuse_pool(self.name, pool)
        return _first(cast("Iterable[Passage]", self.search(question, k)), k)


@dataclass(frozen=True, kw_only=True)
class _AsyncForeign(_Foreign):
    """A retriever that awaits a coroutine function, which searches its own corpus."""

    async def rank(  # type: ignore[override]
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> list[Passage]:
        """Return passages, best first; see `Retriever.rank`."""
        refuse_pool(self.name, pool)
        return _first(await cast("Awaitable[Iterable[Passage]]", self.search(question, k)), k)


def _first(passages: Iterable[Any], k: int | None) -> list[Passage]:
    """Return the first `k` passages; raise if an item is not a passage."""
    first = list(islice(passages, k))
    wrong = next((item for item in first if not isinstance(item, Passage)), None)
    if wrong is not None:
        raise DataError(
            f"a search returns passages, best first, not {wrong!r}: "
            "Passage(passage_id=..., title=..., text=..., score=...)"
        )
    return first


def _wrapped(
    retriever: Any,
    method: str,
    library: str,
    search: SearchFunction,
    *,
    name: str,
    settings: Mapping[str, Any] | None,
) -> Retriever:
    """Wrap another library's retriever; raise if it lacks the method that `search` calls."""
    if not callable(getattr(retriever, method, None)):
        raise DataError(f"{retriever!r} has no method {method!r}, so it is not a retriever of {library}")
    kind = f"{type(retriever).__module__}.{type(retriever).__qualname__}"
    return _Foreign(name=name, search=search, settings={"class": kind, **(settings or {})})


def _foreign_passage(
    passage_id: str | None, text: str, metadata: Mapping[str, Any], title: str, score: float | None
) -> Passage:
    name = passage_id or text_id(text)
    known = math.nan if score is None else float(score)
    return Passage(passage_id=name, title=str(metadata.get(title) or name), text=text, score=known)
