"""Read a log that is watched repeatedly: only its new parts, and a state file that an earlier look saved.

The state file lies in the folder of the log.  It combines the sealed parts into one, like a compaction, but keeps only
one row of each request that was not audited. A watch needs all rounds of audited requests, but only a few numbers of
the others.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

import numpy as np
import pyarrow as pa

from suffice._version import __version__
from suffice.common.files import is_url, place
from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Floats
from suffice.policy.session import Policy
from suffice.recordings.merging import LEFT_OUT, MERGED
from suffice.recordings.opened import OpenFile, read_again, write_tables
from suffice.recordings.parts import OpenFolder, OpenPart, joined_parts, opened_parts, part_paths
from suffice.recordings.recording import Recording, read_recording
from suffice.recordings.recording_files import is_sharded
from suffice.recordings.schema import REPLY_COLUMNS, column_kind
from suffice.verdicts.watches.drift import KEPT, habits_of
from suffice.verdicts.watches.requests import Requests, numbers_of

_FEWEST_ROWS = 10_000
"""Fewest rows of sealed parts for which a state is written."""

_NEW_SHARE = 0.1
"""The state is written again once there are this many new rows for each row in it."""

_EMPTIED = frozenset({"signal", "metric", "cost", "happened"})
_READ_OF_ALL = frozenset({"question", *REPLY_COLUMNS})


def read_log(path: str | Path, policy: Policy, *, fewest: int = _FEWEST_ROWS) -> tuple[Recording, list[str]]:
    """Read a log in order to watch one policy; also return notes.

    Only the parts that are new since an earlier look are read.

    `watch` gives the same verdict on the result as on the whole log.  The state of a folder of parts is its file
    `.watched-DIGEST`; logs of other forms are always read whole.  If an earlier part was changed or removed, or the
    state is damaged, the whole log is read, and a note says so.

    Args:
        path: The log.
        policy: The policy that is watched.
        fewest: The smallest number of new rows in sealed parts for which the state is written.

    Raises:
        DataError: The log is missing, or its rows contradict each other.
        SchemaError: A part is damaged.
    """
    folder = place(path)
    if is_url(folder) or not folder.is_dir() or is_sharded(folder):
        return read_recording(path), []
    return read_again(lambda: _Look(folder, policy, fewest).read())


class _Look:
    """A single reading of a folder of parts."""

    def __init__(self, folder: Path, policy: Policy, fewest: int) -> None:
        self._folder, self._policy, self._fewest = folder, policy, fewest
        self._path = folder / f".watched-{policy.digest}"
        self._stamps = _stamps(part_paths(folder))
        self._in_state: set[str] = set()
        self._notes: list[str] = []

    def read(self) -> tuple[Recording, list[str]]:
        """Read the folder, using the state file if it exists and still fits the parts."""
        if not self._path.is_file():
            return self._read(None), self._notes
        try:
            with OpenFile(self._path) as state:
                return self._read(state), self._notes
        except SchemaError as error:
            self._in_state = set()
            self._notes = [f"the whole log was read, and not only what is new: {error}"]
            return self._read(None), self._notes

    def _read(self, state: OpenFile | None) -> Recording:
        with ExitStack() as stack:
            parts = [stack.enter_context(part) for part in self._new_parts(state)]
            known: list[OpenFile] = [] if state is None else [state]
            sealed = [part for part in parts if part.is_final and part.path.name in self._stamps]
            enough = max(self._fewest, _NEW_SHARE * sum(part.n_rows for part in known))
            if sum(part.n_rows for part in sealed) < enough:
                return _read_parts(self._folder, [*known, *parts])
            recording = reduced(_read_parts(self._folder, [*known, *sealed]), self._policy)
            self._in_state |= {part.path.name for part in sealed}
            if len(sealed) == len(parts):
                self._keep(recording)
                return recording
            if not self._keep(recording):
                return _read_parts(self._folder, [*known, *parts])
            new_state = stack.enter_context(OpenFile(self._path))
            return _read_parts(self._folder, [new_state, *(part for part in parts if part not in sealed)])

    def _new_parts(self, state: OpenFile | None) -> list[OpenPart]:
        """Open the parts that the state does not contain."""
        if state is None:
            return opened_parts(self._folder, keep=True)
        if state.metadata.get("suffice") != __version__:
            raise SchemaError("an earlier look was of another release")
        known = {entry["file"]: entry.get("stamp") for entry in state.metadata.get(MERGED) or ()}
        parts = opened_parts(self._folder, known, keep=True)
        joined = {part: joined_parts(part) for part in parts}
        gone = known.keys() - self._stamps.keys() - set().union(*joined.values())
        changed = {name for name in known.keys() & self._stamps.keys() if known[name] != self._stamps[name]}
        if gone | changed:
            raise SchemaError(f"{min(gone | changed)!r} was changed or removed since an earlier look")
        # A part may have been compacted from known and new parts; its known runs then still count only once.
        new = [part for part in parts if not joined[part] or not joined[part] <= known.keys()]
        self._in_state = {*known, *(part.path.name for part in parts if part not in new)}
        if any(name not in state.schema.names for part in new for name in part.schema.names):
            raise SchemaError("new rounds have columns that earlier ones lack")
        return new

    def _keep(self, recording: Recording) -> bool:
        """Write the state; return True if it could be written."""
        parts = [{"file": name, "stamp": self._stamps[name]} for name in sorted(self._in_state & self._stamps.keys())]
        metadata = {**recording.metadata, MERGED: parts}
        try:
            write_tables(self._path, recording.table.schema, [recording.table], metadata, private=True)
        except DataError as error:
            self._notes.append(f"the next look reads the whole log again: {error}")
            return False
        return True


def _stamps(paths: Sequence[Path]) -> dict[str, list[int]]:
    """Return the size and the time of the last change of each file that exists."""
    stamps = {}
    for path in paths:
        with suppress(FileNotFoundError):  # the part has no file, or is being compacted at this moment
            status = path.stat()
            stamps[path.name] = [status.st_size, status.st_mtime_ns]
    return stamps


def _read_parts(folder: Path, parts: Sequence[OpenFile]) -> Recording:
    opened = OpenFolder(folder, parts)
    return Recording(opened.table(), opened.metadata)


def reduced(log: Recording, policy: Policy) -> Recording:
    """Drop the data that no watch needs from requests without an audit.

    This data is the later rounds, and most columns of the first round.

    The number of rounds, and the numbers that are compared for drift, become columns of the first round's row. A log
    without audits stays whole, because the choice of the metric then depends on all answers.
    """
    try:
        requests = Requests.of(log, policy)
    except DataError:  # the watch reports this error
        return log
    if not requests.complete.any():
        return log
    places = {name: place for place, name in enumerate(log.question_ids)}
    of_requests = np.array([places[name] for name in requests.ids])
    leave = np.asarray(log.per_question("policy_digest", []) != policy.digest, dtype=np.bool_)
    leave[of_requests[~requests.drawn]] = True
    leave &= np.asarray(log.per_question("stop_reason", []) != "failed", dtype=np.bool_)
    is_first = log.table.column("round").to_numpy() == log.index[0]
    rows = np.flatnonzero(is_first | ~leave[log.row_question])
    of_rows = log.row_question[rows]
    shortened = leave[of_rows]

    def column(values: Floats) -> pa.Array:
        return pa.array(values[of_rows], pa.float64(), mask=~shortened)

    table = log.table.take(pa.array(rows)).drop_columns([n for n in log.table.column_names if n.startswith(KEPT)])
    nothing = pa.array(np.arange(len(rows)), mask=shortened)
    for i, field in enumerate(table.schema):
        if field.name in REPLY_COLUMNS:
            replies = [next(filter(None, values), None) for values in log.objects(field.name).tolist()]
            firsts = [
                replies[place] if cut else own
                for place, cut, own in zip(of_rows, shortened, table[i].to_pylist(), strict=True)
            ]
            table = table.set_column(i, field, pa.array(firsts, field.type))
        elif column_kind(field.name, field) in _EMPTIED and field.name not in _READ_OF_ALL:
            table = table.set_column(i, field, table[i].take(nothing))
    left_out = numbers_of(log, LEFT_OUT)
    added = {LEFT_OUT: np.where(left_out > 0, left_out, log.seen.sum(axis=1))}
    for name, values in habits_of(requests).values.items():
        added[f"{KEPT}{name}"] = np.full(len(leave), np.nan)
        added[f"{KEPT}{name}"][of_requests] = values
    if LEFT_OUT in table.column_names:
        table = table.drop_columns([LEFT_OUT])
    for name, values in added.items():
        table = table.append_column(pa.field(name, pa.float64(), metadata={"kind": "provenance"}), column(values))
    return Recording(table, log.metadata)
