"""Run the asynchronous clients of stores in one event loop in a background thread.

A client belongs to the event loop in which it was made.  But a program may have many event loops in succession, since
each call of `asyncio.run` makes a new one.  In this module all clients belong to one event loop that never ends, so
that connections are reused and no client belongs to a closed loop.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future
from typing import Any, TypeVar

_T = TypeVar("_T")
_LOG = logging.getLogger(__name__)
_CLOSING_S = 5.0
_lock = threading.Lock()
_loops: dict[int, asyncio.AbstractEventLoop] = {}
"""The loop by process id, since a parent's loop has no thread in a forked child."""


def background_loop() -> asyncio.AbstractEventLoop:
    """Return the loop of this process, which is started at the first call."""
    with _lock:
        loop = _loops.get(os.getpid())
        if loop is None:
            # The default loop of Windows cannot wait for sockets as psycopg does.
            new_loop = asyncio.SelectorEventLoop if sys.platform == "win32" else asyncio.new_event_loop
            loop = _loops[os.getpid()] = new_loop()
            threading.Thread(target=loop.run_forever, name="suffice-stores", daemon=True).start()
    return loop


def in_background(coroutine: Coroutine[Any, Any, _T]) -> Future[_T]:
    """Start a coroutine in the background loop, and return its future.

    >>> async def answer():
    ...     return "Oslo"
    >>> in_background(answer()).result()
    'Oslo'
    """
    return asyncio.run_coroutine_threadsafe(coroutine, background_loop())


class BackgroundClient:
    """Holder of a store's client, which is created in the background loop on first use.

    Args:
        close: Function that closes a client.
    """

    def __init__(self, close: Callable[[Any], Awaitable[None]]) -> None:
        self._close = close
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._client: Any = None

    async def get(self, open_client: Callable[[], Awaitable[Any]]) -> Any:
        """Return the client; it is opened in the running loop if necessary."""
        if self._loop is not asyncio.get_running_loop():  # the first call in this process, perhaps a forked one
            self._loop, self._lock, self._client = asyncio.get_running_loop(), asyncio.Lock(), None
        async with self._lock:
            if self._client is None:
                self._client = await open_client()
            return self._client

    async def drop(self) -> None:
        """Close the client, if there is one."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await self._close(client)

    def close(self) -> None:
        """Close the client from any thread."""
        if self._client is None:
            return
        closed: Future[None] = in_background(self.drop())
        try:
            running = asyncio.get_running_loop()
        except RuntimeError:
            running = None
        if running is not background_loop():  # the garbage collector may run in the background thread itself
            try:
                closed.result(_CLOSING_S)
            except Exception as error:  # noqa: BLE001 - a connection that is already broken
                _LOG.debug("a client did not close: %s", type(error).__name__)


def _after_fork() -> None:
    global _lock  # noqa: PLW0603 - another thread of the parent may have held it
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
