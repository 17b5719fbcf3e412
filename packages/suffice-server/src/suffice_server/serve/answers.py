"""What a server sends back: JSON, and refusals in the words of the tree of errors."""

from __future__ import annotations

import json
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from suffice.errors import ConfigMismatchError, NotFoundError, SufficeError

__all__ = ["Handler", "RefusedError", "json_response", "refusal_of", "refused", "responding"]

Handler = Callable[[Request], Awaitable[Response]]
"""What answers one request."""

_LOG = logging.getLogger(__name__)


class RefusedError(Exception):
    """A request that is not carried out, and changes nothing.

    Args:
        status: The status of HTTP, 400 to 599.
        message: What happened, what is allowed, what to do.
        kind: The name of the error.
        retry_after: After how many seconds the same request may succeed; None = not by waiting.
    """

    def __init__(
        self, status: int, message: str, *, kind: str = "RefusedError", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status, self.message, self.kind, self.retry_after = status, message, kind, retry_after


def json_response(value: Any, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return a response with strict JSON, which no cache keeps and no browser takes for a page."""
    body = json.dumps(value, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")
    shared = {"cache-control": "no-store", "x-content-type-options": "nosniff"}
    return Response(body, status, {**shared, **(headers or {})}, "application/json")


def refused(refusal: RefusedError) -> Response:
    """Return the response for a refusal."""
    headers = {} if refusal.retry_after is None else {"retry-after": f"{refusal.retry_after:.0f}"}
    if refusal.status == 401:  # noqa: PLR2004 - the status that must name the scheme
        headers["www-authenticate"] = "Bearer"
    return json_response({"error": {"type": refusal.kind, "message": refusal.message}}, refusal.status, headers)


def refusal_of(error: SufficeError) -> RefusedError:
    """Return the refusal for an error of the tree: 404 for an unknown name, 409 for a conflict, otherwise 422."""
    status = 404 if isinstance(error, NotFoundError) else 409 if isinstance(error, ConfigMismatchError) else 422
    return RefusedError(status, str(error), kind=type(error).__name__)


def responding(handler: Handler) -> Handler:
    """Return a handler whose every failure is a response in JSON, without a traceback."""

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
            message = "the server failed at this request; its log says why"
            return refused(RefusedError(500, message, kind="InternalError"))

    return respond
