"""The `openai` clients of one endpoint: one for sync calls, one for each event loop."""

from __future__ import annotations

import asyncio
import threading
import weakref
from collections.abc import AsyncGenerator, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, urlsplit

from suffice.errors import DataError

if TYPE_CHECKING:
    import openai

__all__ = ["Clients", "checked_url"]


class Clients:
    """Clients made when they are first needed: importing `openai` takes longer than a whole replay.

    Args:
        options: Keyword arguments of `openai.OpenAI` and `openai.AsyncOpenAI`.
    """

    def __init__(self, options: Mapping[str, Any]) -> None:
        self._options = options
        self._lock = threading.Lock()
        self._sync: openai.OpenAI | None = None
        self._by_loop: weakref.WeakKeyDictionary[
            asyncio.AbstractEventLoop, tuple[openai.AsyncOpenAI, AsyncGenerator[None, None]]
        ] = weakref.WeakKeyDictionary()

    def sync(self) -> openai.OpenAI:
        """Return the client of sync calls; threads share it."""
        import openai

        with self._lock:
            if self._sync is None:
                self._sync = openai.OpenAI(**self._options)
            return self._sync

    async def of_loop(self) -> openai.AsyncOpenAI:
        """Return the client of the running event loop."""
        import openai

        loop = asyncio.get_running_loop()
        with self._lock:
            held = self._by_loop.get(loop)
            if held is not None:
                return held[0]
            client = openai.AsyncOpenAI(**self._options)
            # An event loop closes its asynchronous generators when it ends, and so our connections with it.
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
            held = self._by_loop.pop(asyncio.get_running_loop(), None)
        if held is not None:
            await held[1].aclose()


async def _keep(client: openai.AsyncOpenAI) -> AsyncGenerator[None, None]:
    try:
        yield
    finally:
        await client.close()


def checked_url(url: str) -> str:
    """Return an endpoint's address in one spelling.

    A password or a query in it is refused, because HTTP libraries write the whole address into their logs.

    >>> checked_url("https://Host:8000/v1/")
    'https://host:8000/v1'

    Raises:
        DataError: It is no address, or holds more than scheme, host, port and path.
    """
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = SplitResult("", "", "", "", ""), None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DataError("base_url must look like http://host:port/v1 (what was given is not shown: it may hold a key)")
    if "@" in parts.netloc or parts.query or parts.fragment:
        raise DataError("base_url may hold no user, password, query or fragment: use api_key or default_headers")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path.rstrip('/')}"
