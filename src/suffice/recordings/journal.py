"""The replies of an unfinished recording: each is on disk before the next call."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Any, cast

from suffice.common.identities import aligned
from suffice.common.json_text import load_json
from suffice.errors import BusyError, ConfigMismatchError, SchemaError, SufficeError
from suffice.recordings.faults import seal_of, sealed_text, sqlite_faults

__all__ = ["Journal", "count_finished", "differences"]

_JOURNAL_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT NOT NULL, round INTEGER NOT NULL, part TEXT NOT NULL, payload TEXT NOT NULL,
    PRIMARY KEY (question_id, round, part)
);
CREATE TABLE IF NOT EXISTS finished (question_id TEXT PRIMARY KEY, rows TEXT NOT NULL);
CREATE TEMP TABLE cut_short (question_id TEXT PRIMARY KEY, rows TEXT NOT NULL);
"""

_JOURNAL_BUSY_S = 2.0
_OPENINGS = 20
_RECORDING = "another process is recording into this file: wait for it, or record to another file"
_JOURNAL_DAMAGED = "is not a journal of a recording, or is damaged: move it away, or record to another file"


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return which entries of two nested configurations differ, as ``key: old -> new``.

    The same model under two names does not differ, see `suffice.common.identities`, nor do two lists of endpoints that serve it,
    as long as they have one in common.
    """
    if not prefix:
        old = aligned(old, new)
    changes: list[str] = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            changes += differences(before, after, f"{prefix}{key}.")
        elif before != after and not (key == "endpoint" and _have_common_part(before, after)):
            changes.append(f"{prefix}{key}: {_shortened(before)} -> {_shortened(after)}")
    return changes


def _have_common_part(before: Any, after: Any) -> bool:
    """Return whether two lists of addresses, separated by commas, have one in common."""
    return bool(set(str(before).split(", ")) & set(str(after).split(", ")))


def _shortened(value: Any, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


class Journal:
    """A sqlite file beside an unfinished recording.

    The file is locked while it is open, so that only one process uses it; the lock ends with the process.  Once `put` has
    returned, the reply survives `kill -9`.

    Args:
        path: The journal file; created if missing.
        config: JSON-ready values that change the recording.

    Raises:
        BusyError: Another process is writing to it.
        ConfigMismatchError: The file was begun with another configuration.
        DataError: The disk is not writable.
        SchemaError: The file is not a journal, or it is damaged.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        canonical = json.loads(json.dumps(config, sort_keys=True))
        with self._faults():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._db = _locked(self.path)
        try:
            self._begin(canonical)
        except BaseException:
            self._db.close()
            raise

    def _begin(self, config: Mapping[str, Any]) -> None:
        """Write the configuration, or compare it with that of the file."""
        with self._faults():
            stored = self._db.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
            if stored is None:
                self._db.execute("INSERT INTO meta VALUES ('config', ?)", (json.dumps(config, sort_keys=True),))
                return
        changed = differences(self._decoded(stored[0], dict), config)
        if changed:
            raise ConfigMismatchError(
                f"the unfinished recording {str(self.path)!r} was begun with another configuration "
                f"({'; '.join(changed)}): resume with the old one, or record to another file"
            )

    def put(self, question_id: str, payloads: Mapping[tuple[int, str], Mapping[str, Any]]) -> None:
        """Commit replies by round and part (the component that replied), all or none.

        Samples of one question are different rounds, so equal requests keep replies of their own.

        Raises:
            DataError: The disk is full, or not writable.
        """
        rows = [
            (question_id, r, part, sealed_text(json.dumps(payload), question_id, r, part))
            for (r, part), payload in payloads.items()
        ]
        with self._faults():
            if len(rows) == 1:
                self._db.execute("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", rows[0])
                return
            self._db.execute("BEGIN")
            try:
                self._db.executemany("INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", rows)
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    def replies(self, question_id: str) -> dict[tuple[int, str], dict[str, Any]]:
        """Return the committed replies of a question, by round and part.

        Raises:
            SchemaError: The file is damaged.
        """
        with self._faults():
            query = "SELECT round, part, payload FROM replies WHERE question_id = ?"
            rows = self._db.execute(query, (question_id,)).fetchall()
        return {(r, part): self._decoded(text, dict, question_id, r, part) for r, part, text in rows}

    def finish(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Commit the finished rows of a question.

        Raises:
            DataError: The disk is full, or not writable.
        """
        self._store("finished", question_id, rows)

    def cut_short(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Keep the rows of a failed question until the file is closed; the next run repeats the question.

        Raises:
            DataError: The disk is full, or not writable.
        """
        self._store("cut_short", question_id, rows)

    def _store(self, table: str, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        text = sealed_text(json.dumps(list(rows)), question_id)
        with self._faults():
            self._db.execute(f"INSERT OR REPLACE INTO {table} VALUES (?, ?)", (question_id, text))  # noqa: S608

    def finished(self) -> Iterator[tuple[str, list[dict[str, Any]]]]:
        """Yield the finished questions with their rows, in order of completion.

        Raises:
            SchemaError: The file is damaged.
        """
        with self._faults():
            for question_id, text in self._db.execute("SELECT question_id, rows FROM finished ORDER BY rowid"):
                yield question_id, self._decoded(text, list, question_id)

    def rows(self, question_id: str) -> list[dict[str, Any]]:
        """Return the rows of a question that was finished, or cut short since opening the file.

        Raises:
            SchemaError: There are none: the file is damaged.
        """
        query = "SELECT rows FROM finished WHERE question_id = ?1 UNION ALL SELECT rows FROM cut_short WHERE question_id = ?1"
        with self._faults():
            stored = self._db.execute(query, (question_id,)).fetchone()
        return cast("list[dict[str, Any]]", self._decoded(stored and stored[0], list, question_id))

    def questions(self) -> set[str]:
        """Return all questions with replies or rows in the file.

        Raises:
            SchemaError: The file is damaged.
        """
        with self._faults():
            rows = self._db.execute("SELECT question_id FROM replies UNION SELECT question_id FROM finished").fetchall()
        return {question_id for (question_id,) in rows}

    @property
    def changes(self) -> int:
        """The number of rows that were written since the file was opened."""
        return self._db.total_changes

    def copy_to(self, path: Path) -> None:
        """Write a copy of the file as it is now."""
        with self._faults(), closing(sqlite3.connect(path)) as copy:
            self._db.backup(copy)
            copy.execute("PRAGMA journal_mode=DELETE")  # one file, without what sqlite keeps beside it

    def absorb(self, path: Path) -> None:
        """Add the replies and rows of another journal of the same recording.

        Raises:
            ConfigMismatchError: The other was begun with another configuration.
            SchemaError: It is not a journal, or it is damaged.
        """
        with self._faults():
            stored = self._db.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
        Journal(path, self._decoded(stored[0], dict)).close()
        with self._faults():
            self._db.execute("ATTACH ? AS other", (str(path),))
            for table in ("replies", "finished"):
                self._db.execute(f"INSERT OR IGNORE INTO {table} SELECT * FROM other.{table}")  # noqa: S608
            self._db.execute("DETACH other")

    def close(self) -> None:
        """Release the lock."""
        self._db.close()

    def release(self) -> None:
        """Release the lock after a failure, and remove the file if it is empty."""
        with suppress(SufficeError):
            if not self.questions():
                self.delete()
        self.close()

    def delete(self) -> None:
        """Remove the file and release the lock, when the recording is complete.

        In this order if the system allows it: a process waiting for the lock must see that the file is gone.
        """
        try:
            self._unlink()
            self.close()
        except PermissionError:  # Windows does not remove open files
            self.close()
            self._unlink()

    def _unlink(self) -> None:
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)

    def _faults(self) -> AbstractContextManager[None]:
        return sqlite_faults(self.path, locked=_RECORDING, damaged=_JOURNAL_DAMAGED)

    def _decoded(self, text: Any, kind: type, *key: Any) -> Any:
        """Return the value of a row after checking its checksum and kind."""
        try:
            value = load_json(_opened(text, *key))
        except (ValueError, TypeError, AttributeError):
            value = None
        if not isinstance(value, kind):
            raise SchemaError(f"{str(self.path)!r} {_JOURNAL_DAMAGED}")
        return value


def count_finished(path: Path) -> int:
    """Return how many questions a journal holds; 0 if there is none.  It is neither locked nor changed.

    Raises:
        BusyError: Another process is writing to it.
        SchemaError: The file is not a journal, or it is damaged.
    """
    if not path.exists():
        return 0
    address = f"{path.resolve().as_uri()}?mode=ro"
    faults = sqlite_faults(path, locked=_RECORDING, damaged=_JOURNAL_DAMAGED)
    with faults, closing(sqlite3.connect(address, uri=True)) as connection:
        return int(connection.execute("SELECT COUNT(*) FROM finished").fetchone()[0])


def _locked(path: Path) -> sqlite3.Connection:
    """Return a connection with the lock of the file that is at `path` now.

    A finishing process removes its journal while another may be waiting for the lock: that one would then have opened a
    deleted file, whose rows would be lost.
    """
    for _ in range(_OPENINGS):
        path.touch()
        with suppress(FileNotFoundError):
            before = path.stat()
            database = sqlite3.connect(path, timeout=_JOURNAL_BUSY_S, isolation_level=None)
            try:
                # In this order: the lock is taken by the first write and held until the process ends.
                database.execute("PRAGMA locking_mode=EXCLUSIVE")
                database.execute("PRAGMA journal_mode=WAL")
                database.execute("PRAGMA synchronous=NORMAL")
                database.executescript(_JOURNAL_SCHEMA)
                if os.path.samestat(before, path.stat()):
                    return database
            except sqlite3.OperationalError:
                if path.exists() and os.path.samestat(before, path.stat()):
                    database.close()
                    raise
            except BaseException:
                database.close()
                raise
            database.close()
    raise BusyError(f"{_RECORDING} ({str(path)!r})")


def _opened(stored: str, *key: Any) -> str:
    """Check and remove the line of `sealed_text`; rows of older releases have none.

    Raises:
        ValueError: The checksum does not match.
    """
    text, newline, seal = stored.partition("\n")
    if newline and seal != seal_of(text, *key):
        raise ValueError("the checksum does not match")
    return text
