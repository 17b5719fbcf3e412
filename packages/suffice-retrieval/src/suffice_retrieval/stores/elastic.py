"""Search an index of OpenSearch or Elasticsearch, by BM25 or by the vectors of a k-NN field."""

from __future__ import annotations

import math
import os
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Unpack
from urllib.parse import quote, unquote, urlsplit

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError, ModelTimeoutError, SufficeError
from suffice_retrieval.stores.checks import checked_choice, no_passage
from suffice_retrieval.stores.filters import Condition
from suffice_retrieval.stores.kinds import Parameter, StoreAddress, StoreKind
from suffice_retrieval.stores.records import Content, Fields, Hit, StoreOptions
from suffice_retrieval.stores.store import Store

if TYPE_CHECKING:
    from elasticsearch import AsyncElasticsearch
    from opensearchpy import AsyncOpenSearch

_MOST_HITS = 10_000
"""The default of `index.max_result_window`."""

_LEAST_CANDIDATES = 100
_JSON = {"accept": "application/json", "content-type": "application/json"}


class SearchEngineStore(Store):
    """Base of `OpenSearchStore` and `ElasticsearchStore`, whose requests differ only in searches by vectors.

    With an embedder an index is searched by vectors. Without an embedder it is searched by words, with `match`, or with
    `multi_match` over several fields; scores are BM25 unless the index sets another similarity. Fields may be paths,
    such as `metadata.title`.

    Args:
        url: Address of the server, such as `https://localhost:9200`.
        index: The index, or an alias.
        username: The user; None for `OPENSEARCH_USERNAME` or `ELASTICSEARCH_USERNAME`.
        password: The password; None for `OPENSEARCH_PASSWORD` or `ELASTICSEARCH_PASSWORD`.
        api_key: A key of Elasticsearch; None for `ELASTICSEARCH_API_KEY`.
        passage_id: Field of the id, which must be unique; None for the document's `_id`.
        title: Field of the title; None to use the id as the title.
        text: Field of the text.
        searched: Fields that a search by words reads, optionally with weights (`title^2`); None for title and text.
        vector: Field of the vectors; used only with an embedder.
        operator: `or` to find documents that contain any word of the question; `and` to find documents that contain all
            words in one field.
        options: Further arguments of the client, such as `ca_certs`; fingerprints do not contain these arguments.
        common: See `StoreOptions`.

    Raises:
        MissingExtraError: The client is not installed.
        DataError: A parameter is out of range.
    """

    _variable: ClassVar[str]
    _has_keys: ClassVar[bool]

    def __init__(
        self,
        url: str,
        index: str,
        *,
        username: str | None = None,
        password: str | None = None,
        api_key: str | None = None,
        passage_id: str | None = None,
        title: str | None = "title",
        text: str = "text",
        searched: Sequence[str] | None = None,
        vector: str = "embedding",
        operator: Literal["or", "and"] = "or",
        options: Mapping[str, Any] | None = None,
        **common: Unpack[StoreOptions],
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise DataError("url must look like https://host:9200 (it is not shown, as it may contain a password)")
        self._url = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"
        user = username or unquote(parts.username or "") or os.environ.get(f"{self._variable}_USERNAME")
        secret = password or unquote(parts.password or "") or os.environ.get(f"{self._variable}_PASSWORD")
        if api_key is not None and not self._has_keys:
            raise DataError(f"{self.name} has no API keys: give username and password, or options=")
        key = api_key or (os.environ.get(f"{self._variable}_API_KEY") if self._has_keys else None)
        super().__init__(
            f"the {self.name} index {index!r}",
            Fields(passage_id=passage_id, title=title, text=text, vector=vector if common.get("embedder") else None),
            secrets=[secret, key],
            **common,
        )
        checked_choice(operator, "operator", ("or", "and"))
        self.index, self.operator = index, operator
        self.searched = tuple(searched or filter(None, (title, text)))
        self._login = None if user is None or secret is None else (user, secret)
        self._key = key
        self._options = dict(options or {})

    def settings(self) -> dict[str, Any]:
        """See `Store.settings`."""
        words = {"operator": self.operator, "searched": list(self.searched)}
        return {"index": self.index, **(words if self.embedder is None else {})}

    async def look(self, client: Any) -> Content:
        """See `Store.look`."""
        path = f"/{quote(self.index, safe=',*')}"
        indices = await self._send(client, "GET", path)
        uuids, most, fields = [], _MOST_HITS, dict[str, Mapping[str, Any]]()
        for description in indices.values():
            settings = description["settings"]["index"]
            uuids.append(settings["uuid"])
            most = min(most, int(settings.get("max_result_window", _MOST_HITS)))
            fields |= _fields(description["mappings"])
        searched = () if self.embedder else (name.partition("^")[0] for name in self.searched)
        self._require_fields("field", fields, *(name for name in searched if "*" not in name))
        dimension = None
        if self.fields.vector is not None:
            field = fields[self.fields.vector]
            dimension = field.get("dims", field.get("dimension"))
            if field.get("type") not in ("dense_vector", "knn_vector") or dimension is None:
                raise DataError(
                    f"{self.place}: the field {self.fields.vector!r} is of type {field.get('type')!r}; allowed: dense_vector "
                    "or knn_vector, with a dimension"
                )
        reply = await self._send(client, "POST", f"{path}/_count", {"query": self._among({"match_all": {}})})
        rows = int(reply["count"])
        if not rows:
            no_passage(self.place, self.filters)
        score_kind: Literal["bm25", "similarity"] = "bm25" if self.embedder is None else "similarity"
        facts = {"rows": rows, "uuids": sorted(uuids)}
        return Content(facts=facts, rows=rows, score_kind=score_kind, dimension=dimension, most=most)

    async def find(
        self, client: Any, content: Content, question: str, vector: npt.NDArray[np.float64] | None, k: int
    ) -> list[Hit]:
        """See `Store.find`."""
        del content
        search = self._by_words(question) if vector is None else self._by_vector(vector.tolist(), k)
        reply = await self._search(client, k, search)
        if reply.get("timed_out"):
            raise ModelTimeoutError(f"{self.place} answered with what it had within its own time limit: ask for less")
        failed = reply.get("_shards", {}).get("failed", 0)
        if failed:
            raise self._failed(f"{failed} of its shards did not answer", retryable=True)
        return [self._read(hit) for hit in reply["hits"]["hits"]]

    async def look_up(self, client: Any, ids: list[str]) -> list[Hit]:
        """See `Store.look_up`."""
        field = self.fields.passage_id
        query = {"ids": {"values": ids}} if field is None else {"terms": {field: ids}}
        reply = await self._search(client, len(ids), {"query": query})
        return [(*self._read(hit)[:3], math.nan) for hit in reply["hits"]["hits"]]

    async def _search(self, client: Any, size: int, search: Mapping[str, Any]) -> dict[str, Any]:
        path = f"/{quote(self.index, safe=',*')}/_search?allow_partial_search_results=false"
        return await self._send(client, "POST", path, {"size": size, "_source": self.fields.read, **search})

    def _read(self, hit: Mapping[str, Any]) -> Hit:
        source = hit.get("_source") or {}
        name, title, text = (None if field is None else _source_value(source, field) for field in self.fields.parts)
        return hit["_id"] if self.fields.passage_id is None else name, title, text, hit["_score"]

    def _by_words(self, question: str) -> dict[str, Any]:
        asked: dict[str, Any] = {"query": question, "operator": self.operator}
        fields = list(self.searched)
        if len(fields) == 1 and "^" not in fields[0]:
            return {"query": self._among({"match": {fields[0]: asked}})}
        return {"query": self._among({"multi_match": {**asked, "fields": fields}})}

    @abstractmethod
    def _by_vector(self, vector: list[float], k: int) -> dict[str, Any]:
        """Return the part of a search request that contains the vector."""

    @abstractmethod
    async def _send(self, client: Any, method: str, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """Send a request, and return the JSON of the reply."""

    def _among(self, query: Mapping[str, Any]) -> dict[str, Any]:
        """Restrict a query to documents that satisfy the filters."""
        return {"bool": {"must": [query], "filter": self._filter()}} if self.conditions else dict(query)

    def _filter(self) -> list[dict[str, Any]]:
        return [_clause_of(condition) for condition in self.conditions]

    def _answered(self, status: int, body: object) -> SufficeError:
        """Return the error for a reply that reports a failure, with the engine's reason."""
        reason: object = body
        if isinstance(body, Mapping) and isinstance(body.get("error"), Mapping):
            causes = body["error"].get("root_cause") or [body["error"]]
            reason = f"{causes[0].get('type')}: {causes[0].get('reason')}"
        return self._status(status, reason)


class ElasticsearchStore(SearchEngineStore):
    """Searches an index of Elasticsearch; see `SearchEngineStore` for its parameters."""

    name = "elasticsearch"
    _variable, _has_keys = "ELASTICSEARCH", True
    library = extra = "elasticsearch"

    async def open_client(self) -> AsyncElasticsearch:
        """See `Store.open_client`."""
        from elasticsearch import AsyncElasticsearch

        login: dict[str, Any] = {"basic_auth": self._login} if self._login else {}
        login = {"api_key": self._key} if self._key else login
        return AsyncElasticsearch(
            self._url, request_timeout=self.timeout_s, max_retries=0, retry_on_timeout=False, **login, **self._options
        )

    async def _send(
        self, client: AsyncElasticsearch, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        reply: Any = await client.perform_request(method, path, headers=_JSON, body=body)
        return dict(reply.body)

    def _by_vector(self, vector: list[float], k: int) -> dict[str, Any]:
        candidates = min(max(k, _LEAST_CANDIDATES), _MOST_HITS)
        search = {"field": self.fields.vector, "query_vector": vector, "k": k, "num_candidates": candidates}
        return {"knn": {**search, **({"filter": self._filter()} if self.conditions else {})}}

    def failure_of(self, error: Exception) -> SufficeError:
        """See `Store.failure_of`."""
        from elasticsearch import ApiError, ConnectionTimeout, TransportError, UnsupportedProductError

        if isinstance(error, UnsupportedProductError):
            return DataError(
                f"{self.place}: the server is not Elasticsearch; if it is OpenSearch, say so (OpenSearchStore)"
            )
        if isinstance(error, ApiError):
            return self._answered(error.meta.status, error.body)
        if isinstance(error, ConnectionTimeout):
            return self._too_slow("raise timeout_s")
        if isinstance(error, TransportError | OSError):
            return self._unreachable(error)
        return self._failed(error)


class OpenSearchStore(SearchEngineStore):
    """Searches an index of OpenSearch; see `SearchEngineStore` for its parameters."""

    name = "opensearch"
    _variable, _has_keys = "OPENSEARCH", False
    library, extra = "opensearchpy", "opensearch"

    async def open_client(self) -> AsyncOpenSearch:
        """See `Store.open_client`."""
        from opensearchpy import AsyncOpenSearch

        login: dict[str, Any] = {"http_auth": self._login} if self._login else {}
        settings = {"timeout": self.timeout_s, "max_retries": 0, "retry_on_timeout": False}
        return AsyncOpenSearch([self._url], **{**settings, **login, **self._options})

    async def _send(
        self, client: AsyncOpenSearch, method: str, path: str, body: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        reply: dict[str, Any] = await client.transport.perform_request(method, path, body=body)
        return reply

    def _by_vector(self, vector: list[float], k: int) -> dict[str, Any]:
        search: dict[str, Any] = {"vector": vector, "k": k}
        if self.conditions:
            search["filter"] = {"bool": {"filter": self._filter()}}
        return {"query": {"knn": {self.fields.vector: search}}}

    def failure_of(self, error: Exception) -> SufficeError:
        """See `Store.failure_of`."""
        from opensearchpy.exceptions import ConnectionTimeout, TransportError

        if isinstance(error, ConnectionTimeout):
            return self._too_slow("raise timeout_s")
        if isinstance(error, TransportError) and isinstance(error.status_code, int):
            return self._answered(error.status_code, error.info or error.error)
        if isinstance(error, TransportError | OSError):
            return self._unreachable(error)
        return self._failed(error)


def _fields(mapping: Mapping[str, Any], prefix: str = "") -> dict[str, Mapping[str, Any]]:
    """Return the fields of a mapping by their paths, including subfields such as `title.keyword`."""
    fields: dict[str, Mapping[str, Any]] = {}
    for name, field in {**mapping.get("properties", {}), **mapping.get("fields", {})}.items():
        fields[f"{prefix}{name}"] = field
        fields |= _fields(field, f"{prefix}{name}.")
    return fields


def _source_value(source: Any, path: str) -> Any:
    """Return the value at a path; a list of one element counts as the element, since any field may contain a list."""
    name, _, rest = path.partition(".")
    value = source.get(path, source.get(name)) if isinstance(source, Mapping) else None
    value = value[0] if isinstance(value, list) and len(value) == 1 else value
    return _source_value(value, rest) if rest and isinstance(value, Mapping) else value


def _clause_of(condition: Condition) -> dict[str, Any]:
    if condition.comparison == "in":
        return {"terms": {condition.field: list(condition.values)}}
    return {"range": {condition.field: {condition.comparison: condition.values[0]}}}


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


def _at_address(address: StoreAddress) -> SearchEngineStore:
    if not address.path or not address.parts.hostname:
        raise address.kind.refusal("it names no host, or no index")
    engine = ElasticsearchStore if address.kind is ELASTICSEARCH else OpenSearchStore
    return engine(address.web_url, address.path, **address.arguments)


_PARAMETERS: Mapping[str, Parameter] = {"searched": ("searched", _listed), "operator": ("operator", str)}

OPENSEARCH = StoreKind(
    name="opensearch",
    form="opensearch+https://HOST:9200/INDEX",
    build=_at_address,
    parameters=_PARAMETERS,
    carriers=("http", "https"),
    has_login=True,
    credentials="set OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD",
    variables=("OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD"),
)

ELASTICSEARCH = StoreKind(
    name="elasticsearch",
    form="elasticsearch+https://HOST:9200/INDEX",
    build=_at_address,
    parameters=_PARAMETERS,
    carriers=("http", "https"),
    has_login=True,
    credentials="set ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD",
    variables=("ELASTICSEARCH_API_KEY", "ELASTICSEARCH_USERNAME", "ELASTICSEARCH_PASSWORD"),
)
