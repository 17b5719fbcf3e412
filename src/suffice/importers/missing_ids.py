"""Rows without the id of their question: parts of another kind, sums and blank rows, or a gap in the log."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from suffice.errors import DataError, UnsettledError
from suffice.importers.choices import of_each, of_rows
from suffice.importers.names import MOST_SPEAKERS, SPEAKERS, plain_name
from suffice.importers.records import Record, column_names, empty_parameter
from suffice.importers.shape import ANY

_SHOWN, _FEW = 6, 0.1
"""The most kinds of rows that are offered, and the largest share of rows that are few."""


def empty_ids(rows: Sequence[Record], ids: Sequence[str | None], read: Mapping[str, str]) -> UnsettledError | DataError:
    """Return the error about rows without the id of their question: the kinds of rows that have one, if the log says them.

    Rows without any value that is read say nothing of a question.
    """
    theirs, answer = read["question_id"], read.get("answer", "")
    row = next(row for row, name in zip(rows, ids, strict=True) if not name)
    message = f"{row.where}: {theirs} is empty; every row needs the id of its question"
    if why := empty_parameter(row.where, theirs):
        return DataError(f"{message}{why}")
    for name in column_names(rows):
        if plain_name(name).rpartition(".")[2] not in SPEAKERS:
            continue
        said = [(bool(own), str(item.values.get(name) or "")) for item, own in zip(rows, ids, strict=True)]
        kinds = sorted(
            {kind for has_id, kind in said if has_id and kind} - {kind for has_id, kind in said if not has_id}
        )
        if 0 < len(kinds) <= MOST_SPEAKERS:
            counts = Counter((kind, own) for (_, kind), own in zip(said, ids, strict=True))
            several = {kind for (kind, _), n in counts.items() if n > 1}
            # one row of a question is not all of its rounds
            kinds = [kind for kind in kinds if kind in several] or kinds
            question = f"{message}. Which rows have the answers?"
            return UnsettledError(question, "options", of_each(name, kinds[:_SHOWN], f"those with {name} {{!r}}"))
    # As in blank rows and sums of a sheet; where cells are merged, such rows are most.
    pairs = [*zip(rows, ids, strict=True)]
    columns = [
        name for name in ("question", theirs) if all(bool(item.values.get(name)) == bool(own) for item, own in pairs)
    ]
    column = next(iter(columns), None)
    are_few = sum(not name for name in ids) <= _FEW * len(ids)
    if column is not None and (
        are_few or (answer and not any(item.values.get(answer) for item, own in pairs if not own))
    ):
        left_out = f"they are left out, as sums and blank rows: those with {column!r} remain"
        choices = of_rows(column, ANY, left_out)
        are_empty = answer and all(
            item.values.get(name) is None
            for item, own in pairs
            if not own
            for ours, name in read.items()
            if ours != "round"
        )
        sure = next(iter(choices)) if are_empty else ""
        return UnsettledError(f"{message}. Are such rows no answers?", "options", choices, sure)
    return DataError(message)
