"""The service over HTTP: one route, check and timer for each operation of `suffice_server.serve.operations`."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from suffice.common.json_text import refuse_constant, well_formed
from suffice.errors import DataError, SufficeError
from suffice_server.serve.answers import Handler, RefusedError, json_response, refused, responding
from suffice_server.serve.document import openapi, schemas_for
from suffice_server.serve.guard import Guard, Limits, read_body
from suffice_server.serve.metrics import METRICS_TYPE
from suffice_server.serve.operations import OPEN_PATHS, OPERATIONS, Operation
from suffice_server.serve.schema import checker
from suffice_server.serve.service import Service

_LOG = logging.getLogger(__name__)
_RELOAD_S = 1.0
_THREADS = 32
"""Threads that work on requests: reading one answer may take seconds, during which all others would wait."""


def make_app(service: Service, limits: Limits, *, token: str | None, hosts: Collection[str] | None = None) -> ASGIApp:
    """Return the application of a service.

    Args:
        service: The service that answers.
        limits: Limits of requests and sessions.
        token: The token that every request needs; None if none is needed.
        hosts: Allowed names in the Host header; None = any.
    """
    document = openapi(limits, token=token is not None)
    functions: dict[str, Callable[..., Any]] = {
        "decide": service.decide,
        "open_session": service.open_session,
        "observe": service.observe,
        "end": service.end,
        "session": service.session,
        "close_session": service.close_session,
        "policies": service.listed,
        "watch": service.watched,
        "health": lambda: {"status": "ok"},
        "ready": service.ready,
        "metrics": service.metrics.text,
        "document": lambda: document,
    }
    routes = [_route(operation, functions[operation.name], service, limits) for operation in OPERATIONS]

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(_THREADS, "suffice-serve"))
        await asyncio.to_thread(service.check_log)
        works = [(service.policies.refresh, _RELOAD_S), (service.log_pending, _RELOAD_S)]
        works += [(service.check_log, _RELOAD_S)]
        works += [(service.watch_again, service.watch_s)] if service.watch_s else []
        tasks = [asyncio.create_task(_again(work, seconds)) for work, seconds in works]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            service.stop_watching()
            await asyncio.gather(*tasks, return_exceptions=True)

    app = Starlette(routes=routes, lifespan=lifespan, exception_handlers={HTTPException: _not_there})
    app.router.redirect_slashes = False
    return Guard(
        app,
        token=token,
        hosts=hosts,
        open_paths=OPEN_PATHS,
        requests=limits.requests,
        on_refusal=service.metrics.turned_away,
    )


def _route(operation: Operation, function: Callable[..., Any], service: Service, limits: Limits) -> Route:
    schemas = schemas_for(limits)
    check = None if operation.body is None else checker(schemas[operation.body], schemas)
    never_waits = operation.name in ("health", "ready", "document")  # all others compute, or wait for a disk

    def work(raw: bytes, parameters: Iterable[str]) -> Any:
        if check is None:
            return function(*parameters)
        body = _body_value(raw)
        check(body)
        return function(*parameters, body)

    async def handle(request: Request) -> Response:
        raw = b"" if operation.body is None else await read_body(request, limits)
        parameters = request.path_params.values()
        value = work(raw, parameters) if never_waits else await asyncio.to_thread(work, raw, parameters)
        if operation.result is None:
            return Response(status_code=operation.status)
        if isinstance(value, bytes):
            return Response(value, operation.status, media_type=METRICS_TYPE)
        status = 503 if operation.name == "ready" and not value["ready"] else operation.status
        return json_response(value, status)

    return Route(operation.path, _timed(operation.name, responding(handle), service), methods=[operation.method])


def _timed(name: str, handler: Handler, service: Service) -> Handler:
    async def handle(request: Request) -> Response:
        start = time.perf_counter()
        response = await handler(request)
        service.metrics.requested(name, response.status_code, time.perf_counter() - start)
        return response

    return handle


def _body_value(raw: bytes) -> Any:
    """Parse a request body as JSON."""
    try:
        value = json.loads(raw.decode(), parse_constant=refuse_constant)
        return well_formed(value) if b"\\u" in raw else value  # only an escape can produce a lone surrogate
    except UnicodeDecodeError:
        raise DataError("the body is not UTF-8") from None
    except RecursionError:
        raise DataError("the body is nested too deeply") from None
    except ValueError as error:
        raise DataError(f"the body is not JSON: {str(error)[:200]}") from None


async def _not_there(request: Request, error: Exception) -> Response:
    """Return the JSON response for an unknown path or method."""
    assert isinstance(error, HTTPException)
    what = f"{request.method} {request.url.path[:100]}"
    return refused(RefusedError(error.status_code, f"there is no {what}: /openapi.json lists what there is"))


async def _again(work: Callable[[], None], seconds: float) -> None:
    """Call a function in a thread at intervals, forever; log its failures."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await asyncio.to_thread(work)
        except (SufficeError, RefusedError) as error:
            _LOG.warning("%s", error)
        except Exception:  # noqa: BLE001 - logged, and done again
            _LOG.exception("%s failed", work.__name__)
