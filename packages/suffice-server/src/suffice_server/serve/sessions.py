"""Storage of sessions, in one sqlite file or in memory, with a time to live and a maximum number."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.common.files import PRIVATE
from suffice.errors import DataError
from suffice_server.serve.answers import RefusedError
from suffice_server.serve.guard import Limits

_LOG = logging.getLogger(__name__)
_LOCK_S = 10.0
_LATE_S = 10.0
"""Seconds after which an unlogged stop is taken over: the process that should have logged it has probably ended."""
_TABLES = """
CREATE TABLE IF NOT EXISTS policies (digest TEXT PRIMARY KEY, name TEXT NOT NULL, policy TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, version INTEGER NOT NULL, expires REAL NOT NULL, pending INTEGER NOT NULL, over INTEGER NOT NULL DEFAULT 0,
    digest TEXT NOT NULL, state TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS by_expires ON sessions (expires);
CREATE INDEX IF NOT EXISTS by_pending ON sessions (expires) WHERE pending;
CREATE INDEX IF NOT EXISTS by_over ON sessions (expires) WHERE over;
"""
_CHECKSUM_LENGTH = 64
_MAKE_ROOM = "DELETE FROM sessions WHERE id IN (SELECT id FROM sessions WHERE over ORDER BY expires LIMIT ?)"
"""Deletes the oldest finished sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSession:
    """A stored session.

    Attributes:
        version: Number of writes; a write based on an older version is rejected.
        expires: Time at which the session is removed, seconds since 1970.
        digest: Digest of the session's policy.
        state: JSON-ready values.
    """

    version: int
    expires: float
    digest: str
    state: dict[str, Any]


class SessionStore:
    """A store of sessions, in a file or in memory.

    In a file, sessions survive even ``kill -9`` once `add` or `put` has returned.  Several processes may share a file.
    Adding a session removes expired sessions and, if the limit is reached, finished ones.

    Args:
        path: The file; None keeps the sessions in memory, until the process ends.
        limits: The largest number of sessions and their time to live.

    Raises:
        DataError: The file cannot be written, or is not a file of sessions.
    """

    def __init__(self, path: Path | None, limits: Limits) -> None:
        self.limits = limits
        self._lock = threading.Lock()
        try:
            if path is not None:
                with suppress(OSError):  # sqlite reports the error itself, and gives its other files the same mode
                    os.close(os.open(path, os.O_CREAT | os.O_RDWR, PRIVATE))
            self._database = sqlite3.connect(
                ":memory:" if path is None else path, timeout=_LOCK_S, isolation_level=None, check_same_thread=False
            )
            try:
                self._database.execute("PRAGMA journal_mode=WAL")
                self._database.execute("PRAGMA synchronous=NORMAL")
                self._database.executescript(_TABLES)
            except sqlite3.Error:
                self._database.close()
                raise
        except sqlite3.Error as error:
            raise DataError(
                f"sessions cannot be kept in {str(path)!r}: {error}. Give another file (the setting sessions)"
            ) from None

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._database.close()

    def count(self) -> int:
        """Return how many sessions are open."""
        with self._lock, self._faults():
            query = "SELECT count(*) FROM sessions WHERE expires > ? AND NOT over"
            return int(self._database.execute(query, (time.time(),)).fetchone()[0])

    def policy(self, digest: str) -> tuple[str, Any]:
        """Return the name and the values of the stored policy with this digest.

        Raises:
            RefusedError: No session has this policy.
        """
        with self._lock, self._faults():
            query = "SELECT name, policy FROM policies WHERE digest = ?"
            row = self._database.execute(query, (digest,)).fetchone()
        if row is None:
            raise RefusedError(404, f"there is no policy {digest[:100]!r}", kind="NotFoundError")
        return row[0], json.loads(row[1])

    def add(
        self,
        name: str,
        state: Mapping[str, Any],
        *,
        digest: str,
        policy: tuple[str, Mapping[str, Any]],
        pending: bool = False,
    ) -> float:
        """Store a new session, with its policy, and return when it expires.

        Args:
            name: The name of the session.
            state: JSON-ready values.
            digest: Digest of the policy.
            policy: Name and JSON-ready values of the policy.
            pending: True if the session has stopped and is not logged yet.

        Raises:
            RefusedError: Too many sessions are open.
        """
        text, now = self._text(state), time.time()
        with self._writing() as database:
            database.execute("DELETE FROM sessions WHERE expires <= ? AND NOT pending", (now,))
            n, earliest = database.execute("SELECT count(*), min(expires) FROM sessions").fetchone()
            if n >= self.limits.sessions:
                n -= database.execute(_MAKE_ROOM, (max(self.limits.sessions // 100, 1),)).rowcount
            if n >= self.limits.sessions:
                raise RefusedError(
                    429,
                    f"{n} sessions are open, the limit of this server: end some (DELETE), or try again later",
                    retry_after=max(1.0, min(earliest - now, 60.0)),
                )
            database.execute(
                "INSERT OR IGNORE INTO policies VALUES (?, ?, ?)", (digest, policy[0], json.dumps(policy[1]))
            )
            expires = now + self.limits.ttl
            database.execute(
                "INSERT INTO sessions VALUES (?, 0, ?, ?, 0, ?, ?)",
                (name, expires, pending, digest, _checksum(name, 0, text) + text),
            )
        return expires

    def get(self, name: str) -> StoredSession:
        """Return a session.

        Raises:
            RefusedError: The session does not exist, has expired, or does not match its checksum.
        """
        with self._lock, self._faults():
            query = "SELECT version, expires, digest, state FROM sessions WHERE id = ? AND (expires > ? OR pending)"
            row = self._database.execute(query, (name, time.time())).fetchone()
        if row is None:
            raise _no_session()
        version, expires, digest, stored = row
        checksum, text = stored[:_CHECKSUM_LENGTH], stored[_CHECKSUM_LENGTH:]
        if checksum != _checksum(name, version, text):
            raise RefusedError(
                409,
                "this session was changed by another program, or its file is damaged: open a new one",
                kind="DataError",
            )
        return StoredSession(version=version, expires=expires, digest=digest, state=json.loads(text))

    def put(
        self, name: str, version: int, state: Mapping[str, Any], *, pending: bool = False, over: bool = False
    ) -> float:
        """Store the next version of a session, and return when it expires.

        Args:
            name: The name of the session.
            version: The version that was read.
            state: JSON-ready values.
            pending: True if the session has stopped and is not logged yet.
            over: True if the session is finished, so that it may be deleted to make room for a new one.

        Raises:
            RefusedError: Another request has stored a newer version.
        """
        query = """UPDATE sessions SET version = ?, expires = ?, pending = ?, over = ?, state = ?
            WHERE id = ? AND version = ?"""
        expires = time.time() + self.limits.ttl
        text = self._text(state)
        text = _checksum(name, version + 1, text) + text
        values = (version + 1, expires, pending, over, text, name, version)
        with self._writing() as database:
            if not database.execute(query, values).rowcount:
                raise RefusedError(409, "another request changed this session at the same time: send yours again")
        return expires

    def _text(self, state: Mapping[str, Any]) -> str:
        text = json.dumps(state)
        if len(text) > self.limits.session:
            raise RefusedError(
                413,
                f"the session would have {len(text):,} bytes, and at most {self.limits.session:,} are kept: send shorter texts, end it, or "
                "raise the setting max-session-bytes",
            )
        return text

    def pending(self) -> list[str]:
        """Return the names of sessions that stopped a while ago and are still not logged."""
        query = "SELECT id FROM sessions WHERE pending AND expires < ?"
        with self._lock, self._faults():
            rows = self._database.execute(query, (time.time() + self.limits.ttl - _LATE_S,)).fetchall()
        return [row[0] for row in rows]

    def remove(self, name: str) -> None:
        """Remove a session."""
        with self._writing() as database:
            database.execute("DELETE FROM sessions WHERE id = ?", (name,))

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._lock, self._faults():
            self._database.execute("BEGIN IMMEDIATE")
            try:
                yield self._database
                self._database.execute("COMMIT")
            except BaseException:
                if self._database.in_transaction:  # sqlite itself may have rolled back, on a full disk
                    self._database.execute("ROLLBACK")
                raise

    @contextmanager
    def _faults(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error:
            _LOG.exception("the sessions cannot be stored")
            message = "the sessions cannot be stored; the server's log contains the reason"
            raise RefusedError(503, message, retry_after=1) from None


def _checksum(name: str, version: int, text: str) -> str:
    """Return a hash over a session's name, version and state, to detect a changed or misplaced row."""
    return hashlib.sha256(f"{name} {version} {text}".encode("utf-8", "surrogatepass")).hexdigest()


def _no_session() -> RefusedError:
    message = "there is no such session: it was never opened, was ended, or has expired. Open a new one"
    return RefusedError(404, message, kind="NotFoundError")
