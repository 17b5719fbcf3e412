"""The base class of stores, which opens, checks and searches a store with retries, and converts hits to passages."""

from __future__ import annotations

import asyncio
import logging
import math
import sys
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from inspect import isawaitable
from typing import Any, ClassVar, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from suffice.common.redaction import Redactor, shortened
from suffice.errors import (
    AuthenticationFailedError,
    DataError,
    MissingExtraError,
    ModelError,
    ModelTimeoutError,
    SufficeError,
)
from suffice.loops.retrieval.ranking import RankedPassages
from suffice.loops.retrieval.retriever import Identity, ScoreKind, checked_k, refuse_pool
from suffice.policy.embedding import checked_vectors, identity
from suffice.policy.rounds import Cost, Passage
from suffice.policy.signals import EMBEDDING, RETRIEVAL
from suffice_retrieval.indexes.dense import DenseRetriever
from suffice_retrieval.stores.background import BackgroundClient, in_background
from suffice_retrieval.stores.checks import checked_choice, not_among
from suffice_retrieval.stores.filters import Condition, conditions_of
from suffice_retrieval.stores.records import Content, Fields, Hit, QuestionEmbedder

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_LOOKED_UP = 1000
"""The most passages in one request by ids."""


class Store(ABC):
    """A search engine or database as a retriever; see `suffice.loops.retrieval.AsyncRetriever`.

    `rank` may be awaited from any number of event loops, in succession or concurrently.  A question has no hits if it
    is blank, or if the embedder or the store knows none of its words.
    """

    name: ClassVar[str]
    has_corpus = True
    by_vectors_only: ClassVar[bool] = False
    library: ClassVar[str] = ""
    """The client library to import before the first search, since that may take long; empty if there is none."""
    extra: ClassVar[str] = ""
    """The extra of suffice-retrieval that installs the library; empty for a store of another package."""

    def __init__(
        self,
        place: str,
        fields: Fields,
        *,
        embedder: QuestionEmbedder | None = None,
        filters: Mapping[str, Any] | None = None,
        identity: Identity = "passage_id",
        timeout_s: float = 30.0,
        retries: int = 2,
        version: str | None = None,
        secrets: Iterable[str | None] = (),
    ) -> None:
        self.require_library()
        if not timeout_s > 0 or not math.isfinite(timeout_s) or retries < 0:
            raise DataError(f"timeout_s must be positive and retries at least 0, got {timeout_s!r}, {retries!r}")
        checked_choice(identity, "identity", get_args(Identity))
        self.identity: Identity = identity
        self.fields, self.embedder, self.filters = fields, embedder, dict(filters or {})
        self.timeout_s, self.retries, self.version = timeout_s, retries, version
        self.place, self._redact = place, Redactor(secrets)
        self.conditions: tuple[Condition, ...] = conditions_of(filters)
        self._client = BackgroundClient(self.close_client)
        self._content: Content | None = None
        self._width: int | None = None
        weakref.finalize(self, self._client.close)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.place}>"

    @classmethod
    def require_library(cls) -> None:
        """Raise if the client library is missing.

        Raises:
            MissingExtraError: The library is not installed.
        """
        if cls.library and find_spec(cls.library) is None:
            if not cls.extra:
                raise DataError(f"the client library {cls.library} of the store {cls.name} is not installed")
            raise MissingExtraError(f"searching {cls.name} ({cls.library})", cls.extra, "suffice-retrieval")

    @property
    def score_kind(self) -> ScoreKind:
        """The kind of the scores; reading this opens the store."""
        return (self._content or self._looked()).score_kind

    @property
    def is_pinned(self) -> bool:
        """True if a `version` of the passages is given, so that the fingerprint identifies the passages."""
        return self.version is not None

    def fingerprint(self) -> dict[str, Any]:
        """Return the settings of the search, and facts that identify the present passages.

        The result never contains an address or a password.  The store is opened; its fields, and the dimension of its
        vectors, are checked.

        Raises:
            DataError: A table, collection, index or field is missing, there is no passage, or the dimensions differ.
            ModelError: The store cannot be reached, or the embedder failed.
        """
        content = self._looked()
        embedder = {} if self.embedder is None else {"embedder": _embedder_facts(self.embedder)}
        return {
            "kind": "store",
            "name": self.name,
            "search": "text" if self.embedder is None else "vector",
            "score_kind": content.score_kind,
            "fields": asdict(self.fields),
            "filters": self.filters,
            **self.settings(),
            **embedder,
            "content": {**content.facts, **({} if self.version is None else {"version": self.version})},
        }

    async def rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> list[Passage]:
        """Return the best `k` passages with their scores, best first; fewer if the store finds no more.

        Raises:
            DataError: There is a pool, `k` is below 1 or above the limit of the store, a hit has no text, two hits have
                the same id, or the content of the store does not match the settings (see `fingerprint`).
            ModelError: The store or the embedder failed, and retries did not help.
        """
        return list((await self.costed_rank(question, pool=pool, k=k)).passages)

    async def costed_rank(
        self, question: str, *, pool: Sequence[Passage] | None = None, k: int | None = None
    ) -> RankedPassages:
        """Return the passages of `rank` with costs; an embedder's endpoint is charged to a separate component."""
        refuse_pool(self.name, pool)
        checked_k(k, 0)
        self._check_embedder()
        began = time.perf_counter()
        passages: list[Passage] = []
        costs: dict[str, Cost] = {}
        vector, embedding, searched = None, None, bool(question.strip())
        if searched and self.embedder is not None:
            vector, embedding = await asyncio.to_thread(self._vector, question)
            searched = bool(vector.any())
        if searched:
            passages = await asyncio.wrap_future(in_background(self._ranked(question, vector, k)))
        seconds = time.perf_counter() - began
        if embedding is not None:
            costs[EMBEDDING], seconds = embedding, seconds - embedding.seconds
        return RankedPassages(
            passages=passages, costs={RETRIEVAL: Cost(calls=float(searched), seconds=seconds), **costs}
        )

    def passages(self, ids: Iterable[str]) -> dict[str, Passage]:
        """Return passages by their ids, since recordings contain only ids; ids that the store lacks are left out.

        Raises:
            DataError: A passage has no text, or two have the same id.
            ModelError: The store failed.
        """
        wanted, passages = list(dict.fromkeys(ids)), dict[str, Passage]()
        for start in range(0, len(wanted), _LOOKED_UP):
            look_up = partial(self.look_up, ids=wanted[start : start + _LOOKED_UP])
            hits = in_background(self._attempt(look_up)).result()
            passages |= {passage.passage_id: passage for passage in self._passages(hits)}
        return passages

    def close(self) -> None:
        """Close the connections; a later call opens them again.  Deleting the retriever also closes them."""
        self._client.close()

    async def _ranked(self, question: str, vector: npt.NDArray[np.float64] | None, k: int | None) -> list[Passage]:
        if self._content is None:
            self._content = await self._attempt(self.look)
        content = self._content
        self._check_width(content)
        n = content.rows if k is None else k
        if content.most is not None and n > content.most:
            raise DataError(
                f"{self.place} returns at most {content.most:,} hits, and k is {'None: all ' if k is None else ''}{n:,}: "
                "ask for fewer"
            )
        hits = await self._attempt(lambda client: self.find(client, content, question, vector, n))
        return self._passages(hits)

    def _looked(self) -> Content:
        """Open the store, and return a report on its present content."""
        self._check_embedder()
        if self.embedder is not None and self._width is None:
            self._vector("How many numbers?")
        self._content = in_background(self._attempt(self.look)).result()
        self._check_width(self._content)
        return self._content

    def _check_embedder(self) -> None:
        if self.by_vectors_only and self.embedder is None:
            raise DataError(
                f"{self.place} is searched by vectors: name the model that made them (embedder; on the command line, --dense)"
            )

    def _check_width(self, content: Content) -> None:
        if self.embedder is not None and self._width != content.dimension:
            raise DataError(
                f"{self.place} holds vectors of {content.dimension} numbers, and the embedder {self.embedder!r} returns "
                f"{self._width}: use the embedder that made them"
            )

    def _vector(self, question: str) -> tuple[npt.NDArray[np.float64], Cost | None]:
        """Return the vector of a question, and the cost of the embedder's endpoint (None without an endpoint)."""
        vector: npt.NDArray[np.float64]
        cost: Cost | None = None
        if isinstance(self.embedder, DenseRetriever):
            vector = self.embedder.encode_question(question).astype(np.float64)
        else:
            assert self.embedder is not None
            if hasattr(self.embedder, "endpoint"):
                rows, cost = self.embedder.embed_costed([question])
            else:
                rows = self.embedder.embed([question])
            vector = checked_vectors(self.embedder.id, rows, 1)[0]
            if not np.isfinite(vector).all():
                raise ModelError(
                    f"the embedder {self.embedder.id!r} returned numbers that are not finite for a question"
                )
        self._width = len(vector)
        return vector, cost

    async def _attempt(self, call: Callable[[Any], Awaitable[_T]]) -> _T:
        """Call a function with the client, and retry after failures, which is safe since a search changes nothing."""
        if (
            self.library and self.library not in sys.modules
        ):  # import it before the timeout begins: that may take longer than a search
            await asyncio.to_thread(import_module, self.library)
        for attempt in range(self.retries + 1):
            if attempt:
                await asyncio.sleep(0.2 * 2**attempt)
            try:
                async with asyncio.timeout(self.timeout_s):
                    return await call(await self._client.get(self.open_client))
            except SufficeError:
                raise
            except TimeoutError:
                failure: SufficeError = self._too_slow("raise timeout_s, or ask for less")
            except Exception as error:  # noqa: BLE001 - whatever a client raises becomes one of our errors
                failure = self.failure_of(error)
            if not getattr(failure, "retryable", False) or isinstance(failure, ModelTimeoutError):
                break
        # Raise outside the handler: as context, the client's error would show the address.
        raise failure

    def _with_vector(self, usable: int, rows: int) -> dict[str, int]:
        """Return the fingerprint's entry on the number of rows with a vector; empty if all rows have one.

        A search never finds rows without a vector.

        Raises:
            DataError: No row has a vector.
        """
        if not usable:
            raise DataError(
                f"{self.place} has no vector in any of its {rows:,} rows: fill {self.fields.vector!r} first"
            )
        if usable == rows:
            return {}
        _LOG.warning("%s: %s of %s rows have no vector, so they are never found", self.place, rows - usable, rows)
        return {"with_vector": usable}

    def _passages(self, hits: Sequence[Hit]) -> list[Passage]:
        passages: dict[str, Passage] = {}
        for name, title, text, score in hits:
            if name is None:
                raise DataError(f"{self.place}: a hit has no id in {self.fields.passage_id!r}; every passage needs one")
            passage_id = str(name)
            if not isinstance(text, str):
                raise DataError(
                    f"{self.place}: the passage {passage_id!r} has no text in {self.fields.text!r}, but {text!r:.40}: fill it, "
                    "or leave such passages out with a filter or a view"
                )
            if passage_id in passages:
                raise DataError(
                    f"{self.place}: two hits have the id {passage_id!r}: name a field that is unique for every passage "
                    f"(it is {self.fields.passage_id!r} now)"
                )
            heading = passage_id if title is None or title == "" else str(title)
            passages[passage_id] = Passage(passage_id=passage_id, title=heading, text=text, score=float(score))
        return list(passages.values())

    def _failed(self, error: object, *, advice: str = "", retryable: bool = False) -> ModelError:
        """Return the error for a failure of the store, without secrets."""
        advice = f": {advice}" if advice else ""
        return ModelError(f"{self.place} failed ({self._said(error)}){advice}", retryable=retryable)

    def _unreachable(self, error: object) -> ModelError:
        return ModelError(
            f"{self.place} cannot be reached, or dropped the connection ({self._said(error)}): check that it runs and that "
            "the address is right",
            retryable=True,
        )

    def _too_slow(self, advice: str) -> ModelTimeoutError:
        return ModelTimeoutError(f"{self.place} did not answer within {self.timeout_s:g} s: {advice}")

    def _status(self, status: int, said: object) -> SufficeError:
        """Return the error for an HTTP status."""
        text = f"{self.place} answered {status} ({self._said(said)})"
        if status in (401, 403):
            return AuthenticationFailedError(f"{text}: check the key, or user and password, and their rights")
        if status in (408, 504):
            return ModelTimeoutError(f"{text}: raise timeout_s, or ask for less")
        if status == 429 or status >= 500:  # noqa: PLR2004
            return ModelError(f"{text}: try again later, with less concurrency", retryable=True)
        return DataError(f"{text}: check names, filters and settings")

    def _require_fields(self, kind: str, known: Collection[str], *further: str | None) -> None:
        """Raise if the store does not have a field that a search reads.

        Args:
            kind: The store's own word for a field.
            known: Fields of the store.
            further: Fields that a search reads besides the fields of passages, vectors and filters.
        """
        fields = (*self.fields.parts, self.fields.vector, *further, *(item.field for item in self.conditions))
        for name in filter(None, fields):
            if name not in known:
                not_among(f"{self.place}: the {kind}", name, known, self._title_advice(name))

    def _title_advice(self, name: str) -> str:
        return "Without a title, give title=None (in an address: title=)" if name == self.fields.title else ""

    def _said(self, error: object) -> str:
        return shortened(self._redact(str(error) or type(error).__name__))

    # Methods that each kind of store defines.

    def settings(self) -> dict[str, Any]:
        """Return further JSON-ready settings that affect the ranking."""
        return {}

    @abstractmethod
    async def open_client(self) -> Any:
        """Return a new client, which is then used only in the background thread."""

    @staticmethod
    async def close_client(client: Any) -> None:
        """Close a client; the default calls its method `close`, and waits for it if it is asynchronous."""
        closing = client.close()
        if isawaitable(closing):
            await closing

    @abstractmethod
    async def look(self, client: Any) -> Content:
        """Check that named tables and fields exist, and return a report of the store's content."""

    @abstractmethod
    async def find(
        self, client: Any, content: Content, question: str, vector: npt.NDArray[np.float64] | None, k: int
    ) -> list[Hit]:
        """Return the best hits, best first.

        Args:
            client: Result of `open_client`.
            content: Result of `look`.
            question: A question that is not blank.
            vector: The vector of the question, shape ``(dimension,)``; None for a search by words.
            k: Largest number of hits, at least 1.
        """

    async def look_up(self, client: Any, ids: list[str]) -> list[Hit]:
        """Return the passages with given ids, in any order and with any score.

        The default raises, for stores that cannot look up ids.
        """
        del client
        raise DataError(f"{self.place} does not look passages up by their ids, so {len(ids):,} texts are not known")

    def failure_of(self, error: Exception) -> SufficeError:
        """Convert a client's error to an error of this library; if the new error is retryable, the call is repeated."""
        return self._unreachable(error) if isinstance(error, OSError) else self._failed(error)


def _embedder_facts(embedder: QuestionEmbedder) -> dict[str, Any]:
    return embedder.fingerprint() if isinstance(embedder, DenseRetriever) else dict(identity(embedder))
