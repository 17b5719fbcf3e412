"""Stores by an address, as a command line gives them: `postgres://host/database?table=passages`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from suffice.errors import DataError, did_you_mean
from suffice_retrieval.stores.base import QuestionEmbedder, Store
from suffice_retrieval.stores.elastic import ElasticsearchStore, OpenSearchStore
from suffice_retrieval.stores.lance import LanceDBStore
from suffice_retrieval.stores.postgres import PostgresStore
from suffice_retrieval.stores.qdrant import QdrantStore

__all__ = ["STORE_FORMS", "is_store_address", "open_store", "shown_address", "store_variables"]

STORE_FORMS: Mapping[str, str] = {
    "postgres": "postgres://HOST/DATABASE?table=NAME",
    "qdrant": "qdrant://HOST:6333/COLLECTION",
    "lancedb": "lancedb://FOLDER?table=NAME",
    "opensearch": "opensearch+https://HOST:9200/INDEX",
    "elasticsearch": "elasticsearch+https://HOST:9200/INDEX",
}
"""The form of an address by its scheme."""

_SCHEME = re.compile(r"(postgres|postgresql|qdrant|lancedb|opensearch|elasticsearch)(?:\+(\w+))?://", re.IGNORECASE)
_SECRET_NAME = re.compile(r"pass|key|secret|token", re.IGNORECASE)
_BOUNDS = ("gt", "gte", "lt", "lte")
_LIBPQ = (
    "host",
    "port",
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "service",
    "target_session_attrs",
    "connect_timeout",
)
"""Parameters of libpq that an address may contain."""


def _optional(text: str) -> str | None:
    return text or None


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _listed(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


_Reader = Callable[[str], Any]
_COMMON: Mapping[str, tuple[str, _Reader]] = {
    "id": ("passage_id", _optional),
    "title": ("title", _optional),
    "text": ("text", str),
    "vector": ("vector", str),
    "identity": ("identity", str),
    "version": ("version", str),
    "timeout": ("timeout_s", float),
    "retries": ("retries", int),
}
"""Parameters of every address: the argument of the class, and what reads the text."""

_DISTANCE: Mapping[str, tuple[str, _Reader]] = {"distance": ("distance", str), "exact": ("exact", _boolean)}
_OPERATOR: Mapping[str, tuple[str, _Reader]] = {"operator": ("operator", str)}
_PARAMETERS: Mapping[str, Mapping[str, tuple[str, _Reader]]] = {
    "postgres": {
        "table": ("table", str),
        "schema": ("schema", str),
        "tsvector": ("tsvector", str),
        "language": ("language", str),
        "content": ("content", str),
        "connections": ("connections", int),
        **_DISTANCE,
        **_OPERATOR,
        **{name: (name, str) for name in _LIBPQ},
    },
    "qdrant": {"collection": ("collection", str), "exact": ("exact", _boolean)},
    "lancedb": {"table": ("table", str), **_DISTANCE, **_OPERATOR},
    "opensearch": {"searched": ("searched", _listed), **_OPERATOR},
    "elasticsearch": {"searched": ("searched", _listed), **_OPERATOR},
}


def is_store_address(text: str) -> bool:
    """Return whether a text is the address of a store.

    >>> is_store_address("postgres://localhost/db?table=passages"), is_store_address("documents/")
    (True, False)
    """
    return _SCHEME.match(text) is not None


def store_variables(address: str) -> tuple[str, ...]:
    """Return the environment variables from which the client of a store reads who and where it is; none for no address.

    >>> store_variables("qdrant://localhost/wiki"), store_variables("documents")
    (('QDRANT_API_KEY',), ())
    """
    match = _SCHEME.match(address)
    return () if match is None else _VARIABLES[_kind(match)]


def _kind(scheme: re.Match[str]) -> str:
    kind = scheme[1].lower()
    return "postgres" if kind == "postgresql" else kind


def shown_address(address: str) -> str:
    """Return an address without user and password, for messages and files.

    >>> shown_address("postgres://ann:secret@host/db?table=passages")
    'postgres://host/db?table=passages'
    """
    start = _SCHEME.match(address)
    if start is None:
        return address
    place, mark, query = address[start.end() :].partition("?")
    host, slash, path = place.partition("/")
    if "@" in path and "@" not in host:  # a password with a slash that is not quoted
        host, slash, path = "...", "/", path.rpartition("@")[2].partition("/")[2]
    pairs = [pair for pair in query.split("&") if not _SECRET_NAME.search(pair.partition("=")[0])]
    return f"{start[0]}{host.rpartition('@')[2]}{slash}{path}{mark}{'&'.join(pairs)}"


def open_store(address: str, embedder: QuestionEmbedder | None = None) -> Store:
    """Return the store at an address; nothing is sent yet.

    >>> open_store("postgres://localhost/wiki?table=passages&filter.language=en&filter.year.gte=2000").filters
    {'language': 'en', 'year': {'gte': 2000}}

    Args:
        address: See `STORE_FORMS`; how-to "Your own search engine" has a table of all parameters.
        embedder: Turns questions into vectors; None to search by words.

    Raises:
        DataError: The address is not one of a store, or a parameter is unknown, missing or out of range.
        MissingExtraError: The client of the store is not installed.
    """
    start = _SCHEME.match(address)
    if start is None:
        raise DataError(f"{address!r} is not the address of a store: use {', '.join(STORE_FORMS.values())}")
    kind = _kind(start)
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), -1
    if port == -1 or parts.fragment:
        raise _unreadable(kind, "host and port cannot be read, or there is a fragment (#)")
    arguments = _arguments(kind, parts.query)
    carrier = (start[2] or "").lower()
    return _BUILDERS[kind](parts, carrier, arguments, embedder)


def _arguments(kind: str, query: str) -> dict[str, Any]:
    """Return the arguments that the parameters of an address are."""
    known = {**_COMMON, **_PARAMETERS[kind]}
    arguments: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name.startswith("filter."):
            _add_filter(filters, name.removeprefix("filter."), _scalar(text))
            continue
        if _SECRET_NAME.search(name) and name not in known:
            raise DataError(f"{name!r}: no password or key is read from an address; {_SECRETS[kind]}")
        if name not in known:
            raise DataError(
                f"unknown parameter {name!r} of {kind}.{did_you_mean(name, known)} Allowed: {', '.join(known)}, "
                "filter.FIELD, filter.FIELD.gte (gt, lt, lte)"
            )
        argument, read = known[name]
        if argument in arguments:
            raise DataError(f"the parameter {name!r} is given twice: give it once")
        try:
            arguments[argument] = read(text)
        except ValueError as error:
            expected = "true or false" if read is _boolean else "a number"
            raise DataError(f"the parameter {name!r} is {text!r}; expected {expected}") from error
    return {**arguments, **({"filters": filters} if filters else {})}


def _add_filter(filters: dict[str, Any], name: str, value: Any) -> None:
    field, _, bound = name.rpartition(".")
    if field and bound in _BOUNDS:
        bounds = filters.setdefault(field, {})
        if not isinstance(bounds, dict) or bound in bounds:
            raise DataError(f"the filters of {field!r} contradict each other: give values, or each bound once")
        bounds[bound] = value
        return
    if isinstance(filters.get(name), dict):
        raise DataError(f"the filters of {name!r} contradict each other: give values, or each bound once")
    filters[name] = [*_values(filters[name]), value] if name in filters else value


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _scalar(text: str) -> Any:
    """Return a number, a boolean or a text, as JSON reads them; what is not JSON is a text.

    >>> _scalar("2000"), _scalar('"2000"'), _scalar("true"), _scalar("news")
    (2000, '2000', True, 'news')
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text


