"""Refusals of rows whose question is not named, with the options that may name it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from suffice.common.files import quoted
from suffice.common.tables import cut_list
from suffice.errors import DataError, SchemaError, UnsettledError
from suffice.importers.names import MOST_SPEAKERS, SPEAKERS, plain_name
from suffice.importers.records import Record

_MOST = 3


def unnamed_questions(path: Path, rows: Sequence[Record], used: Collection[str]) -> UnsettledError | SchemaError:
    """Return the error about rows without a column that names the question: the columns and lists that may be meant."""
    names = [*dict.fromkeys(name for row in rows for name in row.values)]
    values = {name: [row.values.get(name) for row in rows] for name in names}
    free = [name for name in names if name not in used]
    ids = sorted((name for name in free if _in_blocks(values[name])), key=lambda name: -len({*values[name]}))
    lists = [name for name in free if _are_texts(values[name])] if not ids else []
    there = f"{path}: no column is mapped to 'question_id'; there are: {cut_list(names)}"
    if not lists and not ids:
        return SchemaError(
            f"{there}. No value repeats, and no column lists several texts: with one answer for each question, there is nothing to stop. Log "
            "the answer of every round; or name the question of each row with --column question_id=COLUMN"
        )
    choices: dict[str, tuple[Any, str]] = {
        f"--column {quoted(f'rounds={name}')}": ({"rounds": name}, f"each item of {name!r} is the answer of a round")
        for name in lists[:_MOST]
    }
    choices |= {
        f"--column {quoted(f'question_id={name}')}": (
            {"question_id": name},
            f"rows with the same {name!r} are one question",
        )
        for name in ids[:_MOST]
    }
    return UnsettledError(there, "columns", choices)


def _are_texts(lists: Sequence[Any]) -> bool:
    """Return whether values are lists of texts, some with several."""
    known = [value for value in lists if value is not None]
    return all(isinstance(value, list) and all(isinstance(item, str) for item in value) for value in known) and any(
        len(value) > 1 for value in known
    )


def _in_blocks(values: Sequence[Any]) -> bool:
    """Return whether values repeat, and equal ones follow one another."""
    if not all(isinstance(value, str | int) for value in values):
        return False
    n = len({*values})
    return 1 < n < len(values) and 1 + sum(one != other for one, other in pairwise(values)) == n


def empty_ids(rows: Sequence[Record], ids: Sequence[str | None], theirs: str) -> UnsettledError | DataError:
    """Return the error about rows without the id of their question: the kinds of rows that have one, if the log says them."""
    row = next(row for row, name in zip(rows, ids, strict=True) if not name)
    message = f"{row.where}: {theirs} is empty; every row needs the id of its question"
    for name in dict.fromkeys(name for row in rows for name in row.values):
        if plain_name(name).rpartition(".")[2] not in SPEAKERS:
            continue
        with_id = {value for item, own in zip(rows, ids, strict=True) if own and (value := item.values.get(name))}
        without = {item.values.get(name) for item, own in zip(rows, ids, strict=True) if not own}
        kinds = sorted(value for value in with_id - without if isinstance(value, str))
        if 0 < len(kinds) <= MOST_SPEAKERS:
            return UnsettledError(
                f"{message}. Which rows have the answers?",
                "where",
                {
                    f"--where {quoted(f'{name}={kind}')}": ({name: kind}, f"those with {name} {kind!r}")
                    for kind in kinds[: 2 * _MOST]
                },
            )
    return DataError(message)
