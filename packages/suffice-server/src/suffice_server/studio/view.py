"""What a page of the studio is made with: the request, the folder, and the template around it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response

from suffice._version import __version__
from suffice.common.files import quoted
from suffice.common.results import jsonable
from suffice.errors import NotFoundError
from suffice.loops.retrieval import BUNDLED_QUESTIONS
from suffice.presentation.trajectories import Passages, evidence
from suffice_server.studio.describing import DECIDER
from suffice_server.studio.folder import Folder, Item
from suffice_server.studio.pages import render_page

__all__ = ["Page", "Tab", "View", "ViewModule"]


@cache
def _bundled_passages() -> Passages:
    return {name: passages for bundled in BUNDLED_QUESTIONS for name, passages in evidence(bundled).items()}


class View:
    """One request for a page.

    Args:
        request: The request.

    Attributes:
        request: The same.
        folder: What the studio shows.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.folder: Folder = request.app.state.folder

    @cached_property
    def items(self) -> list[Item]:
        """Everything in the folder, as it is at this request."""
        return self.folder.scan()

    def of_kind(self, *kinds: str) -> list[Item]:
        """Return the undamaged things of some kinds."""
        return [item for item in self.items if item.kind in kinds and not item.error]

    def item(self, *kinds: str, key: str = "") -> Item:
        """Return a thing by its id.

        Args:
            kinds: What it may be.
            key: Its id; empty = the one in the address.

        Raises:
            NotFoundError: It is not in the folder now, of another kind, or damaged.
        """
        key = key or self.request.path_params["id"]
        item = next((item for item in self.items if item.id == key and item.kind in kinds), None)
        if item is None:
            raise NotFoundError("this is not in the folder any more: go back to the folder, which is read anew")
        return item

    def next_of(self, item: Item) -> str:
        """Return the next command of a thing, with the policy of this folder that decided a log."""
        policies = sorted(self.of_kind("policy"), key=lambda one: not one.state)  # those with a certificate first
        policy = next((one for one in policies if one.digest in item.deciders), None)
        return item.next if policy is None else item.next.replace(DECIDER, quoted(policy.path))

    @cached_property
    def passages(self) -> Passages:
        """The passages of the folder's question sets, and of those in the package, by question and passage."""
        known: dict[str, Any] = dict(_bundled_passages())
        for item in self.of_kind("questions"):
            known |= self.folder.passages(item)
        return known

    def value(self, name: str, default: str = "") -> str:
        """Return a value of the query."""
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int) -> int:
        """Return a whole number of the query; the default where it is none."""
        text = self.value(name)
        return int(text) if text.isdecimal() and len(text) < 10 else default  # noqa: PLR2004

    def index(self, name: str) -> int:
        """Return a whole number of the path.

        Raises:
            NotFoundError: It is not one, or has more digits than anything here is counted with.
        """
        text = self.request.path_params[name]
        if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004
            raise NotFoundError(f"there is no {name} {text[:40]!r}")
        return int(text)

    def page(self, template: str, title: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page.

        Args:
            template: The file in `templates`, which extends `base.html`.
            title: Its title.
            status: Of the response.
            values: What the template reads, beside `view` and `title`.
        """
        return HTMLResponse(render_page(template, view=self, title=title, **values), status)

    def json(self, values: Any) -> Response:
        """Return values as strict JSON; NaN becomes null."""
        return JSONResponse(jsonable(values))

    def tabs(self, item: Item) -> list[dict[str, Any]]:
        """Return the tabs of a thing's pages, each with its address and whether it is this page."""
        here = self.request.url.path
        addresses = [
            (tab.title, tab.path.replace("{id}", item.id))
            for tab in self.request.app.state.tabs
            if item.kind in tab.kinds
        ]
        matches = [address for _, address in addresses if here == address or here.startswith(f"{address}/")]
        current = max(matches, key=len, default="")
        return [{"title": title, "address": address, "here": address == current} for title, address in addresses]

    @staticmethod
    def query(**values: Any) -> str:
        """Return a query of those values that are not empty, with its question mark."""
        kept = {name: value for name, value in values.items() if value not in ("", None)}
        return f"?{urlencode(kept)}" if kept else ""

    @property
    def version(self) -> str:
        """The release."""
        return __version__


Page = Callable[[View], Response]
"""What answers one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """An entry of the navigation over a thing.

    Attributes:
        title: What it says.
        path: Its address, with ``{id}``.
        kinds: Over things of which kinds it stands.
        place: Smaller ones come first.
    """

    title: str
    path: str
    kinds: Sequence[str]
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewModule:
    """What one module of `views` adds to the studio.

    Attributes:
        pages: Method, path and function of each page.
        tabs: Its tabs.
    """

    pages: Sequence[tuple[str, str, Page]]
    tabs: Sequence[Tab] = ()
