"""The interface between a page function and the studio: request, folder, templates, tabs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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


@cache
def _bundled_passages() -> Passages:
    return {name: passages for bundled in BUNDLED_QUESTIONS for name, passages in evidence(bundled).items()}


class View:
    """One request for a page.

    Args:
        request: The request.
        form: The fields of a submitted form, each with its values; None = no form was submitted.

    Attributes:
        request: The request.
        form: The fields of the form.
        folder: The folder that the studio shows.
    """

    def __init__(self, request: Request, form: Mapping[str, Sequence[str]] | None = None) -> None:
        self.request = request
        self.form = form or {}
        self.folder: Folder = request.app.state.folder

    @cached_property
    def items(self) -> list[Item]:
        """Everything in the folder at the time of this request."""
        return self.folder.scan()

    def of_kind(self, *kinds: str) -> list[Item]:
        """Return the undamaged items of the given kinds."""
        return [item for item in self.items if item.kind in kinds and not item.error]

    def item(self, *kinds: str, key: str = "") -> Item:
        """Return an item by its id.

        Args:
            kinds: Allowed kinds.
            key: The item's id; empty for the id in the address.

        Raises:
            NotFoundError: The item is no longer in the folder, is damaged, or has a kind that is not allowed.
        """
        key = key or self.request.path_params["id"]
        item = next((item for item in self.items if item.id == key and item.kind in kinds), None)
        if item is None:
            raise NotFoundError("this is not in the folder any more: go back to the folder to read it again")
        return item

    def next_of(self, item: Item) -> str:
        """Return the suggested command for an item; for a log, the command names the policy file that decided the log."""
        policies = sorted(self.of_kind("policy"), key=lambda one: not one.state)  # those with a certificate first
        policy = next((one for one in policies if one.digest in item.deciders), None)
        return item.next if policy is None else item.next.replace(DECIDER, quoted(policy.path))

    @cached_property
    def passages(self) -> Passages:
        """The passages of all question sets, bundled or in the folder, by question id and passage id."""
        known: dict[str, Any] = dict(_bundled_passages())
        for item in self.of_kind("questions"):
            known |= self.folder.passages(item)
        return known

    def value(self, name: str, default: str = "") -> str:
        """Return a parameter of the address's query as text."""
        return self.request.query_params.get(name, default)

    def number(self, name: str, default: int) -> int:
        """Return a parameter of the address's query as a whole number; if it is not a whole number, return the default."""
        text = self.value(name)
        return int(text) if text.isdecimal() and len(text) < 10 else default  # noqa: PLR2004

    def index(self, name: str) -> int:
        """Return a parameter of the address's path as a whole number.

        Raises:
            NotFoundError: The text is not a whole number, or has too many digits.
        """
        text = self.request.path_params[name]
        if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004
            raise NotFoundError(f"there is no {name} {text[:40]!r}")
        return int(text)

    def page(self, template: str, title: str, *, status: int = 200, **values: Any) -> Response:
        """Return a page.

        Args:
            template: The file in `templates`, which extends `base.html`.
            title: The title of the page.
            status: The HTTP status.
            values: Values for the template, in addition to `view` and `title`.
        """
        return HTMLResponse(render_page(template, view=self, title=title, **values), status)

    def json(self, values: Any) -> Response:
        """Return values as strict JSON; NaN becomes null."""
        return JSONResponse(jsonable(values))

    def tabs(self, item: Item) -> list[dict[str, Any]]:
        """Return the tabs over an item's pages, each with its address and whether it is the current page."""
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
        """Encode the non-empty values as the query of an address, with its question mark."""
        kept = {name: value for name, value in values.items() if value not in ("", None)}
        return f"?{urlencode(kept)}" if kept else ""

    @property
    def version(self) -> str:
        """The version of Suffice."""
        return __version__


Page = Callable[[View], Response]
"""A page function: it answers one address."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tab:
    """A tab over the pages of an item.

    Attributes:
        title: The text of the tab.
        path: The address of the tab's page, with ``{id}`` for the item.
        kinds: The kinds of items that have this tab.
        place: Sort key; tabs with a smaller key come first.
    """

    title: str
    path: str
    kinds: Sequence[str]
    place: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ViewModule:
    """The pages and tabs that one module of `views` adds to the studio.

    Attributes:
        pages: Method, path and function of each page.
        tabs: The tabs of the module.
    """

    pages: Sequence[tuple[str, str, Page]]
    tabs: Sequence[Tab] = ()