def _unreadable(kind: str, why: str) -> DataError:
    return DataError(
        f"the address of {kind} cannot be read: {why}. It should look like {STORE_FORMS[kind]} (it is not shown, as it may "
        "contain a password)"
    )


def _required(kind: str, arguments: dict[str, Any], name: str) -> str:
    value: str | None = arguments.pop(name, None)
    if not value:
        raise _unreadable(kind, f"it names no {name}")
    return value


def _postgres(
    parts: SplitResult, carrier: str, arguments: dict[str, Any], embedder: QuestionEmbedder | None
) -> PostgresStore:
    PostgresStore.require_library()
    from psycopg.conninfo import make_conninfo

    _refuse_carrier("postgres", carrier)
    table = _required("postgres", arguments, "table")
    given = {
        "host": parts.hostname,
        "port": parts.port,
        "dbname": unquote(parts.path.strip("/")),
        "user": unquote(parts.username or ""),
        "password": unquote(parts.password or ""),
        **{name: arguments.pop(name) for name in _LIBPQ if name in arguments},
    }
    conninfo = make_conninfo(**{name: value for name, value in given.items() if value})
    return PostgresStore(conninfo, table=table, embedder=embedder, **arguments)


def _qdrant(
    parts: SplitResult, carrier: str, arguments: dict[str, Any], embedder: QuestionEmbedder | None
) -> QdrantStore:
    if "@" in parts.netloc:
        raise DataError(f"an address of qdrant has no user and password; {_SECRETS['qdrant']}")
    if not parts.netloc:
        collection = _required("qdrant", arguments, "collection")
        return QdrantStore(collection, path=unquote(parts.path), embedder=embedder, **arguments)
    if "collection" in arguments:
        raise _unreadable("qdrant", "the collection is part of the path")
    collection = unquote(parts.path.strip("/"))
    if not collection:
        raise _unreadable("qdrant", "it names no collection")
    return QdrantStore(collection, url=f"{_web('qdrant', carrier)}://{parts.netloc}", embedder=embedder, **arguments)


