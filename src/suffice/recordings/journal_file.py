"""The file of a journal: records that are only ever appended, each a line of text with its length and its checksum.

The first line names the format. Every further line is one record: the length of its value in bytes and a checksum, eight
hexadecimal digits each, then the value as JSON::

    suffice journal 1
    0000001c 8f3a2b10 [["metadata",{"config":{}}]]

Each checksum continues the checksum of the previous record, so a missing or moved record is detected like a changed
one. JSON text contains neither line breaks nor zero bytes. So these cases can be told apart:

- Zero bytes from a record to the end of the file: this space was reserved for further records, so that a sync need not store a new size.
  If damage zeroes all bytes after a record, the file also reads as ended there, without an error.
- A last record that is cut off, or replaced by zero bytes in whole or in part: a torn tail. The process was killed, the power failed, or
  the file was copied while the record was written. The write was never confirmed, so the tail is removed and the log mentions it.
- A whole record with a wrong checksum or length: damage. An error names the file and the byte.
- Any beginning of the file: a valid journal of the commits up to there, so the file may be copied at any time.
"""

from __future__ import annotations

import io
import json
import logging
import os
import re
import sqlite3
import sys
import time
import zlib
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import IO, Any, NamedTuple, Self
from weakref import WeakSet

from suffice.common.files import PRIVATE, disk_fault, is_url, make_folder, replacing, sync_folder
from suffice.common.json_text import load_json
from suffice.errors import BusyError, SchemaError
from suffice.recordings.file_locks import try_lock, unlock

_log = logging.getLogger(__name__)

_HEADER = b"suffice journal 1\n"
_PREFIX = re.compile(rb"([0-9a-f]{8}) ([0-9a-f]{8}) ")
_LENGTH_SIZE, _PREFIX_SIZE = 8, 18
_LARGEST_PREFIX = b"ffffffff ffffffff "
_OLD_HEADER = b"SQLite format 3\0"
_FIRST_PAUSE_S = 0.0005
_LONGEST_PAUSE_S = 0.02
_RESERVED = 1 << 16
_GROWTH = 8
_SECTOR = 512
_LARGEST_RESERVE = 1 << 22
_sync_file = getattr(os, "fdatasync", os.fsync)

_locked: WeakSet[io.FileIO] = WeakSet()
"""The files on which this process has a lock."""


def _close_in_child() -> None:
    """Close inherited files in a forked process; otherwise this process would keep the parent's locks after its end."""
    for file in [*_locked]:
        file.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_child)


class Place(NamedTuple):
    """The position at which a record ends.

    Attributes:
        offset: The first byte after the record.
        seal: The record's checksum, 0 for the first line.
        start: The record's first byte.
    """

    offset: int
    seal: int
    start: int


BEGINNING = Place(0, 0, 0)
"""The place before the first line."""


def encoded(value: Any, seal: int = 0) -> tuple[bytes, int]:
    r"""Encode a JSON-ready value as a record; also return its checksum, which continues the previous one, `seal`.

    >>> encoded({"answer": "Oslo"})
    (b'00000011 ab374602 {"answer":"Oslo"}\n', 2872526338)
    """
    text = json.dumps(value, separators=(",", ":")).encode()
    seal = zlib.crc32(text, seal)
    return b"%08x %08x %b\n" % (len(text), seal, text), seal


def _decoded(line: bytes, seal: int) -> tuple[Any, int] | None:
    """Return a line's value and checksum; None unless the line is a whole record that continues the checksum `seal`."""
    match = _PREFIX.match(line)
    if match is None or not line.endswith(b"\n"):
        return None
    text, stored = line[_PREFIX_SIZE:-1], int(match[2], 16)
    if len(text) != int(match[1], 16) or zlib.crc32(text, seal) != stored:
        return None
    try:
        return load_json(text.decode()), stored
    except ValueError:
        return None


