"""The requests and replies of a recording's batches, which are saved on disk before and after each step."""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suffice.recordings.cache import sqlite_faults

_STATE_SCHEMA = """
CREATE TABLE IF NOT EXISTS replies (key TEXT PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    key TEXT PRIMARY KEY, batch INTEGER, attempts INTEGER NOT NULL, error TEXT NOT NULL, is_final INTEGER NOT NULL
);
CREATE INDEX IF NOT EXISTS requests_of_a_batch ON requests (batch);
CREATE TABLE IF NOT EXISTS batches (
    number INTEGER PRIMARY KEY, endpoint TEXT NOT NULL, url TEXT NOT NULL, model TEXT NOT NULL, requests INTEGER NOT NULL,
    step TEXT NOT NULL, file_id TEXT, batch_id TEXT, status TEXT NOT NULL, done INTEGER NOT NULL
);
"""
_STATE_BUSY_S = 2.0
_STATE_IN_USE = "another process is recording with these batches: wait for it, or record to another file"
_STATE_DAMAGED = "does not hold the batches of a recording, or is damaged: move it away to submit what is missing again"
_COLUMNS_OF_BATCHES = "number, endpoint, url, model, requests, step, file_id, batch_id, status, done"


@dataclass(frozen=True, slots=True)
class SentBatch:
    """A batch in one of the steps from the written input file to the end.

    Attributes:
        number: The number of the batch in this recording, from 1; names of files contain it.
        step: `written`, `uploaded`, `creating`, `created` or `ended`.
        file_id: The endpoint's id of the uploaded input file, or the path of the file for an engine.
        batch_id: The endpoint's id of the created batch.
        done: Number of requests that the endpoint has answered.
    """

    number: int
    endpoint: str
    url: str
    model: str
    requests: int
    step: str = "written"
    file_id: str | None = None
    batch_id: str | None = None
    status: str = ""
    done: int = 0


@dataclass(frozen=True, slots=True)
class KnownRequest:
    """A request that has no reply yet.

    Attributes:
        is_sent: True if a batch that has not ended contains the request.
        error: The reason why the last batch did not answer the request.
        is_final: True if the request would fail again.
    """

    is_sent: bool
    attempts: int
    error: str
    is_final: bool


class BatchState:
    """The state of batches in a sqlite file; an open file is locked, so that only one process submits.

    Changes between `begin` and `commit` are stored together, or not at all.

    Args:
        path: The file; created if missing.

    Raises:
        DataError: Another process has the file open, or the disk is not writable.
        SchemaError: The file is damaged, or of another kind.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.RLock()
        with self._faults():
            path.parent.mkdir(parents=True, exist_ok=True)
            self._db = sqlite3.connect(path, timeout=_STATE_BUSY_S, isolation_level=None, check_same_thread=False)
            try:
                self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
                self._db.execute("PRAGMA journal_mode=WAL")
                self._db.executescript(_STATE_SCHEMA)
                self._db.execute("PRAGMA user_version = 1")  # takes the lock, which is held until the file is closed
            except BaseException:
                self._db.close()
                raise

    def begin(self) -> None:
        """Begin a transaction; drop changes that were not committed."""
        self.roll_back()
        self._run("BEGIN")

    def commit(self) -> None:
        """Store the changes since `begin`."""
        self._run("COMMIT")

    def roll_back(self) -> None:
        """Drop the changes since `begin`, if there are any."""
        if self._db.in_transaction:
            self._run("ROLLBACK")

    def reply(self, key: str) -> str | None:
        """Return the body of the reply to a request; None if no reply has arrived."""
        rows = self._run("SELECT body FROM replies WHERE key = ?", key)
        return zlib.decompress(rows[0][0]).decode() if rows else None

    def request(self, key: str) -> KnownRequest | None:
        """Return the state of a request that has no reply; None if it was never in a batch."""
        rows = self._run("SELECT batch IS NOT NULL, attempts, error, is_final FROM requests WHERE key = ?", key)
        return KnownRequest(bool(rows[0][0]), rows[0][1], rows[0][2], bool(rows[0][3])) if rows else None

    def add(self, key: str, number: int) -> None:
        """Put a request into a batch."""
        self._run(
            "INSERT INTO requests VALUES (?, ?, 1, '', 0) ON CONFLICT (key) DO UPDATE SET batch = excluded.batch, "
            "attempts = attempts + 1, is_final = 0",
            key,
            number,
        )

    def forget_failures(self) -> None:
        """Forget failed requests, so that they are submitted again."""
        self._run("DELETE FROM requests WHERE batch IS NULL AND key NOT IN (SELECT key FROM replies)")

    def batches(self) -> list[SentBatch]:
        """Return all batches in the order of their numbers."""
        rows = self._run(f"SELECT {_COLUMNS_OF_BATCHES} FROM batches ORDER BY number")  # noqa: S608 - our own names
        return [SentBatch(*row) for row in rows]

    def put(self, batch: SentBatch) -> None:
        """Store a new or changed batch."""
        values = [getattr(batch, name) for name in _COLUMNS_OF_BATCHES.split(", ")]
        self._run(f"INSERT OR REPLACE INTO batches ({_COLUMNS_OF_BATCHES}) VALUES (?,?,?,?,?,?,?,?,?,?)", *values)  # noqa: S608

    @contextmanager
    def ending(self, batch: SentBatch, error: str, *, counts: bool) -> Iterator[BatchState]:
        """Store the replies and errors of a batch within this block; after the block, mark the batch as ended.

        Everything is one transaction.

        Args:
            batch: The batch in its final state.
            error: The reason to note for the remaining requests, which have neither a reply nor an error of their own.
            counts: Whether the batch counts as an attempt for these remaining requests.
        """
        with self._lock:
            self._run("BEGIN")
            try:
                yield self
                less = 0 if counts else 1
                self._run(
                    "UPDATE requests SET batch = NULL, attempts = attempts - ?, error = ? WHERE batch = ?",
                    less,
                    error,
                    batch.number,
                )
                self.put(batch)
            except BaseException:
                self.roll_back()
                raise
            self._run("COMMIT")

    def take_reply(self, key: str, body: str) -> None:
        """Keep the first reply to a request; ignore further replies, and replies to unknown requests."""
        if self._run("UPDATE requests SET batch = NULL, error = '' WHERE key = ? RETURNING key", key):
            packed = zlib.compress(body.encode(), 1)  # log-probabilities compress to a tenth
            self._run("INSERT OR IGNORE INTO replies VALUES (?, ?)", key, packed)

    def take_error(self, number: int, key: str, error: str, *, is_final: bool) -> None:
        """Note the reason why a request of a batch has no reply."""
        self._run(
            "UPDATE requests SET batch = NULL, error = ?, is_final = ? WHERE key = ? AND batch = ?",
            error,
            is_final,
            key,
            number,
        )

    def close(self) -> None:
        """Release the lock; drop changes that were not committed."""
        self._db.close()

    def _run(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock, self._faults():
            return self._db.execute(statement, values).fetchall()

    def _faults(self) -> AbstractContextManager[None]:
        return sqlite_faults(self.path, locked=_STATE_IN_USE, damaged=_STATE_DAMAGED)
