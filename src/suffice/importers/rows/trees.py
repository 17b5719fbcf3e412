"""Ask which nodes of a search tree are answers, for rows or list items that name their parents."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import counted
from suffice.errors import UnsettledError
from suffice.importers.columns.table_columns import TableColumns
from suffice.importers.files.records import Record, column_names, with_column
from suffice.importers.rows.left_out import questions_of
from suffice.importers.shapes.shape import ANY, Shape
from suffice.importers.words.names import last_name

NODE_TYPE = "node_type"
"""The column that says whether a node is a leaf, or has further nodes below it."""

_LEAF, _INNER = "leaf", "inner"
PARENTS = frozenset(
    {"parent", "parent_id", "parent_node", "parent_node_id", "parent_idx", "parent_index", "parent_uid", "parent_tag"}
)
_NODES = frozenset({"node_id", "node", "id", "nid", "uid", "uuid", "idx", "index", "node_idx", "node_index", "tag"})
_OF_CALLS = frozenset({"trace_id", "span_id", "op_name", "run_type", "span_kind", "call_id"})
"""Columns of traces, whose parents are the calls around a call."""

_DEPTHS = frozenset({"depth", "level", "step"})
_ENDS = frozenset({"terminal", "is_terminal", "is_leaf", "leaf", "is_end", "finished", "is_finished", "is_final"})
_KEPT_DEPTHS = frozenset(f"node_{name}" for name in _DEPTHS)
"""Names under which depths are kept, since they count no rounds."""

OF_TREES = PARENTS | _KEPT_DEPTHS
"""Names of columns that place a node in its tree."""

_NEARLY_ALL, _OFTEN = 0.95, 0.1

_Node = tuple[Hashable, str]
"""A question, and the id of a node in its tree."""


def marked_nodes(shape: Shape, said: Mapping[str, str]) -> Shape:
    """Mark the rows of a search tree as inner nodes or leaves; return the shape unchanged if they are not a tree.

    In a tree, all rows but the root name another row of the question as their parent.  In at least a tenth of the questions, some
    node has several children, unlike in a thread of messages.  `said` has the columns that the user names.
    """
    table = TableColumns(shape.rows)
    if any(last_name(name) in _OF_CALLS for name in table.names):
        return shape
    inside = [name for name in table.names if name not in shape.outer]
    for parent in [name for name in inside if last_name(name) in PARENTS]:
        groups = questions_of(table, shape, said)
        for node in [name for name in inside if last_name(name) in _NODES and name != parent]:
            own = [*zip(groups, map(_text, table.column(node)), strict=True)]
            above = [*zip(groups, map(_text, table.column(parent)), strict=True)]
            children = Counter(place for place, text in zip(above, table.column(parent), strict=True) if _text(text))
            if _are_trees({*own}, children, len({*groups})):
                kinds = [_INNER if place in children else _LEAF for place in own]
                return replace(shape, rows=with_column(shape.rows, NODE_TYPE, kinds))
    return shape


def _are_trees(nodes: set[_Node], children: Mapping[_Node, int], n_groups: int) -> bool:
    """Return whether nodes form trees.

    In nearly every question, all parents but at most one must be nodes themselves.  In many questions, some node must have several
    children.
    """
    missing = Counter(group for group, _ in {*children} - nodes)
    inner = {group for group, _ in nodes & {*children}}
    forked = {group for (group, _), n in children.items() if n > 1}
    whole = n_groups - sum(n > 1 for n in missing.values())
    return whole >= _NEARLY_ALL * n_groups and len(inner & forked) >= _OFTEN * n_groups


def _text(value: Any) -> str:
    return "" if value in (None, "", -1, "-1", "None", "null") else str(value).removesuffix(".0")


def refuse_inner_nodes(shape: Shape, where: Mapping[str, str]) -> Shape:
    """Raise if rows are all nodes of a search tree, and `where` does not select which of them are answers.

    If `where` selects the answers, rename the column with a node's depth, so that it is not read as the round.
    """
    kinds = Counter(row.values.get(NODE_TYPE) for row in shape.rows)
    if None in kinds:
        return shape
    if len(kinds) > 1 and NODE_TYPE not in where:
        raise UnsettledError(
            f"the log has search trees: {counted(kinds[_INNER], 'node is', 'nodes are')} a parent of others, and {kinds[_LEAF]:,} are leaves. "
            "Steps within a tree are no answers to the question",
            "where",
            {
                **_of_ends(shape.rows),
                _option(NODE_TYPE, _LEAF): ({NODE_TYPE: _LEAF}, "leaves are the answers, in the order of the log"),
                _option(NODE_TYPE, ANY): ({NODE_TYPE: ANY}, "every node is an answer, in the order of the log"),
            },
        )
    rows = [replace(row, values={_kept(name): value for name, value in row.values.items()}) for row in shape.rows]
    return replace(shape, rows=rows)


def _kept(name: str) -> str:
    return f"node_{name}" if last_name(name) in _DEPTHS else name


def _of_ends(rows: Sequence[Record]) -> dict[str, tuple[dict[str, str], str]]:
    """Return the option that selects the nodes that a column of the log marks as final; empty if no column does."""
    for name in [name for name in column_names(rows) if last_name(name) in _ENDS]:
        true = {str(row.values.get(name)) for row in rows} & {"True", "true", "1"}
        is_told = all(row.values.get(NODE_TYPE) == _LEAF for row in rows if str(row.values.get(name)) in true)
        if len(true) == 1 and is_told:
            value = true.pop().lower()
            return {_option(name, value): ({name: value}, f"nodes whose {name!r} is true are the answers, in order")}
    return {}


def _option(name: str, value: str) -> str:
    return f"--where {quoted(f'{name}={value}')}"
