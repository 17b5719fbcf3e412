"""The column that a user names as that of runs: are its values other loops, such as variants of a prompt, or repeats of one loop?"""

from __future__ import annotations

import re
from collections.abc import Iterable

import pyarrow as pa

from suffice.importers.names import RUNS, last_name
from suffice.recordings.runs import LOOP_NAMES, with_loops

_MOST = 20
"""With more values, a column names runs and no loops."""

_NEARLY_ALL = 0.8
_SEVERAL = 2
_NUMBER = re.compile(r"[\d.\s_-]+")


def mark_loops(schema: pa.Schema, name: str, tables: Iterable[pa.Table]) -> pa.Schema:
    """Return a recording's schema that says that a column of runs tells loops apart, if each has a few names that questions share.

    Names that differ in a number alone, such as seeds, are repeats of one loop, unless the column is not called like runs.

    Args:
        schema: The schema.
        name: The column that the user named.
        tables: The recording part by part, at least its clusters and the column.
    """
    known = next((own for own in (name, f"imported_{name}") if own in schema.names), None)
    if not name or known is None or not pa.types.is_string(schema.field(known).type):
        return schema
    questions: dict[str, set[str]] = {}
    for table in tables:
        if known in table.column_names:
            for question, value in zip(
                table.column("cluster").to_pylist(), table.column(known).to_pylist(), strict=True
            ):
                questions.setdefault(question, set()).add(value)
    values = set().union(*questions.values()) - {None}
    words = {_NUMBER.sub("", value) for value in values}
    are_repeats = words <= {""} or (len(words) == 1 and last_name(name) in {*RUNS} - LOOP_NAMES)
    shared = sum(len(own - {None}) >= _SEVERAL for own in questions.values())
    if are_repeats or len(values) > _MOST or shared < _NEARLY_ALL * len(questions):
        return schema
    return with_loops(schema, known)
