"""HTTP clients that limit size and time of replies, and send no private headers to other hosts.

This module is imported together with `openai` on the first call.  The classes extend the HTTP clients of `openai`,
whatever HTTP library these use.
"""

from __future__ import annotations

import inspect
import os
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from typing import Any

from openai import DefaultAsyncHttpxClient, DefaultHttpxClient

from suffice.common.blocking import finished
from suffice.loops.models._endpoints import Endpoints
from suffice.loops.models._failures import CutError

_CUT = "suffice.cut"
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")
_MOST_REDIRECTS = 20
_OF_THE_TRANSFER = frozenset({"content-encoding", "content-length", "transfer-encoding"})


class RedirectsError(Exception):
    """Raised when an endpoint redirects a request too many times."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """The limits of a reply.

    Attributes:
        max_bytes: Largest body in bytes, after decompression.
        total_s: Longest time from the request to the end of the reply, seconds.
        private: Names of headers that only the endpoint's host may see.
    """

    max_bytes: int
    total_s: float
    private: frozenset[str]


@dataclass(slots=True)
class _Body:
    """The body of a reply, as it arrives."""

    bounds: Bounds
    began: float = field(default_factory=time.monotonic)
    parts: list[bytes] = field(default_factory=list)
    size: int = 0
    cut: str | None = None

    def add(self, chunk: bytes) -> None:
        """Add the next chunk, and set `cut` once a limit is reached."""
        self.parts.append(chunk)
        self.count(chunk)

    def count(self, chunk: bytes) -> None:
        """Count the next chunk without keeping it, and set `cut` once a limit is reached."""
        self.size += len(chunk)
        if self.size > self.bounds.max_bytes:
            self.cut = "size"
        elif time.monotonic() - self.began > self.bounds.total_s:
            self.cut = "time"

    def response(self, original: Any) -> Any:
        """Return a copy of a response with this body; if the body was cut off, the copy is marked as cut."""
        return type(original)(
            original.status_code,
            headers=[(name, value) for name, value in original.headers.multi_items() if name not in _OF_THE_TRANSFER],
            content=b"".join(self.parts),
            request=original.request,
            extensions={_CUT: self.cut} if self.cut else {},
        )


def cut_of(response: Any) -> str | None:
    """Return the limit that cut a reply off, `size` or `time`; None if the reply is whole."""
    reason: str | None = response.extensions.get(_CUT)
    return reason


async def _exchange(send: Callable[..., Any], request: Any, *, bounds: Bounds, stream: bool, asynchronous: bool) -> Any:
    """Send a request, follow redirects, and read the reply up to the limits.

    With the synchronous client, the coroutine ends without suspending.
    """
    close, read, following = ("aclose", "aiter_bytes", anext) if asynchronous else ("close", "iter_bytes", next)
    body, first = _Body(bounds), request.url
    for _ in range(_MOST_REDIRECTS):
        response = await _value(send(request, stream=True, follow_redirects=False))
        if response.next_request is None:
            break
        await _value(getattr(response, close)())
        request = _redirected(first, response.next_request, bounds)
    else:
        raise RedirectsError(f"{_MOST_REDIRECTS} redirects, the last one to {request.url.host}")
    if stream:
        return _limited(response, body) if asynchronous else response
    try:
        chunks = getattr(response, read)()
        while body.cut is None and (chunk := await _value(following(chunks, None))) is not None:
            body.add(chunk)
    finally:
        await _value(getattr(response, close)())
    return body.response(response)


def _limited(response: Any, body: _Body) -> Any:
    """Make a streamed response raise `CutError` when it exceeds the limits; return the response."""
    read = response.aiter_bytes

    async def limited(chunk_size: int | None = None) -> AsyncGenerator[bytes]:
        async for chunk in read(chunk_size):
            body.count(chunk)
            if body.cut:
                raise CutError(body.cut)
            yield chunk

    response.aiter_bytes = limited
    return response


async def _value(result: Any) -> Any:
    return await result if inspect.isawaitable(result) else result


@cache
def _trusted(*_: str | None) -> Any:
    """Return the TLS settings for the environment's certificates; cached, because reading them takes 30 ms."""
    return import_module(DefaultHttpxClient.__mro__[-2].__module__.partition(".")[0]).create_ssl_context()


class BoundedClient(DefaultHttpxClient):  # type: ignore[misc, valid-type, unused-ignore]
    """A synchronous client with limits on replies."""

    def __init__(self, bounds: Bounds, endpoints: Endpoints) -> None:
        super().__init__(verify=_trusted(*map(os.environ.get, _CERTIFICATES)))
        self._bounds, self._endpoints = bounds, endpoints

    def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Send a request to an endpoint, follow redirects, and read the reply up to the limits."""
        send = partial(super().send, **options)
        exchange = partial(_exchange, send, bounds=self._bounds, stream=stream, asynchronous=False)
        return finished(self._endpoints.send(request, exchange, blocking=True))


class AsyncBoundedClient(DefaultAsyncHttpxClient):  # type: ignore[misc, valid-type, unused-ignore]
    """An asynchronous client with limits on replies."""

    def __init__(self, bounds: Bounds, endpoints: Endpoints) -> None:
        super().__init__(verify=_trusted(*map(os.environ.get, _CERTIFICATES)))
        self._bounds, self._endpoints = bounds, endpoints

    async def send(self, request: Any, *, stream: bool = False, **options: Any) -> Any:
        """Like `BoundedClient.send`, without blocking the event loop."""
        send = partial(super().send, **options)
        exchange = partial(_exchange, send, bounds=self._bounds, stream=stream, asynchronous=True)
        return await self._endpoints.send(request, exchange, blocking=False)


def _redirected(first: Any, request: Any, bounds: Bounds) -> Any:
    """Return the redirected request, without private headers if it goes to another origin."""
    target = request.url
    upgraded = (first.scheme, target.scheme) == ("http", "https")
    if first.host != target.host or not (upgraded or (first.scheme, first.port) == (target.scheme, target.port)):
        for name in bounds.private:
            request.headers.pop(name, None)
    return request