class _Reading:
    """A reader of the complete records of a file, from a given position on.

    Attributes:
        place: The end of the last record that was read.
        torn: Number of bytes of a torn tail after `place`, or 0; it is known once all records were read.
        rest: All bytes from a torn tail on.
    """

    def __init__(self, file: IO[bytes], path: Any, place: Place = BEGINNING) -> None:
        self._file, self._path, self._begun = file, path, place
        self.place, self.torn, self.rest = place, 0, b""

    def __iter__(self) -> Iterator[tuple[Place, Any]]:
        """Yield for each record its place, which is the end of the previous record, and its value."""
        self._file.seek(self.place.offset)
        if self.place == BEGINNING and not self._has_header():
            return
        while first := self._file.read(1):
            before = self.place
            line = first + (b"" if first == b"\0" else self._file.readline())
            found = _decoded(line, before.seal)
            if line == b"\0" and self._begun != BEGINNING:
                return  # everything before was read by this process, so only reserved space follows
            if found is None:
                self.torn = self._size_of_torn(line + self._file.read())
                return
            self.place = Place(before.offset + len(line), found[1], before.offset)
            yield before, found[0]

    def _has_header(self) -> bool:
        line = self._file.readline()
        if line == _HEADER:
            self.place = Place(len(line), 0, 0)
            return True
        if line.startswith(_OLD_HEADER):
            raise _old(self._path)
        rest = line + self._file.read()
        if not _HEADER.startswith(rest.rstrip(b"\0")):
            raise SchemaError(
                f"{str(self._path)!r} is not a journal, or its first line is damaged: move it away, or record to another file"
            )
        self.torn, self.rest = len(rest), rest
        return False

    def _size_of_torn(self, rest: bytes) -> int:
        """Return the size of a torn tail, or 0 if `rest` is only reserved space; raise if it is damage."""
        written = rest.rstrip(b"\0")
        if b"\0" in written:
            is_damage = not self._lacks_sectors(written)
        else:
            # An interrupted write cannot replace a record's line break alone.
            is_damage = b"\n" in written or _decoded(written[:-1] + b"\n", self.place.seal) is not None
        if is_damage:
            raise SchemaError(
                f"{str(self._path)!r} is damaged at byte {self.place.offset:,}: the record there has another checksum or length than "
                f"was written, and {len(rest):,} bytes from there on are not read. Restore the file from a copy, or move it away "
                "and record to another file"
            )
        self.rest = rest
        return len(written)

    def _lacks_sectors(self, written: bytes) -> bool:
        """Return True if the last write lacks whole sectors, which happens if later sectors are stored before earlier ones."""
        begun, _, later = written.partition(b"\0")
        first, end = self.place.offset + len(begun), self.place.offset + len(written) - len(later.lstrip(b"\0"))
        if b"\n" in begun or b"\n" in later[:-1] or end % _SECTOR:
            return False  # further records follow, or the zeros end within a sector
        if not begun:
            return first % _SECTOR != 0  # a sector of zeros would also lack the end of the record before
        prefix = _PREFIX.match(begun[:_PREFIX_SIZE] + _LARGEST_PREFIX[len(begun) :])
        largest = _PREFIX_SIZE + int(prefix[1], 16) + 1 if prefix and len(begun) >= _LENGTH_SIZE - 1 else 0
        return first % _SECTOR == 0 and len(written) <= largest  # if longer, zeros may have replaced further records


def _old(path: Any) -> SchemaError:
    return SchemaError(
        f"{str(path)!r} is the journal of a recording that suffice 0.4.0 or an older release left unfinished: finish it with suffice "
        "0.4.0 (`pip install .` in a checkout of the tag v0.4.0), by the program or command that began it, or record to another file"
    )


def check_age(path: Path) -> None:
    """Raise a `SchemaError` if there are journal files of release 0.4.0 or older, which this release cannot read."""
    wal = path.with_name(path.name + "-wal")
    if wal.exists() and wal.stat().st_size:
        raise _old(path)


def is_finished_old(path: Any) -> bool:
    """Return True if a file is an sqlite journal of release 0.4.0 or older from which all questions were moved."""
    if is_url(path):
        return False
    try:
        with path.open("rb") as file:
            if file.read(len(_OLD_HEADER)) != _OLD_HEADER:
                return False
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as database:
            return bool(database.execute("SELECT count(*) FROM questions").fetchone() == (0,))
    except (OSError, sqlite3.Error):  # the reader reports it
        return False


