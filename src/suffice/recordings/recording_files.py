"""The files of a recording while it is made: their places and names."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from suffice.common.files import check_file, is_url, place
from suffice.errors import DataError
from suffice.recordings.shards import Shard

JOURNAL_SUFFIX = ".journal"
"""The ending of the name of a journal, which is also the lock of its recording."""


@dataclass(frozen=True, slots=True)
class RecordingFiles:
    """The files of a recording while it is made.

    Attributes:
        whole: The recording as its user names it: a parquet file, or the folder of all shards.
        target: The file to write: `whole`, or the part of a shard in it.
        path: The same file while it is made, on this machine: another one than `target` if that is at a URL.
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
            journal_folder: For a URL: where file and journal are on this machine; None = the user's cache folder.

        Raises:
            DataError: A folder of journals is given, and the recording is on this machine; or the file is a folder.
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
        """The replies while the recording is not complete."""
        return journal_of(self.path)

    @property
    def uploaded_journal(self) -> Path | None:
        """The copy of the journal beside the file at a URL; None for a recording of this machine."""
        return journal_of(self.target) if is_url(self.target) else None

    @property
    def batches(self) -> Path:
        """The folder of batches that are awaited."""
        return self.path.with_name(f"{self.path.name}.batches")


def journal_of(path: Path) -> Path:
    """Return the journal of a recording's file, or of a part of it."""
    return path.with_name(f"{path.name}{JOURNAL_SUFFIX}")


def _cache_folder() -> Path:
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "suffice" / "journals"
