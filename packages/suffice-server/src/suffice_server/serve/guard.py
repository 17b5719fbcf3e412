"""Access control of a local server: token, host names, origins and limits."""

from __future__ import annotations

import asyncio
import hmac
import os
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from suffice.errors import DataError
from suffice_server.serve.answers import RefusedError, refused

LOCAL_HOSTS = frozenset({"127.0.0.1", "localhost", "[::1]"})
"""Host names that always mean this machine."""

_SHORTEST_TOKEN = 16


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of a server; a request beyond one of them is rejected.

    Attributes:
        body: Largest body of a request, bytes.
        seconds: Longest time for a body to arrive, seconds.
        requests: Largest number of concurrent requests.
        rounds: Largest number of rounds in one request, and in one session.
        sessions: Largest number of open sessions.
        session: Largest size of a stored session, bytes.
        work: Longest time for comparing the answers of one request, seconds.
        ttl: Time that a session is kept after its last request, seconds.
    """

    body: int = 4 << 20
    seconds: float = 10.0
    requests: int = 256
    rounds: int = 1000
    sessions: int = 10_000
    session: int = 16 << 20
    work: float = 10.0
    ttl: float = 3600.0

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise DataError(f"the limit {name} must be positive, not {value!r}")


def read_token(variable: str, file: Path | None = None) -> str | None:
    """Return the token of a server, from a file or an environment variable; None if neither is given.

    A token is never an option of a command, because every user of the machine could read it there.

    Args:
        variable: The environment variable.
        file: A file whose only line is the token; it takes precedence.

    Raises:
        DataError: The file cannot be read, or the token is too short or contains blanks.
    """
    if file is None:
        token, source = os.environ.get(variable), variable
    else:
        try:
            token, source = file.read_text("utf-8").strip(), str(file)
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"the token file {str(file)!r} cannot be read: {type(error).__name__}") from None
    if token is None:
        return None
    if len(token) < _SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        raise DataError(
            f"the token in {source} must have at least {_SHORTEST_TOKEN} visible ASCII characters and no blanks: "
            "`openssl rand -hex 32` makes one"
        )
    return token


def same_token(given: str | None, token: str) -> bool:
    """Compare a request's token with the server's in constant time, to prevent timing attacks."""
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def bearer_token(request: Request) -> str | None:
    """Return the token in a request's Authorization header; None if the request has no token."""
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


class Guard:
    """ASGI middleware that limits access and the number of concurrent requests.

    A request passes if it has the token, an allowed host and no foreign origin.

    A foreign `Origin` is always rejected: pages of other sites have no access, and no header grants it.

    Args:
        app: The application that answers the requests that pass.
        token: The token that requests need; None if none is needed.
        hosts: Allowed names in the Host header, without the port; None = any.  A server without a token needs them,
            because a foreign site can make its name resolve to this machine.
        open_paths: Paths for health checks, which need no token and are answered even if the server is busy.
        requests: Largest number of concurrent requests; further requests are rejected with 503.
        on_refusal: Called with the status of each request that does not pass.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        token: str | None,
        hosts: Collection[str] | None = None,
        open_paths: Collection[str] = (),
        requests: int = Limits.requests,
        on_refusal: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.app, self.token, self.hosts, self.open_paths = app, token, hosts, frozenset(open_paths)
        self.requests, self.on_refusal = requests, on_refusal
        self.in_flight = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or reject one request."""
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            self.on_refusal(refusal.status)
            await refused(refusal)(scope, receive, send)
            return
        self.in_flight += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.in_flight -= 1

    def _refusal(self, scope: Scope) -> RefusedError | None:
        if scope["type"] != "http":
            return RefusedError(400, "this server supports HTTP only, no websockets")
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        if self.hosts is not None and _name_of(host) not in self.hosts:
            return RefusedError(403, f"the host must be one of {', '.join(sorted(self.hosts))}")
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return RefusedError(403, "pages of other sites may not ask this server")
        if self.token is not None and scope["path"] not in self.open_paths:
            given = bearer_token(Request(scope))
            if not same_token(given, self.token):
                what = "a token is missing" if given is None else "this is another token"
                return RefusedError(401, f"{what}: send the header  Authorization: Bearer TOKEN")
        if self.in_flight >= self.requests and scope["path"] not in self.open_paths:
            return RefusedError(503, f"{self.requests} requests are in flight: try again", retry_after=1)
        return None


def _name_of(host: str) -> str:
    """Return the name in a Host header, without its port."""
    name, _, port = host.rpartition(":")
    return (name if name and port.isdigit() else host).lower()


async def read_body(request: Request, limits: Limits) -> bytes:
    """Return the whole body of a request.

    Raises:
        RefusedError: The body is too large, or takes too long to arrive.
    """
    too_large = RefusedError(413, f"the body is larger than {limits.body} bytes, the limit of this server")
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limits.body:
        raise too_large
    parts, size = [], 0
    try:
        async with asyncio.timeout(limits.seconds):
            async for part in request.stream():
                size += len(part)
                if size > limits.body:
                    raise too_large
                parts.append(part)
    except TimeoutError:
        message = f"the body did not arrive within {limits.seconds:g} s, the limit of this server"
        raise RefusedError(408, message, retry_after=1) from None
    return b"".join(parts)
