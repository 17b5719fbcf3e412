"""Run a server on this machine: bind its socket, drop slow clients, shut down in order."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, ClassVar

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from suffice.errors import DataError

if TYPE_CHECKING:
    from asyncio import TimerHandle

_HEAD_S = 10.0
"""Longest time for the whole head of a request to arrive, seconds."""

_END_S = 10
"""Time that requests in flight get when the server ends, seconds."""


_TURN_S = 0.0005
"""Longest time that a thread keeps the interpreter while others wait, seconds; short, since a decision waits for it several times."""

_SPARE = 128
"""Number of file descriptors reserved for files; connections may use the others."""

_WANTED = 65_536


class PatientProtocol(H11Protocol):
    """Closes a connection whose request head takes too long, such as one with a byte per minute.

    Connections that are idle or have no complete request head are waiting.  If there are more than `most` connections, the
    one that has waited longest is closed at once, so that half-open connections cannot block others.
    """

    head_s = _HEAD_S
    most = 1000
    _timer: TimerHandle | None = None
    _waiting: ClassVar[dict[PatientProtocol, None]] = {}
    """Connections that are idle or without a complete head, the oldest first."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the time limit of the first request."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > self.most:
            oldest = next(iter(self._waiting))
            del self._waiting[oldest]  # removed now, since connection_lost may come after the next connection
            oldest.transport.abort()

    def data_received(self, data: bytes) -> None:
        """Parse data; stop the time limit once the head of the request is complete."""
        super().data_received(data)
        if self.cycle is not None and not self.cycle.response_complete:
            self._wait_no_more()
        elif self._timer is None and not self.transport.is_closing():
            self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the time limit."""
        self._wait_no_more()
        super().connection_lost(exc)

    def on_response_complete(self) -> None:
        """Stop the time limit after a response; until the next byte, uvicorn's own limit for idle connections applies."""
        self._wait_no_more()
        self._waiting[self] = None
        super().on_response_complete()

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.head_s, self.transport.close)
        self._waiting[self] = None

    def _wait_no_more(self) -> None:
        self._waiting.pop(self, None)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def allowed_connections() -> int:
    """Raise this process's soft limit of open files as far as allowed; return the number of connections that it allows."""
    try:
        import resource
    except ImportError:  # Windows
        return PatientProtocol.most
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _WANTED if hard == resource.RLIM_INFINITY else min(hard, _WANTED)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    return max(_WANTED if soft == resource.RLIM_INFINITY else soft - _SPARE, 1)


class _Server(uvicorn.Server):
    """A server that returns from `serve` on SIGINT and SIGTERM, so that the caller can close files and sessions."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Let SIGINT and SIGTERM end the server within this block."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def bind(host: str, port: int) -> socket.socket:
    """Bind a socket that does not listen yet.

    Args:
        host: The address; ``127.0.0.1`` is reachable from this machine alone.
        port: The port; 0 = a free one.

    Raises:
        DataError: The address is unknown or the port is in use.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
        except OSError:
            listener.close()
            raise
    except (OSError, OverflowError) as error:
        raise DataError(
            f"the server cannot use {host}:{port}: {error}. Give another --port, or 0 for a free one"
        ) from None
    return listener


def url_of(listener: socket.socket) -> str:
    """Return the address of a server, without a slash at its end."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def run_app(app: ASGIApp, listener: socket.socket, *, ready: Callable[[], Any] = lambda: None) -> None:
    """Serve an application until SIGINT or SIGTERM; requests in flight are answered first.

    Responses have no `Server` header, and requests are not logged.

    Args:
        app: The application.
        listener: The socket from `bind`.
        ready: Called once the server accepts requests.
    """
    PatientProtocol.most = allowed_connections()
    sys.setswitchinterval(_TURN_S)
    config = uvicorn.Config(
        app,
        http=PatientProtocol,
        ws="none",
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_END_S,
    )
    server = _Server(config)

    async def serve() -> None:
        async def announce() -> None:
            while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
                await asyncio.sleep(0.01)
            ready()

        task = asyncio.create_task(announce())
        try:
            await server.serve(sockets=[listener])
        finally:
            task.cancel()

    asyncio.run(serve())
