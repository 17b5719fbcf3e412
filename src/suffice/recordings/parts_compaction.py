"""Join many small parts of a folder into a few large parts, while processes append to parts that are not joined."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from suffice.common.files import PRIVATE, disk_fault, quoted
from suffice.common.results import Result
from suffice.common.tables import Table, facts_table
from suffice.errors import BusyError, DataError, NotFoundError
from suffice.recordings.file_locks import try_lock
from suffice.recordings.merging import MERGED
from suffice.recordings.opened import OpenFile, write_tables
from suffice.recordings.parts import OpenFolder, joined_parts, open_part, part_paths, replaced_parts
from suffice.recordings.parts_writing import IDLE_S, move_ended, new_part, writer_ended
from suffice.recordings.recording_files import is_sharded
from suffice.recordings.round_journal import RoundJournal, SealedError

_LOCK = ".compaction"
_MERGED_SUFFIX = "-merged.parquet"
_LARGE_ROWS = 1_000_000
_JOINED_ROWS = 1 << 16
_MANY_PARTS = 100
_KEPT_ROWS = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactSummary(Result):
    """Summary of a compaction: the parts of a folder before and after.

    Attributes:
        path: The folder.
        before: Number of parts before the compaction.
        after: Number of parts after the compaction.
        open: Number of parts with a journal, because a process writes to the part, or because a process that ended left
            questions that have not ended.
    """

    path: Path
    before: int
    after: int
    open: int

    def table(self) -> Table:
        """Return the numbers of parts as one table."""
        facts = {"parts before": f"{self.before:,}", "parts now": f"{self.after:,}", "of which open": f"{self.open:,}"}
        return facts_table("Compacted recording", facts)


def compact_recording(folder: str | Path, *, idle_s: float = IDLE_S, large_rows: int = _LARGE_ROWS) -> CompactSummary:
    """Join the parts of a folder to which no process writes any more; other processes may append and read meanwhile.

    A part has ended if its process sealed it.  If a part's process was killed on this machine, its ended questions are
    moved into the part, and its unfinished questions wait in the journal for `Recorder.resume`. A journal of any
    machine is sealed after `idle_s` seconds without a write; its open questions then count as failed for good.

    If the compaction is killed at any moment, nothing is lost or counted twice, because a joined part names the parts
    that it replaces.

    Args:
        folder: The recording.
        idle_s: Seconds without a write after which a journal counts as ended.
        large_rows: Parts with at least this many rows stay unchanged.

    Raises:
        ConfigMismatchError: Parts were recorded with different settings.
        DataError: Another process compacts the folder, or the disk is full.
        NotFoundError: There are no parts.
        SchemaError: A part is damaged.
    """
    folder = Path(folder)
    if is_sharded(folder):
        raise DataError(
            f"{str(folder)!r} is a recording in shards, whose parts stay as they are: `suffice merge {quoted(folder)} -o FILE` "
            "writes it as one file"
        )
    before = part_paths(folder)
    if not before:
        raise NotFoundError(f"{str(folder)!r} is not a folder of parts: there is no part-*.parquet in it")
    with _alone(folder):
        for leftover in folder.glob(f".part-*{_MERGED_SUFFIX}.*.tmp"):
            leftover.unlink(missing_ok=True)
        for part in before:
            _seal_ended(part, idle_s)
        sealed = [part for part in part_paths(folder) if part.is_file() and not _has_journal(part)]
        _join_all(folder, sealed, large_rows)
    after = part_paths(folder)
    return CompactSummary(path=folder, before=len(before), after=len(after), open=sum(map(_has_journal, after)))


def has_many_parts(folder: Path) -> bool:
    """Return True if a folder has so many small parts of this user that its writers should join them."""
    return sum(not part.name.endswith(_MERGED_SUFFIX) for part in _own_parts(folder)) > _MANY_PARTS


def join_many_parts(folder: Path) -> None:
    """Join the private parts of this user in a folder; the joined parts are private, too.

    Only their user can read private parts. This function may run while processes write to the folder. Unlike
    `compact_recording`, it leaves journals alone, and it joins fewer rows at once, because it runs more often. It does
    nothing while a different process compacts the folder.

    Raises:
        ConfigMismatchError: Parts were recorded with different settings.
        DataError: The disk is full.
        SchemaError: A part is damaged.
    """
    with suppress(BusyError), _alone(folder):
        if has_many_parts(folder):
            _join_all(folder, _own_parts(folder), _KEPT_ROWS)


def _own_parts(folder: Path) -> list[Path]:
    """Return the sealed parts that only this user can read.

    Such parts are joined only with each other: the joined part is private, so parts that several users can read would
    become unreadable for these users.
    """
    own: list[Path] = []
    if not hasattr(os, "geteuid") or is_sharded(
        folder
    ):  # systems without users (Windows) cannot remove a file that is being read
        return own
    for part in part_paths(folder):
        with suppress(FileNotFoundError):  # it has only a journal, or is just being compacted
            status = part.lstat()
            is_own = (status.st_uid, status.st_mode) == (os.geteuid(), stat.S_IFREG | PRIVATE)
            if is_own and not _has_journal(part):
                own.append(part)
    return own


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock of a folder's compaction during the block; the lock also ends if the process ends."""
    path = folder / _LOCK
    try:
        with path.open("ab") as file:
            if not try_lock(file):
                raise BusyError(
                    f"another process compacts this folder: let it end, then run the command again ({str(path)!r})"
                )
            yield
    except OSError as error:
        raise disk_fault(path, error) from error


