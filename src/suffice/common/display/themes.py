"""The colours of pages and charts, in light and in dark."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from typing import Any, Literal

from suffice.common.display.table_html import style

Theme = Literal["light", "dark"]

_VARIABLE = re.compile(r"var\((--[\w-]+)\)")
_DEFINED = re.compile(r"(--[\w-]+): (#\w{6})")
_MIX = re.compile(r"color-mix\(in srgb, (#\w{6}) (\d+)%, (#\w{6})\)")
_BLOCKS: Mapping[Theme, str] = {"light": ":root {", "dark": ':root[data-theme="dark"] {'}


@cache
def theme_colours(theme: Theme) -> Mapping[str, str]:
    """Return the colours of a theme by their variables' names.

    >>> theme_colours("light")["--surface"], theme_colours("dark")["--surface"]
    ('#ffffff', '#1c1f24')
    """
    block = style("colours").partition(_BLOCKS[theme])[2].partition("}")[0]
    return dict(_DEFINED.findall(block))


def colour_of(text: str, theme: Theme) -> str:
    """Resolve variables and mixtures in a colour; return other texts unchanged.

    >>> colour_of("color-mix(in srgb, var(--text) 50%, var(--surface))", "light")
    '#8e8e90'
    """
    plain = _VARIABLE.sub(lambda match: theme_colours(theme)[match[1]], text)
    return _MIX.sub(_mixed_colour, plain)


def in_colours(value: Any, theme: Theme) -> Any:
    """Apply `colour_of` to each text in JSON-ready values."""
    if isinstance(value, str):
        return colour_of(value, theme)
    if isinstance(value, Mapping):
        return {key: in_colours(item, theme) for key, item in value.items()}
    return [in_colours(item, theme) for item in value] if isinstance(value, list | tuple) else value


def _mixed_colour(match: re.Match[str]) -> str:
    one, share, other = match[1], int(match[2]) / 100, match[3]
    parts = ((int(one[i : i + 2], 16), int(other[i : i + 2], 16)) for i in (1, 3, 5))
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in parts)
