"""Refuse recordings of several loops; only labels and identities of a stored recording are read."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from suffice.recordings.opened import read_again
from suffice.recordings.recorded_columns import RecordedColumns
from suffice.recordings.recording import Recording, open_recording
from suffice.recordings.runs import loop_labels, refuse_several_loops


def read_labels(path: str | Path) -> Recording | None:
    """Return the questions and labels of a stored recording; None if the recording is certainly of one loop.

    It is certain if no label that distinguishes loops has two values.
    """
    return read_again(lambda: _labels(path))


def _labels(path: str | Path) -> Recording | None:
    import pyarrow as pa

    with open_recording(path) as opened:
        names = loop_labels(opened.schema)
        distinct: dict[str, set[Any]] = {name: set() for name in names}
        for table in opened.tables(columns=names) if names else ():
            for name in names:
                distinct[name].update(table.column(name).unique().to_pylist())
        if all(len(values - {None}) < 2 for values in distinct.values()):  # noqa: PLR2004
            return None
        columns = [name for name in ("question_id", "round", "cluster", *names) if name in opened.schema.names]
        return Recording(pa.concat_tables(opened.tables(columns=columns)), opened.metadata)


def refuse_loops_of(*sources: RecordedColumns | str | Path | None, apart: Collection[str] = ()) -> None:
    """Raise if any of these recordings, in memory or stored, mixes several loops; see `refuse_several_loops`."""
    for source in sources:
        # The path of a bucket is neither a `str` nor a `Path`.
        labels: Any = source if source is None or hasattr(source, "table") else read_labels(source)
        if labels is not None:
            refuse_several_loops(labels, apart=apart)