def read_records(path: Any) -> Iterator[Any]:
    """Yield the values of a journal's complete records without a lock, even while a process writes to it.

    Raises:
        FileNotFoundError: The file does not exist.
        SchemaError: The file is damaged, is not a journal, or is a journal of an older release.
    """
    try:
        with io.BytesIO(path.read_bytes()) if is_url(path) else path.open("rb") as file:
            reading = _Reading(file, path)
            for _, value in reading:
                yield value
            if reading.torn and (is_url(path) or _is_left(path, reading)):
                _log.warning(_torn_text(path, reading.place.offset, reading.torn, "are left out"))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise disk_fault(path, error) from error


def _is_left(path: Path, reading: _Reading) -> bool:
    """Return True if an ended process left the torn tail: the tail is still there, and no process writes to the file."""
    with suppress(OSError), path.open("rb", buffering=0) as file:
        if try_lock(file, shared=True):
            try:
                file.seek(reading.place.offset)
                return file.read() == reading.rest
            finally:
                unlock(file)
    return False


def _torn_text(path: Any, offset: int, size: int, what: str) -> str:
    return (
        f"{str(path)!r} ends within a record, which its process had not finished when it was killed or the power failed: the {size:,} "
        f"bytes from byte {offset:,} on {what}; everything that was committed is before them"
    )