def _lancedb(
    parts: SplitResult, carrier: str, arguments: dict[str, Any], embedder: QuestionEmbedder | None
) -> LanceDBStore:
    if "@" in parts.netloc:
        raise DataError(f"an address of lancedb has no user and password; {_SECRETS['lancedb']}")
    table = _required("lancedb", arguments, "table")
    folder = parts.netloc + unquote(parts.path)
    return LanceDBStore(f"{carrier}://{folder}" if carrier else folder, table=table, embedder=embedder, **arguments)


def _engine(kind: str) -> Callable[..., ElasticsearchStore | OpenSearchStore]:
    def build(
        parts: SplitResult, carrier: str, arguments: dict[str, Any], embedder: QuestionEmbedder | None
    ) -> ElasticsearchStore | OpenSearchStore:
        index = unquote(parts.path.strip("/"))
        if not index or not parts.hostname:
            raise _unreadable(kind, "it names no host, or no index")
        store = ElasticsearchStore if kind == "elasticsearch" else OpenSearchStore
        return store(f"{_web(kind, carrier)}://{parts.netloc}", index, embedder=embedder, **arguments)

    return build


def _web(kind: str, carrier: str) -> str:
    if carrier not in ("", "http", "https"):
        raise _unreadable(kind, f"{kind}+{carrier} is not known; allowed: {kind}, {kind}+http, {kind}+https")
    return carrier or "http"


def _refuse_carrier(kind: str, carrier: str) -> None:
    if carrier:
        raise _unreadable(kind, f"{kind}+{carrier} is not known; allowed: {kind}")


_BUILDERS: Mapping[str, Callable[..., Store]] = {
    "postgres": _postgres,
    "qdrant": _qdrant,
    "lancedb": _lancedb,
    "opensearch": _engine("opensearch"),
    "elasticsearch": _engine("elasticsearch"),
}

_SECRETS: Mapping[str, str] = {
    "postgres": "set PGPASSWORD, or write ~/.pgpass",
    "qdrant": "set QDRANT_API_KEY",
    "lancedb": "set the variables of the object store, or LANCEDB_API_KEY",
    "opensearch": "set OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD",
    "elasticsearch": "set ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and ELASTICSEARCH_PASSWORD",
}
"""Where a secret belongs."""

_VARIABLES: Mapping[str, tuple[str, ...]] = {
    "postgres": ("PGHOST", "PGPORT", "PGUSER", "PGPASSWORD", "PGDATABASE", "PGSERVICE", "PGPASSFILE"),
    "qdrant": ("QDRANT_API_KEY",),
    "lancedb": ("LANCEDB_API_KEY",),
    "opensearch": ("OPENSEARCH_USERNAME", "OPENSEARCH_PASSWORD"),
    "elasticsearch": ("ELASTICSEARCH_API_KEY", "ELASTICSEARCH_USERNAME", "ELASTICSEARCH_PASSWORD"),
}
"""What a client reads from the environment."""
