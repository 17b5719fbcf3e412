"""Lists of the nodes of search trees that are nested in each other, or keyed by their places in the tree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PLACE = re.compile(r"\d+(?:\.\d+)*")
_CHILDREN = "children"
_DEPTH = 100


def tree_nodes(value: Any) -> list[dict[str, Any]]:
    """Return the nodes of a search tree as a list, each with its place and that of its parent; none if a value is no tree.

    A tree is an object keyed by places, such as 0.1.2, or has its nodes in nested lists called `children`.

    >>> tree_nodes({"0": {"text": ""}, "0.1": {"text": "x"}})
    [{'text': '', 'node_id': '0', 'parent_id': None}, {'text': 'x', 'node_id': '0.1', 'parent_id': '0'}]
    >>> tree_nodes({"state": "", "children": [{"state": "x", "children": []}]})
    [{'state': '', 'node_id': '0', 'parent_id': None}, {'state': 'x', 'node_id': '0.1', 'parent_id': '0'}]
    """
    if not isinstance(value, dict):
        return []
    if isinstance(value.get(_CHILDREN), list) and all(isinstance(child, dict) for child in value[_CHILDREN]):
        return [*_nested(value, "0", None, _DEPTH)] if value[_CHILDREN] else []
    are_places = all(isinstance(node, dict) and _PLACE.fullmatch(key) for key, node in value.items())
    if not are_places or not any("." in key for key in value):
        return []
    return [_node(node, key, key.rpartition(".")[0] or None) for key, node in value.items()]


def _node(fields: Mapping[str, Any], place: str, parent: str | None) -> dict[str, Any]:
    own = {name: value for name, value in fields.items() if name not in (_CHILDREN, "node_id", "parent_id")}
    return {**own, "node_id": place, "parent_id": parent}


def _nested(fields: Mapping[str, Any], place: str, parent: str | None, depth: int) -> Iterator[dict[str, Any]]:
    """Yield a node, and those below it, each before its own."""
    yield _node(fields, place, parent)
    below = fields.get(_CHILDREN)
    for number, child in enumerate(below if isinstance(below, list) and depth else (), start=1):
        if isinstance(child, dict):
            yield from _nested(child, f"{place}.{number}", place, depth - 1)