def _has_journal(part: Path) -> bool:
    return RoundJournal(part, is_part=True).path.exists()


def _seal_ended(part: Path, idle_s: float) -> None:
    """Move the questions of an ended process into the file of its part; remove the journal if it is then empty."""
    journal = RoundJournal(part, is_part=True)
    with suppress(FileNotFoundError, SealedError):  # the part's own process sealed it meanwhile
        is_idle = time.time() - journal.path.stat().st_mtime >= idle_s
        if is_idle or writer_ended(part):
            move_ended(part, journal, unfinished=is_idle)
            journal.seal()


def _join_all(folder: Path, paths: Sequence[Path], large_rows: int) -> None:
    for group in _groups(_without_replaced(paths), large_rows):
        _join(folder, group)


def _without_replaced(paths: Sequence[Path]) -> list[Path]:
    """Return the parts that count.

    Parts that an earlier compaction had already joined when it was killed are removed.
    """
    parts = [open_part(path) for path in paths]
    replaced = replaced_parts(parts)
    for part in parts:
        part.close()
        if part.path.name in replaced:
            part.path.unlink(missing_ok=True)
    return [part.path for part in parts if part.path.name not in replaced]


def _groups(paths: Sequence[Path], large_rows: int) -> Iterator[list[Path]]:
    """Yield groups of consecutive parts to join, of about `large_rows` rows."""
    group: list[Path] = []
    total = 0
    for path in paths:
        with OpenFile(path) as part:
            n_rows = part.n_rows
        if n_rows >= large_rows:
            continue
        group.append(path)
        total += n_rows
        if total >= large_rows:
            yield group
            group, total = [], 0
    yield group


def _gathered(tables: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield the rows of small tables as few large tables.

    Each table becomes a row group of the file, and each row group takes time to read.
    """
    some: list[pa.Table] = []
    for table in tables:
        some.append(table)
        if sum(item.num_rows for item in some) >= _JOINED_ROWS:
            yield pa.concat_tables(some)
            some = []
    if some:
        yield pa.concat_tables(some)


def _join(folder: Path, paths: Sequence[Path]) -> None:
    """Write parts as one file, then remove them."""
    if len(paths) < 2:  # noqa: PLR2004 - two are the fewest
        return
    name = new_part(folder).name.split("-", 2)
    moment = paths[0].stem.split("-")[1]
    out = folder / f"part-{moment}-{name[2].removesuffix('.parquet')}{_MERGED_SUFFIX}"
    with OpenFolder(folder, [open_part(path) for path in paths]) as opened:
        # With the parts that these replaced, so that a reader of the first parts finds them after any number of compactions.
        names = {path.name for path in paths}.union(*map(joined_parts, opened.parts))
        metadata = {**opened.metadata, MERGED: [{"file": name} for name in sorted(names)]}
        write_tables(out, opened.schema, _gathered(opened.tables(_JOINED_ROWS)), metadata, private=True)
    for path in paths:
        path.unlink(missing_ok=True)
