"""Note that only one field of answers is judged, if the log has several fields, each with its own gold answer."""

from __future__ import annotations

from os.path import commonprefix

from suffice.common.tables import cut_list
from suffice.importers.checks.alarm import Read, used_columns
from suffice.importers.words.names import in_log

_LEAST = 3
"""The fewest letters of a name that several columns have in common."""


def other_fields_note(read: Read) -> list[str]:
    """Return a note on the fields that are not judged.

    Their columns and gold answers are named like those of the judged field: `city` and `city_gold` beside `date` and `date_gold`.
    """
    answer, golds = read.columns.get("answer", "").partition(" ")[0], read.named("golds")
    field = commonprefix([answer, golds]).rstrip("_-. ")  # noqa: RUF071 - not of paths
    end = golds.removeprefix(field)
    columns, used = read.facts.own.columns, used_columns(read)
    if not read.is_table or "golds" not in read.columns or len(field) < _LEAST or len(end) < _LEAST:
        return []
    free = {in_log(name): own for name, own in columns.items() if name not in used}
    others = [name.removesuffix(end) for name, own in free.items() if name.endswith(end) and not own.varying]
    others = [
        other
        for other in others
        if any(name.startswith(other) and not name.endswith(end) and own.varying for name, own in free.items())
    ]
    if not others:
        return []
    note = (
        f"only the field {field!r} is judged, and not {cut_list(map(repr, others))}: to judge them together, write the fields of each round as one "
        "JSON object, and the gold answers likewise"
    )
    return [note]
