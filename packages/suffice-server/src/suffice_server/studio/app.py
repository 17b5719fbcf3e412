"""The studio as a web application: its views, static files and error pages."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from suffice.errors import NotFoundError, SufficeError
from suffice_server.serve.guard import LOCAL_HOSTS, Guard
from suffice_server.studio.door import Door
from suffice_server.studio.folder import Folder
from suffice_server.studio.pages import assets, render_page
from suffice_server.studio.view import View
from suffice_server.studio.views import (
    CONTENTS_VIEW,
    DECIDING_VIEW,
    EXPORTS_VIEW,
    LABELLING_VIEW,
    LOG_VIEW,
    POLICY_VIEW,
    QUESTIONS_VIEW,
    RECORDING_VIEW,
    TRYING_VIEW,
)

VIEWS = (
    CONTENTS_VIEW,
    LOG_VIEW,
    RECORDING_VIEW,
    QUESTIONS_VIEW,
    POLICY_VIEW,
    EXPORTS_VIEW,
    DECIDING_VIEW,
    LABELLING_VIEW,
    TRYING_VIEW,
)
"""All views; the order is that of their routes."""


def studio_app(folder: str | Path, *, token: str, once: str | None = None) -> Guard:
    """Return the studio of a folder as an ASGI application, to be served on 127.0.0.1.

    Args:
        folder: The folder to show.
        token: The key in the address that is opened first; whoever has it can read the folder.
        once: A second key that works only once; None for no such key.

    Raises:
        NotFoundError: The folder does not exist.
    """
    routes = [Route("/static/{name}", _static), Route("/favicon.ico", _icon)]
    for view in VIEWS:
        routes += [Route(path, _ENDPOINTS[method](page), methods=[method]) for method, path, page in view.pages]
    app = Starlette(routes=routes, exception_handlers={SufficeError: _failed, 404: _missing, 500: _broken})
    app.state.folder = Folder(folder)
    app.state.tabs = sorted((tab for view in VIEWS for tab in view.tabs), key=lambda tab: tab.place)
    return Guard(Door(app, token, once), token=None, hosts=LOCAL_HOSTS)


def _endpoint(page: Any) -> Any:
    """Wrap a page function, which takes a `View`, as an endpoint that runs in a thread."""

    def endpoint(request: Request) -> Response:
        response: Response = page(View(request))
        return response

    return endpoint


def _form_endpoint(page: Any) -> Any:
    """Wrap a page function as an endpoint that takes the fields of a form."""

    async def endpoint(request: Request) -> Response:
        text = (await request.body()).decode("utf-8", "replace")
        form = parse_qs(text, keep_blank_values=True)
        response: Response = await run_in_threadpool(page, View(request, form))
        return response

    return endpoint


_ENDPOINTS = {"GET": _endpoint, "POST": _form_endpoint}


def _static(request: Request) -> Response:
    known = assets().get(request.path_params["name"])
    if known is None:
        return PlainTextResponse("There is no such file.", 404)
    return Response(known[0], media_type=known[1])


def _icon(request: Request) -> Response:
    del request
    return Response(status_code=204)  # browsers ask for one beside plain text


def _failed(request: Request, error: Exception) -> Response:
    status = 404 if isinstance(error, NotFoundError) else 422
    return HTMLResponse(
        render_page("error.html", view=View(request), title="This did not work", text=str(error)), status
    )


def _missing(request: Request, error: Exception) -> Response:
    del error
    view = View(request)
    return HTMLResponse(render_page("error.html", view=view, title="Not here", text="There is no such page."), 404)


def _broken(request: Request, error: Exception) -> Response:
    text = f"The studio failed at this page: {type(error).__name__}. Its terminal shows where; please report it."
    return HTMLResponse(
        render_page("error.html", view=View(request), title="This is a fault of the studio", text=text), 500
    )
