"""Errors about rows without a question id or a round number, with filters that leave them out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from suffice.errors import DataError, UnsettledError
from suffice.importers.files.records import Record, column_names, empty_parameter
from suffice.importers.rows.outside import KINDS
from suffice.importers.shapes.shape import ANY
from suffice.importers.words.choices import Choices, in_options, of_columns, of_each, of_rows
from suffice.importers.words.names import MOST_SPEAKERS, SPEAKERS, plain_name

_SHOWN, _OFFERED, _FEW = 6, 3, 0.1


def of_kinds(rows: Sequence[Record], is_complete: Callable[[Sequence[Record]], bool]) -> Choices:
    """Return options that each keep the rows of one kind.

    A kind is offered if `is_complete` returns True for its rows.
    """
    result: Choices = {}
    for name in [name for name in column_names(rows) if plain_name(name).rpartition(".")[2] in KINDS]:
        kinds = Counter(kind for row in rows if isinstance(kind := row.values.get(name), str) and kind)
        if 1 < len(kinds) <= MOST_SPEAKERS:
            own = {kind: [row for row in rows if row.values.get(name) == kind] for kind in kinds}
            found = [kind for kind in kinds if is_complete(own[kind])]
            result |= of_each(name, found[:_OFFERED], f"rounds are rows whose {name!r} is {{!r}}")
    return result


def unnumbered(rows: Sequence[Record], usable: Sequence[bool], theirs: str) -> UnsettledError | DataError:
    """Return the error about a round that is not a number.

    If the column `theirs` is a number in some rows and empty in all others, the error offers to keep the numbered rows, or the rows
    of a kind.

    Args:
        rows: The rows.
        usable: For each row, True if its round number is valid.
        theirs: The column of round numbers.
    """
    row = rows[[*usable].index(False)]
    value, why = row.values.get(theirs), empty_parameter(row.where, theirs)
    message = f"{row.where}: round is {value!r:.80}; expected a whole number of at least 0{why}"
    are_empty = all(own or item.values.get(theirs) in (None, "") for own, item in zip(usable, rows, strict=True))
    if why or not are_empty or not any(usable):
        return DataError(message)
    numbered = {item.where for item, own in zip(rows, usable, strict=True) if own}
    choices = of_kinds(rows, lambda own: all(item.where in numbered for item in own))
    choices |= of_rows(theirs, ANY, f"rows without {theirs!r} are no rounds, as sums and notes: they are left out")
    choices |= in_options(of_columns({"round": ""}, "all rows of a question are rounds, in their order"))
    return UnsettledError(f"{message}. Which rows are rounds?", "options", choices)


def empty_ids(rows: Sequence[Record], ids: Sequence[str | None], read: Mapping[str, str]) -> UnsettledError | DataError:
    """Return the error about rows without a question id.

    It offers filters by speaker, or by a column that is empty in the same rows.  If these rows contain nothing else that is read,
    the filter is marked as certainly right.
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
            # a single row of a question cannot be all of its rounds
            kinds = [kind for kind in kinds if kind in several] or kinds
            question = f"{message}. Which rows have the answers?"
            return UnsettledError(question, "options", of_each(name, kinds[:_SHOWN], f"those with {name} {{!r}}"))
    # As in blank rows and totals of a spreadsheet; with merged cells, most rows lack an id.
    pairs = [*zip(rows, ids, strict=True)]
    columns = [
        name
        for name in ("question", theirs)
        if all((item.values.get(name) not in (None, "")) == bool(own) for item, own in pairs)
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
