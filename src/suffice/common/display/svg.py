"""Draw charts as SVG documents with vl-convert, which runs Vega without a browser or network."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from typing import Any, Literal
from xml.etree import ElementTree as ET

from suffice.common.display.table_html import style
from suffice.errors import MissingExtraError

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


_SVG = "http://www.w3.org/2000/svg"
_DRAWN = frozenset(f"{{{_SVG}}}{mark}" for mark in ("path", "line", "text"))


def check_charts_extra() -> None:
    """Raise if charts cannot be drawn as SVG; call this before a long computation."""
    if find_spec("vl_convert") is None:
        raise MissingExtraError("a chart as an SVG file (vl-convert-python)", "charts")


def picture(spec: Mapping[str, Any]) -> str:
    """Draw a Vega-Lite specification as an SVG document with selectable text, which follows light and dark mode.

    A mark's tooltip becomes its title, which browsers show under the pointer.

    Args:
        spec: A chart with its legend and width; its colours may be variables of `suffice.common.display.svg`.

    Raises:
        MissingExtraError: The extra `charts` is not installed.
        ValueError: The specification is not a chart that Vega-Lite can draw.
    """
    check_charts_extra()
    import vl_convert

    drawn = vl_convert.vegalite_to_svg(in_colours(_described(spec), "light"), allowed_base_urls=[])
    ET.register_namespace("", _SVG)
    root = ET.fromstring(drawn)  # noqa: S314 - vl-convert wrote it
    for element in root.iter():
        if element.tag in _DRAWN and "aria-label" in element.attrib:
            title = _element("title", element.attrib["aria-label"])
            title.tail, element.text = element.text, None
            element.insert(0, title)
    unique = "chart-" + hashlib.sha256(drawn.encode()).hexdigest()[:10]
    root.attrib.update({"id": unique, "role": "graphics-document", "aria-labelledby": f"{unique}-title"})
    title = _element("title", str(spec.get("description", "chart")), id=f"{unique}-title")
    root[:0] = [title, _element("style", _dark_style(spec, unique))]
    return ET.tostring(root, encoding="unicode") + "\n"


def _element(name: str, text: str, **attributes: str) -> ET.Element:
    element = ET.Element(f"{{{_SVG}}}{name}", attributes)
    element.text = text
    return element


def _described(node: Any) -> Any:
    """Add a description to each mark that has a tooltip."""
    if isinstance(node, list | tuple):
        return [*map(_described, node)]
    if not isinstance(node, Mapping):
        return node
    inner = {key: _described(item) for key, item in node.items()}
    if "mark" in inner:
        mark = inner["mark"] if isinstance(inner["mark"], Mapping) else {"type": inner["mark"]}
        tooltip = inner.get("encoding", {}).get("tooltip")
        inner["mark"] = {**mark, "aria": bool(tooltip)}
        if tooltip:
            values = ", ".join(map(_value_expression, tooltip))
            inner["encoding"]["description"] = {"value": {"expr": f"slice(join([{values}], ''), 2)"}}
    return inner


def _value_expression(entry: Mapping[str, Any]) -> str:
    """Return a Vega expression for a tooltip's name and value; it is empty if the value is undefined."""
    value = f"datum[{json.dumps(entry['field'])}]"
    shown = f"format({value}, {json.dumps(entry['format'])})" if "format" in entry else value
    name = json.dumps(f"; {entry.get('title', entry['field'])}: ")
    return f"isValid({value}) && {value} !== '' ? {name} + {shown} : ''"


def _dark_style(spec: Mapping[str, Any], unique: str) -> str:
    """Return the style sheet that replaces a picture's light colours by dark colours if the reader prefers dark mode."""
    named = dict.fromkeys(text for text in _texts(spec) if "var(" in text)
    colours = {colour_of(text, "light"): colour_of(text, "dark") for text in named}
    rules = (f'#{unique} [{paint}="{light}"]{{{paint}:{dark}}}' for light, dark in colours.items() for paint in _PAINTS)
    return f"@media (prefers-color-scheme: dark){{{''.join(rules)}}}"


_PAINTS = ("fill", "stroke")


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, Mapping | list | tuple):
        for item in node.values() if isinstance(node, Mapping) else node:
            yield from _texts(item)
