"""Convert errors of sqlite and of the file system to this library's errors."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from suffice.common.files import disk_fault
from suffice.errors import BusyError, SchemaError

_LOCKED = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
_DISK = frozenset(
    {
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
_PRIMARY = 0xFF


@contextmanager
def sqlite_faults(path: str | Path, *, locked: str, damaged: str) -> Iterator[None]:
    """Convert sqlite's errors to this library's, with one message for a locked file and one for a damaged file."""
    try:
        yield
    except sqlite3.ProgrammingError:  # such as a closed connection: a bug, not a fault of the file
        raise
    except sqlite3.DatabaseError as error:
        kind = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & _PRIMARY
        if kind in _LOCKED:
            raise BusyError(f"{locked} ({str(path)!r})") from None
        if kind in _DISK:
            raise disk_fault(path, error) from error
        raise SchemaError(f"{str(path)!r} {damaged} ({error})") from None
    except OSError as error:
        raise disk_fault(path, error) from error
