"""Changes of the served model: new model ids and fingerprints in replies, with the request where each first appeared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suffice.common.tables import Column, Table
from suffice.recordings.schema import REPLY_COLUMNS
from suffice.verdicts.watches.requests import Requests, moment

MODEL = REPLY_COLUMNS[0]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyChange:
    """A new value (model id or fingerprint) that no earlier reply contained.

    Attributes:
        place: Position of the first request with the new value.
        time: Time of that request, seconds since 1970; NaN where unknown.
    """

    column: str
    value: str
    before: str
    place: int
    request: str
    time: float
    n: int


def changes_of(requests: Requests) -> list[ReplyChange]:
    """Return every model id and every fingerprint except the first of each kind, in order of first appearance.

    If a request has several replies, only the first reply with a value counts.
    """
    changes = []
    for column in REPLY_COLUMNS:
        if column not in requests.recording.table.column_names:
            continue
        values = [next((v for v in row if v is not None), None) for row in requests.recording.objects(column).tolist()]
        before, known = None, dict[str, int]()
        for value in values:
            if value is not None:
                known[value] = known.get(value, 0) + 1
        seen: set[str] = set()
        for place, value in enumerate(values):
            if value is None:
                continue
            if value not in seen and before is not None:
                changes.append(
                    ReplyChange(
                        column=column,
                        value=str(value),
                        before=str(before),
                        place=place,
                        request=requests.ids[place],
                        time=float(requests.times[place]),
                        n=known[value],
                    )
                )
            seen.add(value)
            before = value
    return sorted(changes, key=lambda change: change.place)


def changes_table(changes: Sequence[ReplyChange]) -> Table:
    """Return the changes as a table."""
    return Table.of(
        "New model ids and fingerprints",
        changes,
        {
            Column("what"): "column",
            Column("before"): "before",
            Column("new"): "value",
            Column("since request"): "request",
            Column("time"): lambda change: moment(change.time),
            Column("requests", ",.0f"): "n",
        },
    )
