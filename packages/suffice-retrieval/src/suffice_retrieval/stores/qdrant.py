"""Search a collection of Qdrant, which consists of vectors with payloads."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack
from urllib.parse import unquote, urlsplit

import numpy as np
import numpy.typing as npt

from suffice.errors import AuthenticationFailedError, DataError, SufficeError
from suffice.loops.retrieval.retriever import ScoreKind
from suffice_retrieval.stores.checks import no_passage, not_among, require_folder
from suffice_retrieval.stores.filters import Condition
from suffice_retrieval.stores.kinds import StoreAddress, StoreKind, boolean
from suffice_retrieval.stores.records import Content, Fields, Hit, StoreOptions
from suffice_retrieval.stores.store import Store

if TYPE_CHECKING:
    from qdrant_client import AsyncQdrantClient, models

_SCORE_KINDS: Mapping[str, ScoreKind] = {
    "Cosine": "cosine",
    "Dot": "inner_product",
    "Euclid": "negative_distance",
    "Manhattan": "negative_distance",
}


class QdrantStore(Store):
    """A collection of Qdrant, searched by vectors with the collection's own distance.

    Fields may be paths into a payload, such as `metadata.title`.

    Args:
        collection: Name of the collection.
        url: Address of the server, such as `http://localhost:6333`; None with `path`.
        path: Folder of a collection of Qdrant's local mode, which one process at a time may open; None with `url`.
        api_key: The key; None for `QDRANT_API_KEY`.
        passage_id: Payload field of the id; None for the id of the point.
        title: Payload field of the title; None to use the id as the title.
        text: Payload field of the text.
        vector: Name of the vector to search; None if the collection has a single vector without a name.
        exact: True to ignore the approximate index.
        options: Further arguments of `AsyncQdrantClient`; fingerprints do not contain these arguments.
        common: See `StoreOptions`.

    Raises:
        MissingExtraError: qdrant-client is not installed.
        DataError: A parameter is out of range, or not exactly one of `url` and `path` is given.
    """

    name = "qdrant"
    by_vectors_only = True
    extra = "qdrant"
    library = "qdrant_client"

    def __init__(
        self,
        collection: str,
        *,
        url: str | None = None,
        path: str | Path | None = None,
        api_key: str | None = None,
        passage_id: str | None = None,
        title: str | None = "title",
        text: str = "text",
        vector: str | None = None,
        exact: bool = False,
        options: Mapping[str, Any] | None = None,
        **common: Unpack[StoreOptions],
    ) -> None:
        key = os.environ.get("QDRANT_API_KEY") if api_key is None else api_key
        super().__init__(
            f"the Qdrant collection {collection!r}",
            Fields(passage_id=passage_id, title=title, text=text, vector=vector),
            secrets=[key, url and urlsplit(url).password],
            **common,
        )
        if (url is None) == (path is None):
            raise DataError("give url, the address of a server, or path, the folder of a local collection: one of them")
        self.collection, self.exact = collection, exact
        self._path = None if path is None else Path(path)
        self._options = {"check_compatibility": False, **(options or {})}
        if path is None:
            self._options |= {"url": url, "api_key": key or None, "timeout": max(1, round(self.timeout_s))}

    def settings(self) -> dict[str, Any]:
        """See `Store.settings`."""
        return {"collection": self.collection, "exact": self.exact}

    async def open_client(self) -> AsyncQdrantClient:
        """See `Store.open_client`."""
        from qdrant_client import AsyncQdrantClient

        if self._path is None:
            return AsyncQdrantClient(**self._options)
        require_folder(self.place, self._path)
        return AsyncQdrantClient(path=str(self._path), **self._options)

    async def look(self, client: AsyncQdrantClient) -> Content:
        """See `Store.look`."""
        collections = [item.name for item in (await client.get_collections()).collections]
        if self.collection not in collections:
            not_among("the Qdrant collection", self.collection, collections)
        info = await client.get_collection(self.collection)
        vectors = info.config.params.vectors
        name = self.fields.vector
        if isinstance(vectors, Mapping):
            if name is None or name not in vectors:
                not_among(f"{self.place}: the vector", name or "", vectors, "Name one (vector)")
            vectors = vectors[name]
        elif name is not None:
            not_among(f"{self.place}: the vector", name, [], "Its only vector has no name: leave vector out")
        if vectors is None or vectors.multivector_config is not None:
            raise DataError(f"{self.place} has no single vector for each point, so it cannot be searched by one")
        conditions = self._filter()
        count = (await client.count(self.collection, count_filter=conditions, exact=True)).count
        if not count:
            no_passage(self.place, self.filters)
        first = (await client.scroll(self.collection, limit=1, scroll_filter=conditions, with_payload=True))[0][0]
        for field in self.fields.read:
            if _payload_value(first.payload, field) is _MISSING:
                not_among(f"{self.place}: the payload field", field, first.payload or {}, self._title_advice(field))
        distance = vectors.distance.value
        facts = {"points": count, "distance": distance, "dimension": vectors.size}
        return Content(facts=facts, rows=count, score_kind=_SCORE_KINDS[distance], dimension=vectors.size)

    async def find(
        self,
        client: AsyncQdrantClient,
        content: Content,
        question: str,
        vector: npt.NDArray[np.float64] | None,
        k: int,
    ) -> list[Hit]:
        """See `Store.find`."""
        from qdrant_client import models

        del question
        assert vector is not None
        reply = await client.query_points(
            self.collection,
            query=vector.tolist(),
            using=self.fields.vector,
            query_filter=self._filter(),
            search_params=models.SearchParams(exact=True) if self.exact and self._path is None else None,
            limit=k,
            with_payload=self.fields.read,
        )
        sign = -1.0 if content.score_kind == "negative_distance" else 1.0
        return [(*self._read(point), sign * point.score) for point in reply.points]

    async def look_up(self, client: AsyncQdrantClient, ids: list[str]) -> list[Hit]:
        """See `Store.look_up`."""
        from qdrant_client import models

        field = self.fields.passage_id
        if field is None:
            names: Any = [int(name) if name.isdecimal() else name for name in ids]
            points = await client.retrieve(self.collection, names, with_payload=True)
        else:
            numbers = [int(name) for name in ids if name.isdecimal()]
            matches = [models.MatchAny(any=ids), *([models.MatchAny(any=numbers)] if numbers else [])]
            either = models.Filter(should=[models.FieldCondition(key=field, match=match) for match in matches])
            points, _ = await client.scroll(
                self.collection, scroll_filter=either, limit=2 * len(ids), with_payload=True
            )
        return [(*self._read(point), math.nan) for point in points]

    def _read(self, point: models.ScoredPoint | models.Record) -> tuple[Any, Any, Any]:
        values = [None if name is None else _payload_value(point.payload, name) for name in self.fields.parts]
        passage_id, title, text = (None if value is _MISSING else value for value in values)
        return point.id if self.fields.passage_id is None else passage_id, title, text

    def _filter(self) -> models.Filter | None:
        from qdrant_client import models

        return models.Filter(must=[_filter_of(item) for item in self.conditions]) if self.conditions else None

    def failure_of(self, error: Exception) -> SufficeError:
        """See `Store.failure_of`."""
        from qdrant_client.common.client_exceptions import QdrantException
        from qdrant_client.http.exceptions import ResponseHandlingException, UnexpectedResponse

        said = self._said(error)
        if isinstance(error, UnexpectedResponse) and error.status_code is not None:
            return self._status(error.status_code, error)
        if isinstance(error, ResponseHandlingException | OSError):
            return self._unreachable(error)
        if isinstance(error, QdrantException):  # too many requests
            return self._failed(error, advice="try again later, with less concurrency", retryable=True)
        if isinstance(error, ValueError) or "already accessed" in said:
            return DataError(f"{self.place} cannot be searched ({said})")
        if isinstance(error, PermissionError):
            return AuthenticationFailedError(f"{self.place} refused ({said})")
        return self._failed(error)


class _Missing:
    """Marker for a field that is missing from a payload, as opposed to null."""


_MISSING = _Missing()


def _payload_value(payload: Any, path: str) -> Any:
    """Return the value at a path of names separated by dots; the names themselves may contain dots."""
    if not isinstance(payload, Mapping):
        return _MISSING
    if path in payload:
        return payload[path]
    name, _, rest = path.partition(".")
    return _payload_value(payload.get(name), rest) if rest else _MISSING


def _filter_of(condition: Condition) -> models.FieldCondition | models.Filter:
    from qdrant_client import models

    if condition.comparison != "in":
        bound: Any = condition.values[0]
        kind: Any = models.DatetimeRange if isinstance(bound, str) else models.Range
        return models.FieldCondition(key=condition.field, range=kind(**{condition.comparison: bound}))
    matches = [
        models.FieldCondition(key=condition.field, range=models.Range(gte=value, lte=value))
        if isinstance(value, float)
        else models.FieldCondition(key=condition.field, match=models.MatchValue(value=value))
        for value in condition.values
    ]
    return models.Filter(should=list(matches))


def _at_address(address: StoreAddress) -> QdrantStore:
    if not address.parts.netloc:
        collection = address.required("collection")
        return QdrantStore(collection, path=unquote(address.parts.path), **address.arguments)
    if "collection" in address.arguments:
        raise address.kind.refusal("the collection is part of the path")
    if not address.path:
        raise address.kind.refusal("it names no collection")
    return QdrantStore(address.path, url=address.web_url, **address.arguments)


QDRANT = StoreKind(
    name="qdrant",
    form="qdrant://HOST:6333/COLLECTION",
    build=_at_address,
    parameters={"collection": ("collection", str), "exact": ("exact", boolean)},
    carriers=("http", "https"),
    credentials="set QDRANT_API_KEY",
    variables=("QDRANT_API_KEY",),
)
