"""The response cache: an sqlite file that maps whole requests to responses, safe with several processes and threads."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import sqlite3
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from suffice.common.files import disk_fault
from suffice.errors import BusyError, DataError, SchemaError

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
    """Convert the errors of sqlite to errors of this library, with one message for a locked and one for a damaged file."""
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


_APPLICATION_ID = 0x53554646  # "SUFF": identifies our files among sqlite databases
_SCHEMA_VERSION = 1
_CACHE_BUSY_S = 30.0
_SEAL = "crc32"
_IN_USE = "another program has locked the response cache: close it, or give another file"
_CACHE_DAMAGED = "is not a response cache, or is damaged: move it away to start a new one"


def request_key(request: Mapping[str, Any]) -> str:
    """Return the key of a request: sha256 over its canonical JSON, 64 hexadecimal digits.

    >>> request_key({"model": "m", "seed": 1}) == request_key({"seed": 1, "model": "m"})
    True
    >>> request_key({"model": "m", "seed": 1}) == request_key({"model": "m", "seed": 2})
    False

    Raises:
        DataError: The request cannot be expressed in JSON.
    """
    try:
        text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise DataError(f"a request must be JSON to be cached: {error}") from error
    return hashlib.sha256(text.encode()).hexdigest()


class ResponseCache:
    """A cache of responses by request, stored in a file.

    A response is committed when `put` returns, so that killing the process loses nothing. A power cut may lose the last
    responses, but does not damage the file. Of several responses to a request the first is kept, so a cache always
    gives the same answer.  The file must be on a local disk: sqlite's write-ahead log does not work on network drives.

    Args:
        path: The file; created if missing.

    Raises:
        SchemaError: The file is not a response cache, is damaged, or was written by a newer release.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._lock = threading.RLock()
        self._pid = -1
        self._connection: sqlite3.Connection | None = None
        self._inherited: list[sqlite3.Connection] = []
        self._closed = False
        with self._open():
            pass

    def __repr__(self) -> str:
        return f"ResponseCache({str(self.path)!r})"

    def get(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the stored response to `request`; None if no response is stored.

        Raises:
            DataError: The request is not JSON, or the cache is closed.
            SchemaError: The file is damaged.
        """
        key = request_key(request)
        with self._open() as connection:
            row = connection.execute("SELECT response FROM responses WHERE key = ?", (key,)).fetchone()
        if row is None:
            return None
        try:
            response = json.loads(row[0])
            seal = response.pop(_SEAL, None)  # responses of older releases have none
        except (ValueError, RecursionError, TypeError, AttributeError):
            response, seal = None, None
        if not isinstance(response, dict) or seal not in (None, _seal_of(key, response)):
            raise SchemaError(f"{str(self.path)!r} {_CACHE_DAMAGED} (the response of key {key})")
        return response

    def put(self, request: Mapping[str, Any], response: Mapping[str, Any]) -> None:
        """Store and commit the response to `request`; if a response is already stored, keep the stored one instead.

        Raises:
            DataError: Request or response is not JSON, or the cache is closed.
            SchemaError: The file is damaged.
        """
        key = request_key(request)
        try:
            sealed = {**response, _SEAL: _seal_of(key, response)}
            text = json.dumps(sealed, separators=(",", ":"))
        except (TypeError, ValueError) as error:
            raise DataError(f"a response must be JSON to be cached: {error}") from error
        with self._open() as connection:
            connection.execute("INSERT OR IGNORE INTO responses VALUES (?, ?, ?)", (key, text, time.time()))

    def take(self, other: Path) -> None:
        """Add the responses of the cache `other`; if both caches have a response to a request, keep that of this cache.

        Raises:
            SchemaError: The other file is not a response cache, or is damaged.
        """
        with ResponseCache(other):  # raises unless it is an intact cache
            pass
        with self._open() as connection:
            connection.execute("ATTACH DATABASE ? AS other", (str(other),))
            try:
                connection.execute("INSERT OR IGNORE INTO responses SELECT * FROM other.responses")
            finally:
                connection.execute("DETACH DATABASE other")

    def __len__(self) -> int:
        with self._open() as connection:
            return int(connection.execute("SELECT count(*) FROM responses").fetchone()[0])

    def close(self) -> None:
        """Close the file; closing it twice is allowed."""
        with self._lock:
            if self._connection is not None and self._pid == os.getpid():
                self._connection.close()
            self._connection = None
            self._closed = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextlib.contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        """Yield the connection to one thread at a time, and convert sqlite's errors to this library's."""
        with self._lock:
            if self._closed:
                raise DataError(f"the response cache {self.path} is closed")
            with sqlite_faults(self.path, locked=_IN_USE, damaged=_CACHE_DAMAGED):
                if self._connection is None or self._pid != os.getpid():
                    # A forked child opens its own connection, and must not even close the inherited one.
                    if self._connection is not None:
                        self._inherited.append(self._connection)
                    self._connection = _connect(self.path)
                    self._pid = os.getpid()
                yield self._connection


def _connect(path: Path) -> sqlite3.Connection:
    """Open the file in autocommit mode, and create or check its table."""
    connection = sqlite3.connect(path, timeout=_CACHE_BUSY_S, isolation_level=None, check_same_thread=False)
    try:
        # Check before writing: files of other programs must stay unchanged.
        connection.execute(
            "BEGIN"
        )  # both checks must see one state of the file: another process may be creating its table
        _check_is_cache(connection, path)
        connection.execute("COMMIT")
        _use_wal(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("BEGIN IMMEDIATE")
        if _check_is_cache(connection, path):
            connection.execute(
                "CREATE TABLE responses (key TEXT PRIMARY KEY, response TEXT NOT NULL, stored_at REAL NOT NULL)"
            )
            connection.execute(f"PRAGMA application_id = {_APPLICATION_ID}")
            connection.execute(f"PRAGMA user_version = {_SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_is_cache(connection: sqlite3.Connection, path: Path) -> bool:
    """Return True if the file is empty; raise if it is neither empty nor a response cache."""
    kind = connection.execute("PRAGMA application_id").fetchone()[0]
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    if kind == 0 and version == 0 and tables == 0:
        return True
    if kind != _APPLICATION_ID:
        raise SchemaError(f"{path} is a sqlite file of another program, not a response cache: give another file")
    if version != _SCHEMA_VERSION:
        raise SchemaError(
            f"{path} is a response cache of version {version}; this release reads version {_SCHEMA_VERSION}. "
            "Use the release that wrote it, or give another file"
        )
    return False


def _use_wal(connection: sqlite3.Connection) -> None:
    """Switch to the write-ahead log; wait for other processes, because sqlite itself does not wait for this switch."""
    until = time.monotonic() + _CACHE_BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > until:
                raise
            time.sleep(random.uniform(0.01, 0.1))  # noqa: S311 - processes that wait must not collide again and again
        else:
            return


def _seal_of(*parts: Any) -> str:
    """Return a checksum of JSON-ready values.

    The checksum of each row is stored with the row, because sqlite has no checksums.

    >>> _seal_of("q1", 2, {"answer": "Oslo"})
    'f3047d80'
    """
    return f"{zlib.crc32(json.dumps(parts, sort_keys=True).encode()):08x}"