class LockedJournal:
    """A journal to which only this process writes until it is closed; the lock also ends with the process.

    Once `append` has returned, its records survive `kill -9`. With `sync` they have also passed `os.fdatasync` (or `os.fsync`). Then they
    survive a power cut, if the system and the drive honour this call. `os.fsync` of the folder secures the name of a new file.

    Args:
        path: The file; its folder is created if missing.
        busy: The message of the error if a different process holds the lock.
        wait_s: Seconds to wait for the lock.
        create: Whether to create the file if it does not exist.

    Raises:
        BusyError: Another process held the lock during the whole wait.
        DataError: The place cannot be written, or has no locks.
        FileNotFoundError: The file does not exist, and `create` is False.
    """

    def __init__(self, path: Path, *, busy: str, wait_s: float, create: bool = True) -> None:
        self.path, self.place = path, BEGINNING
        try:
            if create:
                make_folder(path.parent)
            self._file = _opened(path, busy, wait_s, create=create)
        except OSError as error:
            if isinstance(error, FileNotFoundError) and not create:
                raise
            raise disk_fault(path, error) from error

    @property
    def is_closed(self) -> bool:
        """True once the lock was released."""
        return self._file.closed

    @property
    def identity(self) -> tuple[int, int]:
        """The identity of the file; a file that later gets the same name has a different identity."""
        status = os.fstat(self._file.fileno())
        return status.st_dev, status.st_ino

    def has(self, place: Place) -> bool:
        """Return True if a record still ends at a known position, so that reading may continue there."""
        if place == BEGINNING:
            return True
        self._file.seek(place.start)
        prefix = self._file.read(_PREFIX_SIZE) or b""
        size = os.fstat(self._file.fileno()).st_size
        return size >= place.offset and prefix[9:] == b"%08x " % place.seal

    def records(self) -> Iterator[tuple[Place, Any]]:
        """Yield positions and values of the records after the last one that was read; cut off a torn tail and log this."""
        with self._buffered() as file:
            reading = _Reading(file, self.path, self.place)
            for before, value in reading:
                self.place = reading.place
                yield before, value
        self.place = reading.place
        if reading.torn:
            self._file.truncate(self.place.offset)
            if self.place.offset:  # an empty file was left by a process that was killed when it had just created it
                _log.warning(_torn_text(self.path, self.place.offset, reading.torn, "are cut off"))

    def values(self) -> Iterator[Any]:
        """Yield all values up to the end of the file, from the beginning."""
        with self._buffered() as file:
            yield from (value for _, value in _Reading(file, self.path))

    def read(self, before: Place) -> Any:
        """Return the value of the record that follows a place."""
        with self._buffered() as file:
            for _, value in _Reading(file, self.path, before):
                return value
        raise SchemaError(f"{str(self.path)!r} is damaged: the record at byte {before.offset:,} is gone")

    def _buffered(self) -> IO[bytes]:
        return open(self._file.fileno(), "rb", closefd=False)

    def append(self, values: Iterable[Any], *, sync: bool = True, reserve: bool = False) -> list[Place]:
        """Write all values or none, with one sync; return the place of each: the end of the record before it.

        Args:
            values: The values of the records.
            sync: Whether to wait for the disk.
            reserve: Whether to reserve space for further records, which makes a sync much faster.
        """
        place, befores, data = self.place, list[Place](), b""
        if place == BEGINNING:
            data, place = _HEADER, Place(len(_HEADER), 0, 0)
        pieces = [data]
        for value in values:
            befores.append(place)
            record, seal = encoded(value, place.seal)
            pieces.append(record)
            place = Place(place.offset + len(record), seal, place.offset)
        try:
            self._write(b"".join(pieces), reserve)
            if sync:
                self.sync()
            if self.place == BEGINNING:
                sync_folder(self.path.parent)
        except BaseException as error:
            with suppress(OSError):  # if this fails, the next reader cuts the torn tail
                self._file.truncate(self.place.offset)
            if isinstance(error, OSError):
                raise disk_fault(self.path, error) from error
            raise
        self.place = place
        return befores

    def _write(self, data: bytes, reserve: bool) -> None:
        size, end = os.fstat(self._file.fileno()).st_size, self.place.offset + len(data)
        if not reserve and size != self.place.offset:  # an append was interrupted
            self._file.truncate(self.place.offset)
        self._file.seek(self.place.offset)
        left = memoryview(data)
        while left:
            left = left[self._file.write(left) :]
        if reserve and end > size:
            with suppress(OSError):  # an almost full disk may have space only for the records
                for _ in range(end, max(_RESERVED, min(_GROWTH * end, end + _LARGEST_RESERVE)), _RESERVED):
                    self._file.write(bytes(_RESERVED))

    def sync(self) -> None:
        """Sync the written records to the disk."""
        _sync_file(self._file.fileno())

    def replace(self, values: Iterable[Any]) -> None:
        """Replace the file by a new file with these records, in one step or not at all, and close the journal."""
        if sys.platform == "win32":  # Windows does not replace open files
            self.close()
        pieces, seal = [_HEADER], 0
        for value in values:
            record, seal = encoded(value, seal)
            pieces.append(record)
        with replacing(self.path, private=True) as temporary:
            temporary.write_bytes(b"".join(pieces))
        self.close()

    def clear(self) -> None:
        """Remove all records."""
        self._file.truncate(0)
        self.place = BEGINNING

    def remove(self) -> None:
        """Remove and close the file.

        If the system allows it, the file is removed before it is closed, so that a process waiting for the lock
        notices.
        """
        if sys.platform == "win32":
            self.close()
        self.path.unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Release the lock."""
        if not self._file.closed:
            with suppress(OSError):
                unlock(self._file)  # without this, a child forked meanwhile would keep the lock
            self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _opened(path: Path, busy: str, wait_s: float, *, create: bool) -> io.FileIO:
    """Open and lock the file at `path`; if a different process replaced or removed the file meanwhile, try again."""
    deadline, pause = time.monotonic() + wait_s, _FIRST_PAUSE_S
    flags = os.O_RDWR | (os.O_CREAT if create else 0) | getattr(os, "O_BINARY", 0)
    while True:
        file = io.FileIO(os.open(path, flags, PRIVATE), "r+")
        try:
            is_locked = try_lock(file)
            if is_locked and _is_at(file, path):
                _locked.add(file)
                return file
        except BaseException:
            file.close()
            raise
        file.close()
        if not is_locked:
            if time.monotonic() >= deadline:
                raise BusyError(f"{busy} ({str(path)!r})")
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_S)


def _is_at(file: io.FileIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False
