"""Answers that are objects, such as a booking with room and nights.

The fields of such an object become one JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from functools import partial
from typing import Any

from suffice.importers.files.records import Record, column_names
from suffice.importers.shapes.shape import Shape, with_derived
from suffice.importers.words.object_fields import fields_in, paths_of
from suffice.loops.retrieval.fields import literal

_HEAD = 200
"""Rows that show the fields of an answer."""


def with_whole_objects(shape: Shape, columns: Mapping[str, str]) -> Shape:
    """Add a column with JSON text for each object that may be the answer or the gold answer.

    Such an object is named by the user, or has the same fields as the answers.

    Args:
        shape: The rows; fields of objects are columns with dotted names.
        columns: The user's columns, by this library's names.
    """
    names = column_names(shape.rows)
    objects = fields_in(names)
    wanted = [own for ours in ("answer", "golds") if (own := columns.get(ours, "")) in objects and own not in names]
    answer = columns.get("answer", "answer" if "answer" in shape.columns else "")
    said = objects.get(answer) or _fields_of_texts(shape.rows, answer)
    inside = {
        own for own, fields in objects.items() if said == fields and shape.outer.issuperset(paths_of(own, fields))
    }
    for own in dict.fromkeys([*wanted, *(sorted(inside - {*names}) if "golds" not in columns else [])]):
        paths = paths_of(own, objects[own])
        shape = with_derived(
            shape, min(paths), own, partial(_as_text, above=own, paths=paths), f"all fields of {own!r}"
        )
    return shape


def _fields_of_texts(rows: Collection[Record], name: str) -> frozenset[str]:
    """Return the field names of the JSON objects in a text column; empty if the column has other texts."""
    texts = (
        [text for row in [*rows][:_HEAD] if isinstance(text := row.values.get(name), str) and text.strip()]
        if name
        else []
    )
    read = [literal(text) if text.lstrip()[:1] == "{" else None for text in texts]
    objects = [own for own in read if isinstance(own, dict)]
    return frozenset(field for own in objects for field in own) if 2 * len(objects) > len(texts) else frozenset()


def _as_text(row: Record, above: str, paths: Collection[str]) -> str | None:
    """Return the fields of an object as JSON; None if the row has none."""
    own: dict[str, Any] = {name.removeprefix(f"{above}."): row.values[name] for name in row.values if name in paths}
    return (
        json.dumps(own, ensure_ascii=False, default=str) if any(value is not None for value in own.values()) else None
    )
