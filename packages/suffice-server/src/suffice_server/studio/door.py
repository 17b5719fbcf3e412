"""Limit access to the studio to browsers that were given the key in the printed address."""

from __future__ import annotations

import hashlib
from collections.abc import MutableMapping
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from suffice_server.serve.guard import same_token

OPEN = "/open"
"""The path of the printed address: it moves the key into a cookie, so that it leaves the address bar."""

HEADERS = {
    # Vega puts styles into the page; scripts come from files alone, and nothing is evaluated.
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Default headers of every response."""

_SHUT = "Open the address that `suffice studio` printed: it contains the key to this page."


class Door:
    """ASGI middleware that only lets requests through if a cookie contains the key.

    Other sites cannot make a browser send this cookie.

    Args:
        app: The application that answers these requests.
        token: The key.
        once: A key that works only once; None for no such key.
    """

    def __init__(self, app: ASGIApp, token: str, once: str | None = None) -> None:
        self.app, self.token, self.once = app, token, once
        # Cookies ignore ports, so two studios on one machine need different names.
        self._cookie = f"suffice-studio-{hashlib.sha256(token.encode()).hexdigest()[:8]}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request = Request(scope)
        answer: ASGIApp = self.app
        if scope["path"] == OPEN:
            answer = self._opened(request.query_params.get("token"))
        elif not same_token(request.cookies.get(self._cookie), self.token):
            answer = PlainTextResponse(_SHUT, 403)
        await answer(scope, receive, _with_headers(send))

    def _opened(self, given: str | None) -> Response:
        is_once = self.once is not None and same_token(given, self.once)
        if not is_once and not same_token(given, self.token):
            return PlainTextResponse(_SHUT, 403)
        if is_once:
            self.once = None
        response = RedirectResponse("/", 303)
        response.set_cookie(self._cookie, self.token, httponly=True, samesite="strict")
        return response


def _with_headers(send: Send) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            own = {name for name, _ in message.get("headers", ())}
            more = [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in own]
            message["headers"] = [*message.get("headers", ()), *more]
        await send(message)

    return sending
