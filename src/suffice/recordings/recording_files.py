"""The files of a recording in progress: their paths, and copies of the journal at a URL.

A recording for a URL is written on this machine. Its journal is copied to the URL, so that another machine can resume
the recording.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from suffice.common.files import check_file, download, is_url, place, reaching, upload
from suffice.errors import DataError, SufficeError
from suffice.recordings.journal import Journal
from suffice.recordings.shards import MANIFEST_FILE, Shard, shards_in

JOURNAL_SUFFIX = ".journal"
"""The ending of the name of a journal, which is also the lock of its recording."""

_COPY_EVERY_S = 60.0
"""The shortest time between two copies of a journal, in seconds."""

_PAUSE_SHARE = 9.0
"""A pause is this many times as long as the copy before it took."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RecordingFiles:
    """The files of a recording in progress.

    Attributes:
        whole: The path that the user gave: a parquet file, or the folder of all shards.
        target: The final file: `whole`, or the part of a shard in the folder `whole`.
        path: The file in progress, on this machine; it differs from `target` if `target` is at a URL.
    """

    whole: Path
    target: Path
    path: Path

    @classmethod
    def at(cls, path: str | Path, shard: Shard | None = None, journal_folder: str | Path | None = None) -> Self:
        """Return the files of a recording.

        Args:
            path: The parquet file; with a shard, the folder.
            shard: The shard whose part is recorded.
            journal_folder: For a URL: the local folder of the file and its journal; None = the user's cache folder.

        Raises:
            DataError: A folder of journals is given although the recording is on this machine, or the file is a folder.
        """
        whole = check_file(path) if shard is None else place(path)
        target = whole if shard is None else whole / shard.part_name
        if is_url(target):
            folder = _cache_folder() if journal_folder is None else Path(journal_folder)
            here = folder / hashlib.sha256(str(target.parent).encode()).hexdigest()[:16] / target.name
            return cls(whole, target, here)
        if journal_folder is not None:
            raise DataError(
                f"the journal of {str(target)!r} is beside it: leave out the folder of journals, which is for URLs"
            )
        return cls(whole, target, target)

    @property
    def journal(self) -> Path:
        """The journal, which holds the replies of the incomplete recording."""
        return journal_of(self.path)

    @property
    def uploaded_journal(self) -> Path | None:
        """The copy of the journal next to the file at a URL; None for a local recording."""
        return journal_of(self.target) if is_url(self.target) else None

    @property
    def batches(self) -> Path:
        """The folder of the batches whose results are awaited."""
        return self.path.with_name(f"{self.path.name}.batches")


def journal_of(path: Path) -> Path:
    """Return the path of the journal of a recording's file or part."""
    return path.with_name(f"{path.name}{JOURNAL_SUFFIX}")


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "suffice" / "journals"


def file_in_work(files: RecordingFiles) -> HereFile:
    """Return the recording in progress, which moves to its target when it is complete."""
    uploaded = files.uploaded_journal
    return HereFile() if uploaded is None else _UploadedFile(files, uploaded)


class HereFile:
    """A recording in progress on this machine, with its journal beside it."""

    def take_up(self, journal: Journal) -> None:
        """Fetch a journal that another machine has left."""

    @asynccontextmanager
    async def copying(self, journal: Journal) -> AsyncIterator[None]:
        """Copy the journal at intervals while the ``async with`` block runs."""
        del journal
        yield

    def put(self) -> None:
        """Move the finished file to its target."""

    def leave(self, journal: Journal) -> None:
        """Release the journal after a failure, so that a rerun can use it."""
        journal.release()

    def end(self, journal: Journal, *, complete: bool) -> None:
        """Remove the journal, or keep it for a rerun, which reuses its replies."""
        if complete:
            journal.delete()
        else:
            journal.close()


class _UploadedFile(HereFile):
    """A recording in progress for a URL; its journal is copied to the URL until the recording is complete."""

    def __init__(self, files: RecordingFiles, journal: Path) -> None:
        self._path, self._target, self._journal = files.path, files.target, journal
        self._changes = 0

    def take_up(self, journal: Journal) -> None:
        self._path.unlink(missing_ok=True)
        download(self._target, self._path)
        with tempfile.TemporaryDirectory(prefix="suffice-") as folder:
            other = Path(folder, self._journal.name)
            if download(self._journal, other):
                journal.absorb(other)
        self._changes = journal.changes

    @asynccontextmanager
    async def copying(self, journal: Journal) -> AsyncIterator[None]:
        ended = asyncio.Event()
        copies = asyncio.create_task(self._copy_regularly(journal, ended))
        try:
            yield
        finally:
            ended.set()
            await asyncio.wait([copies])  # if cancelled, a running copy could arrive after the last one or its removal

    async def _copy_regularly(self, journal: Journal, ended: asyncio.Event) -> None:
        pause = _COPY_EVERY_S
        while not await _is_set_within(ended, pause):
            began = time.monotonic()
            try:
                with self._copied(journal) as copy:
                    if copy is not None:
                        await asyncio.to_thread(upload, copy, self._journal)
            except SufficeError as error:
                _LOG.warning("the journal is only on this machine for now: %s", error)
            pause = max(_COPY_EVERY_S, _PAUSE_SHARE * (time.monotonic() - began))

    def _copy(self, journal: Journal) -> None:
        with self._copied(journal) as copy:
            if copy is not None:
                upload(copy, self._journal)

    @contextmanager
    def _copied(self, journal: Journal) -> Iterator[Path | None]:
        """Yield the path of a copy of the journal to upload; None if the journal has nothing new."""
        changes = journal.changes
        if changes == self._changes:
            yield None
            return
        with tempfile.TemporaryDirectory(prefix="suffice-") as folder:
            path = Path(folder, self._journal.name)
            journal.copy_to(path)
            yield path
        self._changes = changes

    def put(self) -> None:
        upload(self._path, self._target)

    def leave(self, journal: Journal) -> None:
        with suppress(SufficeError):  # the earlier failure is the one to report
            self._copy(journal)
        super().leave(journal)

    def end(self, journal: Journal, *, complete: bool) -> None:
        if complete:
            with reaching(self._target), suppress(FileNotFoundError):
                self._journal.unlink()
        else:
            self._copy(journal)
        super().end(journal, complete=complete)
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._path.parent.rmdir()  # if it contains no other journal


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()


def is_sharded(folder: Path) -> bool:
    """Return True if a folder contains shards, complete or not."""
    return (folder / MANIFEST_FILE).is_file() or bool(shards_in(folder, JOURNAL_SUFFIX) or shards_in(folder))
