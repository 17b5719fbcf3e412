"""Responses of the server: strict JSON, and a status for every error of the error tree."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from suffice.errors import ConfigMismatchError, NotFoundError, SufficeError

Handler = Callable[[Request], Awaitable[Response]]
"""An async function that answers one request."""

_LOG = logging.getLogger(__name__)


class RefusedError(Exception):
    """Raised to reject a request, which then changes nothing.

    Args:
        status: The HTTP status, 400 to 599.
        message: What happened, what is allowed, what to do.
        kind: The name of the error.
        retry_after: Seconds after which the same request may succeed; None if waiting does not help.
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "RefusedError", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.retry_after = status, message, kind, retry_after


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a strict-JSON response, with headers that forbid to cache the response or to show it as a page."""
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    shared = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(body, status, {**shared, **(headers or {})}, "application/json")


def refused(refusal: RefusedError) -> Response:
    """Return the response to a rejected request."""
    headers = {} if refusal.retry_after is None else {"retry-after": f"{refusal.retry_after:.0f}"}
    if refusal.status == 401:  # noqa: PLR2004 - the status that must name the scheme
        headers["www-authenticate"] = "Bearer"
    return json_response({"error": {"type": refusal.kind, "message": refusal.message}}, refusal.status, headers)


def refusal_of(error: SufficeError) -> RefusedError:
    """Convert a library error to a rejection: 404 for an unknown name, 409 for a conflict, otherwise 422."""
    status = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, ConfigMismatchError) else 422
    return RefusedError(status, str(error), kind=type(error).__name__)


def responding(handler: Handler) -> Handler:
    """Wrap a handler so that every failure becomes a JSON response without a traceback."""

    async def respond(request: Request) -> Response:
        try:
            return await handler(request)
        except RefusedError as refusal:
            return refused(refusal)
        except SufficeError as error:
            return refused(refusal_of(error))
        except ClientDisconnect:
            return Response(status_code=499)  # nobody reads it
        except Exception:  # noqa: BLE001 - logged, and never shown
            _LOG.exception("%s %r failed", request.method, request.url.path[:200])
            message = "the server failed at this request; its log contains the error"
            return refused(RefusedError(500, message, kind="InternalError"))

    return respond
