"""Pages of the studio: templates whose values are always escaped and shown as plain text."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files
from typing import Any

from markupsafe import Markup

from suffice.common.display.chart import VENDOR, components, vendored
from suffice.common.results import jsonable
from suffice.presentation.html import environment, page_style
from suffice.presentation.slider import json_in_html

LONGEST_TEXT = 4_000
"""Most characters of one text on a page; the whole text has a page of its own."""

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Replace invisible characters, and those that change the direction of text, by visible signs.

    >>> visible("a\x00b\u202ec\r\nd")
    'a␀b⟨U+202E⟩c\nd'
    """
    return _INVISIBLE.sub(_sign_of, text.replace("\r\n", "\n"))


def _sign_of(match: re.Match[str]) -> str:
    code = ord(match[0])
    return chr(0x2400 + code) if code < ord(" ") else "\u2421" if match[0] == "\x7f" else f"⟨U+{code:04X}⟩"


def _shown(value: Any, most: int = LONGEST_TEXT) -> Markup:
    """Render a recorded value as text whose direction cannot affect the page; cut it if it is long."""
    text = str(value)
    cut = f" … ({len(text):,} characters)" if len(text) > most else ""
    return Markup("<bdi>{}</bdi>{}").format(visible(text[:most]), cut)


@cache
def _environment() -> Any:
    from jinja2 import ChoiceLoader, PackageLoader

    filled = environment()
    filled.loader = ChoiceLoader([PackageLoader("suffice_server.studio", "templates"), filled.loader])
    filled.filters["shown"] = _shown
    filled.filters["data"] = lambda value: Markup(json_in_html(jsonable(value)))  # noqa: S704 - it escapes what could end a script
    filled.filters["counted"] = lambda n: f"{n:,}"
    return filled


def render_page(template: str, **values: Any) -> str:
    """Fill a template of this package; invisible characters become visible signs."""
    page: str = _environment().get_template(template).render(**values)
    return visible(page)


@cache
def assets() -> dict[str, tuple[str, str]]:
    """Return the styles and scripts that pages and reports load, by name, each with its media type."""
    own = {
        entry.name: entry.read_text("utf-8")
        for entry in files("suffice_server.studio").joinpath("static").iterdir()
        if entry.name.endswith((".js", ".css"))
    }
    own["studio.css"] = page_style() + own["studio.css"]
    texts = {**own, "components.js": components(), **{name: vendored(name) for name in VENDOR}}
    return {
        name: (text, "text/css" if name.endswith(".css") else "text/javascript") for name, text in sorted(texts.items())
    }
