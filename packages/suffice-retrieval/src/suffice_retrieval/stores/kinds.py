"""Registry of the kinds of stores in this and other packages, by the scheme of their addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, unquote

from suffice.common.provided import installed, load_entry
from suffice.errors import DataError
from suffice_retrieval.stores.store import Store

STORES = "suffice.stores"
"""The group of entry points; each has the scheme of an address and the `StoreKind` that opens it."""

Parameter = tuple[str, Callable[[str], Any]]
"""The argument that a parameter of an address sets, and the function that parses its text."""


def boolean(text: str) -> bool:
    """Parse a boolean parameter, `true` or `false`.

    Raises:
        ValueError: The text is neither true nor false.
    """
    if text.lower() not in ("true", "false"):
        raise ValueError("true or false")
    return text.lower() == "true"


def _optional(text: str) -> str | None:
    return text or None


COMMON: Mapping[str, Parameter] = {
    "id": ("passage_id", _optional),
    "title": ("title", _optional),
    "text": ("text", str),
    "vector": ("vector", str),
    "identity": ("identity", str),
    "version": ("version", str),
    "timeout": ("timeout_s", float),
    "retries": ("retries", int),
}
"""Parameters of every address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreKind:
    """A kind of store, named by the scheme of its addresses.

    Attributes:
        name: The scheme of the store's addresses; further schemes may be registered for the same kind.
        form: The form of the store's addresses, such as `qdrant://HOST:6333/COLLECTION`, for messages.
        build: Function that returns the store at an address, without sending a request.
        parameters: The parameters that may follow an address's question mark, besides `COMMON` and filters.
        carriers: Protocols that may follow the scheme, as in `qdrant+https://`; None for any.
        has_login: True if an address may contain a user and a password.
        credentials: Advice on giving a password or key, such as "set PGPASSWORD"; it ends a sentence in messages.
        variables: Environment variables from which the client reads credentials and host.
    """

    name: str
    form: str
    build: Callable[[StoreAddress], Store]
    parameters: Mapping[str, Parameter] = field(default_factory=dict)
    carriers: tuple[str, ...] | None = ()
    has_login: bool = False
    credentials: str = "give it to the client in another way"
    variables: tuple[str, ...] = ()

    def refusal(self, why: str) -> DataError:
        """Return the error for an unreadable address; the message does not contain the address."""
        return DataError(
            f"the address of {self.name} cannot be read: {why}. It should look like {self.form} (it is not shown, as it may "
            "contain a password)"
        )


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """A parsed address, checked against its kind.

    Attributes:
        kind: The kind of store.
        carrier: The protocol after the scheme, in lower case; empty if the address has only a scheme.
        parts: Host, port, path, user and password.
        arguments: The address's parameters as arguments of the store, including `filters` and `embedder`.
    """

    kind: StoreKind
    carrier: str
    parts: SplitResult
    arguments: dict[str, Any]

    @property
    def path(self) -> str:
        """The path without the slashes around it."""
        return unquote(self.parts.path.strip("/"))

    @property
    def web_url(self) -> str:
        """The URL of the server, for clients over HTTP."""
        return f"{self.carrier or 'http'}://{self.parts.netloc}"

    def required(self, name: str) -> str:
        """Remove an argument from `arguments` and return it.

        Raises:
            DataError: The argument was not given.
        """
        value: str | None = self.arguments.pop(name, None)
        if not value:
            raise self.kind.refusal(f"it names no {name}")
        return value


_REGISTERED: dict[str, StoreKind] = {}


def register_store(kind: StoreKind) -> None:
    """Register a kind of store.

    An installed package need not call this: it may declare its kind as an entry point in the group `suffice.stores`.

    Raises:
        DataError: The name is already registered.
    """
    if kind.name in store_names():
        raise DataError(f"there is a store {kind.name!r} already; choose another name")
    _REGISTERED[kind.name] = kind


def store_names() -> tuple[str, ...]:
    """Return the schemes of all stores, without loading them.

    >>> store_names()
    ('elasticsearch', 'lancedb', 'opensearch', 'postgres', 'postgresql', 'qdrant')
    """
    return tuple(sorted(installed(STORES).names | _REGISTERED.keys()))


def store_kind(name: str) -> StoreKind:
    """Return the kind of store with a scheme.

    Raises:
        KeyError: There is no such store.
        DataError: Several packages define the store, or it cannot be loaded.
    """
    if name in _REGISTERED:
        return _REGISTERED[name]
    entries = installed(STORES).select(name=name)
    if not entries:
        raise KeyError(name)
    kind: StoreKind = load_entry(entries, f"the store {name!r}")
    return kind
