"""Open stores by the addresses that the command line accepts, such as `postgres://host/database?table=passages`."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import SplitResult, parse_qsl, urlsplit

from suffice.errors import DataError, did_you_mean
from suffice_retrieval.stores.kinds import COMMON, StoreAddress, StoreKind, boolean, store_kind, store_names
from suffice_retrieval.stores.records import QuestionEmbedder
from suffice_retrieval.stores.store import Store

_SCHEME = re.compile(r"([a-z][\w-]*)(?:\+(\w+))?://", re.IGNORECASE)
_SECRET_NAME = re.compile(r"pass|key|secret|token", re.IGNORECASE)
_BOUNDS = ("gt", "gte", "lt", "lte")


def _scheme(text: str) -> re.Match[str] | None:
    """Return the match of an address's scheme and of the protocol after it; None if no store has the scheme."""
    match = _SCHEME.match(text)
    return match if match is not None and match[1].lower() in store_names() else None


def is_store_address(text: str) -> bool:
    """Return whether a text is the address of a store.

    >>> is_store_address("postgres://localhost/db?table=passages"), is_store_address("documents/")
    (True, False)
    """
    return _scheme(text) is not None


def store_variables(address: str) -> tuple[str, ...]:
    """Return the names of the environment variables with the credentials and host of a store.

    Return no names if the text is not the address of a store.

    >>> store_variables("qdrant://localhost/wiki"), store_variables("documents")
    (('QDRANT_API_KEY',), ())
    """
    match = _scheme(address)
    return () if match is None else store_kind(match[1].lower()).variables


def shown_address(address: str) -> str:
    """Remove user and password from an address, for messages and files.

    >>> shown_address("postgres://ann:secret@host/db?table=passages")
    'postgres://host/db?table=passages'
    """
    start = _scheme(address)
    if start is None:
        return address
    place, mark, query = address[start.end() :].partition("?")
    host, slash, path = place.partition("/")
    if "@" in path and "@" not in host:  # an unquoted slash in the password
        host, slash, path = "...", "/", path.rpartition("@")[2].partition("/")[2]
    pairs = [pair for pair in query.split("&") if not _SECRET_NAME.search(pair.partition("=")[0])]
    return f"{start[0]}{host.rpartition('@')[2]}{slash}{path}{mark}{'&'.join(pairs)}"


def open_store(address: str, embedder: QuestionEmbedder | None = None) -> Store:
    """Return the store at an address; no request is sent yet.

    >>> open_store("postgres://localhost/wiki?table=passages&filter.language=en&filter.year.gte=2000").filters
    {'language': 'en', 'year': {'gte': 2000}}

    Args:
        address: The address; the how-to "Your own search engine" has a table of all forms and parameters.
        embedder: Turns questions into vectors; None to search by words.

    Raises:
        DataError: The address is not a store's, or a parameter is unknown, missing or out of range.
        MissingExtraError: The client of the store is not installed.
    """
    start = _scheme(address)
    if start is None:
        kinds = {kind.name: kind.form for kind in map(store_kind, store_names())}
        raise DataError(f"{address!r} is not the address of a store: use {', '.join(kinds.values())}")
    kind, carrier = store_kind(start[1].lower()), (start[2] or "").lower()
    try:
        parts = urlsplit(address)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), -1
    if port == -1 or parts.fragment:
        raise kind.refusal("host and port cannot be read, or there is a fragment (#)")
    if carrier and kind.carriers is not None and carrier not in kind.carriers:
        allowed = ", ".join([kind.name, *(f"{kind.name}+{name}" for name in kind.carriers)])
        raise kind.refusal(f"{kind.name}+{carrier} is not known; allowed: {allowed}")
    if "@" in parts.netloc and not kind.has_login:
        raise DataError(f"an address of {kind.name} has no user and password; {kind.credentials}")
    arguments = {**_arguments(kind, parts.query), "embedder": embedder}
    return kind.build(StoreAddress(kind, carrier, parts, arguments))


def _arguments(kind: StoreKind, query: str) -> dict[str, Any]:
    """Convert the parameters of an address to arguments of the store."""
    known = {**COMMON, **kind.parameters}
    arguments: dict[str, Any] = {}
    filters: dict[str, Any] = {}
    for name, text in parse_qsl(query, keep_blank_values=True):
        if name.startswith("filter."):
            _add_filter(filters, name.removeprefix("filter."), _scalar(text))
            continue
        if _SECRET_NAME.search(name) and name not in known:
            raise DataError(f"{name!r}: no password or key is read from an address; {kind.credentials}")
        if name not in known:
            raise DataError(
                f"unknown parameter {name!r} of {kind.name}.{did_you_mean(name, known)} Allowed: {', '.join(known)}, "
                "filter.FIELD, filter.FIELD.gte (gt, lt, lte)"
            )
        argument, read = known[name]
        if argument in arguments:
            raise DataError(f"the parameter {name!r} is given twice: give it once")
        try:
            arguments[argument] = read(text)
        except ValueError as error:
            expected = "true or false" if read is boolean else "a number"
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
    known = filters.get(name, [])
    filters[name] = [*(known if isinstance(known, list) else [known]), value] if name in filters else value


def _scalar(text: str) -> Any:
    """Parse a JSON number, boolean or text; return anything else as text.

    >>> _scalar("2000"), _scalar('"2000"'), _scalar("true"), _scalar("news")
    (2000, '2000', True, 'news')
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str | int | float | bool) else text
