"""The `openai` clients of a model's endpoints: one for synchronous calls, one for each event loop."""

from __future__ import annotations

import asyncio
import os
import threading
import time
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from suffice.common.redaction import Redactor
from suffice.errors import DataError, MissingExtraError, ModelError, ModelTimeoutError
from suffice.loops.models._endpoints import CALL, EndpointCall, Endpoints
from suffice.loops.models._failures import CutError, failure_of, is_unmistakable, secret_values
from suffice.loops.models.limits import RequestLimits

if TYPE_CHECKING:
    import openai

MAX_REPLY_BYTES = 1 << 26
"""Largest reply in bytes: 64 MiB, several times the size of the longest log-probabilities and embeddings."""

OPENAI_URL = "https://api.openai.com/v1"
_NO_KEY = "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """The endpoints of a model, their clients, and the functions that remove keys from texts.

    Attributes:
        redact: Removes the key and the values of headers from messages.
        redact_reply: Removes the key from a reply, unless the key might be an ordinary word.
        timeout_s: Longest silence of an endpoint, seconds.
    """

    endpoints: Endpoints
    clients: Clients
    redact: Redactor
    redact_reply: Redactor
    timeout_s: float

    @property
    def endpoint(self) -> str:
        """The addresses, as shown in messages and fingerprints."""
        return self.endpoints.name

    async def request(
        self, create: Callable[[Any], Any], call: EndpointCall, *, blocking: bool, wants_logprobs: bool = False
    ) -> tuple[Any, float]:
        """Send a request, with the client's retries; return the raw reply and the duration in seconds.

        Waiting for limits on requests is not part of the duration.

        Raises:
            ModelError: The endpoint failed.
        """
        client = self.clients.sync() if blocking else await self.clients.of_loop()
        began, token = time.perf_counter(), CALL.set(call)
        try:
            reply = create(client) if blocking else await create(client)
        except Exception as error:  # noqa: BLE001 - whatever the client raises becomes one of our errors
            where = call.endpoint if hasattr(error, "status_code") and call.endpoint else self.endpoint
            failure = (
                self._cut_failure(str(error))
                if isinstance(error, CutError)
                else failure_of(error, where, self.redact, timeout_s=self.timeout_s, wants_logprobs=wants_logprobs)
            )
        else:
            return reply, time.perf_counter() - began - call.waited_s
        finally:
            CALL.reset(token)
        # Raise outside the handler: as context, the upstream error would show the request with its key.
        raise failure

    def text_of(self, reply: Any) -> str:
        """Return the body of a raw reply, with the key removed.

        Raises:
            ModelError: The reply exceeded the limit of size or time.
        """
        from suffice.loops.models._http import cut_of

        if cut := cut_of(reply.http_response):
            raise self._cut_failure(cut)
        return self.redact_reply(str(reply.text))

    def _cut_failure(self, cut: str) -> ModelError:
        """Return the error for a reply that exceeded the limit of `size` or `time`."""
        bounds = self.clients.bounds
        if cut == "size":
            return ModelError(
                f"{self.endpoint} sent more than {bounds['max_bytes']:,} bytes in one reply, so reading stopped: "
                "ask for fewer tokens or log-probabilities, or raise max_reply_bytes"
            )
        return ModelTimeoutError(
            f"{self.endpoint} was still sending one reply after {bounds['total_s']:g} s, so reading stopped: "
            "raise the timeout if the endpoint is this slow"
        )


def connect(
    base_url: str | Sequence[str] | None,
    api_key: str | None,
    *,
    timeout_s: float,
    max_retries: int,
    default_headers: Mapping[str, str] | None,
    total_s: float | None = None,
    max_reply_bytes: int = MAX_REPLY_BYTES,
    limits: RequestLimits | None = None,
) -> Connection:
    """Return the connection to one or several endpoints, without sending anything; see `ChatModel` for the parameters.

    Raises:
        MissingExtraError: openai is not installed.
        DataError: A parameter is out of range.
    """
    if find_spec("openai") is None:
        raise MissingExtraError("a model behind an endpoint (openai)", "endpoint")
    total_s = 10 * timeout_s if total_s is None else total_s
    if not total_s > 0 or max_reply_bytes < 1:
        raise DataError(f"total_s and max_reply_bytes must be positive, got {total_s!r}, {max_reply_bytes!r}")
    if not timeout_s > 0 or max_retries < 0:
        raise DataError(f"timeout_s must be positive and max_retries at least 0, got {timeout_s!r}, {max_retries!r}")
    urls = checked_urls(base_url or os.environ.get("OPENAI_BASE_URL") or OPENAI_URL)
    key = (os.environ.get("OPENAI_API_KEY") if api_key is None else api_key) or _NO_KEY
    headers = dict(default_headers or {})
    keys = secret_values(headers, None if key == _NO_KEY else key)
    options = {
        "base_url": urls[0],
        "api_key": key,
        "timeout": timeout_s,
        "max_retries": max_retries,
        "default_headers": headers,
    }
    endpoints = Endpoints(urls, limits or RequestLimits())
    bounds = {"max_bytes": max_reply_bytes, "total_s": total_s, "private": frozenset(headers)}
    return Connection(
        endpoints=endpoints,
        clients=Clients(options, bounds, endpoints),
        redact=Redactor([*keys, *headers.values()]),
        # Redact only values that cannot be ordinary words, so that no answer changes.
        redact_reply=Redactor(value for value in keys if is_unmistakable(value)),
        timeout_s=timeout_s,
    )


class Clients:
    """Clients with limits on each reply (`bounds`); they are created on first use, since importing `openai` takes long."""

    def __init__(self, options: Mapping[str, Any], bounds: Mapping[str, Any], endpoints: Endpoints) -> None:
        self._options, self.bounds, self._endpoints = options, bounds, endpoints
        self._lock = threading.Lock()
        self._sync: openai.OpenAI | None = None
        self._by_loop: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[openai.AsyncOpenAI, AsyncGenerator[None, None]]
        ] = weakref.WeakKeyDictionary()

    def sync(self) -> openai.OpenAI:
        """Return the client of sync calls; threads share it."""
        import openai

        from suffice.loops.models._http import BoundedClient, Bounds

        with self._lock:
            if self._sync is None:
                http = BoundedClient(Bounds(**self.bounds), self._endpoints)
                self._sync = openai.OpenAI(**self._options, http_client=http)
                # Users need not close a model.  A `__del__` would come too late: the client of `openai` is part of a
                # reference cycle, whose open sockets the garbage collector may finalise first.
                weakref.finalize(self, http.close).atexit = False
            return self._sync

    async def of_loop(self) -> openai.AsyncOpenAI:
        """Return the client of the running event loop."""
        import openai

        from suffice.loops.models._http import AsyncBoundedClient, Bounds

        loop = asyncio.get_running_loop()
        with self._lock:
            entry = self._by_loop.get(loop)
            if entry is not None:
                return entry[0]
            http = AsyncBoundedClient(Bounds(**self.bounds), self._endpoints)
            client = openai.AsyncOpenAI(**self._options, http_client=http)
            # An event loop closes its asynchronous generators when it ends, which closes our connections.
            keeper = _keep(client)
            self._by_loop[loop] = client, keeper
        await anext(keeper)
        return client

    def close(self) -> None:
        """Close the connections of sync calls."""
        with self._lock:
            client, self._sync = self._sync, None
        if client is not None:
            client.close()

    async def aclose(self) -> None:
        """Close the connections of the running event loop."""
        with self._lock:
            entry = self._by_loop.pop(asyncio.get_running_loop(), None)
        if entry is not None:
            await entry[1].aclose()


async def _keep(client: openai.AsyncOpenAI) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()


def checked_urls(base_url: str | Sequence[str]) -> tuple[str, ...]:
    """Return the normalised addresses of one or several endpoints, sorted; commas separate addresses in one text.

    >>> checked_urls("http://b:8000/v1,http://a:8000/v1/")
    ('http://a:8000/v1', 'http://b:8000/v1')

    Raises:
        DataError: A text is not an address, or no address is given.
    """
    listed = base_url.split(",") if isinstance(base_url, str) else list(base_url)
    urls = tuple(sorted({checked_url(url.strip()) for url in listed}))
    if not urls:
        raise DataError("base_url names no endpoint: give an address such as http://host:port/v1")
    return urls


def checked_url(url: str) -> str:
    """Return the normalised address of an endpoint.

    Passwords and queries are not allowed, because HTTP libraries log the whole address.

    >>> checked_url("https://Host:8000/v1/")
    'https://host:8000/v1'

    Raises:
        DataError: The text is not an address, or contains more than scheme, host, port and path.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    is_written = parts.netloc.isprintable() and " " not in parts.netloc  # other characters could disturb a terminal
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_written:
        raise DataError("base_url must look like http://host:port/v1 (the value is not shown: it may contain a key)")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise DataError("base_url must not contain user, password, query or fragment: use api_key or default_headers")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
