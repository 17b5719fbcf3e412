"""Make a recording for a URL on this machine, and copy its journal there so that another machine can resume it."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from suffice.common.files import download, reaching, upload
from suffice.errors import SufficeError
from suffice.recordings.journal import Journal
from suffice.recordings.recording_files import RecordingFiles

_COPY_EVERY_S = 60.0
"""The shortest time between two copies of a journal, in seconds."""

_PAUSE_SHARE = 9.0
"""A pause is this many times as long as the copy before it took."""

_LOG = logging.getLogger(__name__)


def file_in_work(files: RecordingFiles) -> HereFile:
    """Return the place at which a recording is made, before it moves to its target."""
    uploaded = files.uploaded_journal
    return HereFile() if uploaded is None else _UploadedFile(files, uploaded)


class HereFile:
    """A recording on this machine, with its journal beside it."""

    def take_up(self, journal: Journal) -> None:
        """Fetch a journal that another machine has left."""

    @asynccontextmanager
    async def copying(self, journal: Journal) -> AsyncIterator[None]:
        """Copy the journal at intervals, while the block runs."""
        del journal
        yield

    def put(self) -> None:
        """Put the finished file at its target."""

    def leave(self, journal: Journal) -> None:
        """Release the journal after a failure, for a rerun."""
        journal.release()

    def end(self, journal: Journal, *, complete: bool) -> None:
        """Remove the journal, or keep it for a rerun, which uses its replies."""
        if complete:
            journal.delete()
        else:
            journal.close()


class _UploadedFile(HereFile):
    """A recording for a URL; a copy of its journal is at the URL until it is complete."""

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
            await asyncio.wait(
                [copies]
            )  # cancelled, a running copy could arrive after the last one, or after its removal

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
        """Yield a copy of the journal, to be uploaded; None if it has nothing new."""
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
            self._path.parent.rmdir()  # if no other journal is there


async def _is_set_within(event: asyncio.Event, seconds: float) -> bool:
    with suppress(TimeoutError):
        await asyncio.wait_for(event.wait(), seconds)
    return event.is_set()
