"""What a recording run has paid for so far: every reply is on disk before the next call goes out."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from suffice.errors import ConfigMismatchError, DataError, SchemaError

__all__ = ["Journal", "differences"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS replies (
    question_id TEXT NOT NULL, round INTEGER NOT NULL, part TEXT NOT NULL, payload TEXT NOT NULL,
    PRIMARY KEY (question_id, round, part)
);
CREATE TABLE IF NOT EXISTS finished (question_id TEXT PRIMARY KEY, rows TEXT NOT NULL);
"""


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> list[str]:
    """Return which entries of two nested configurations differ, as ``key: old -> new``."""
    found: list[str] = []
    for key in sorted(set(old) | set(new)):
        before, after = old.get(key), new.get(key)
        if isinstance(before, Mapping) and isinstance(after, Mapping):
            found += differences(before, after, f"{prefix}{key}.")
        elif before != after:
            found.append(f"{prefix}{key}: {_short(before)} -> {_short(after)}")
    return found


def _short(value: Any, most: int = 80) -> str:
    text = repr(value)
    return text if len(text) <= most else text[: most - 3] + "..."


class Journal:
    """A sqlite file beside an unfinished recording.

    One process at a time: the file is locked while it is open, and the lock goes with the process, however it ends.
    A reply that `put` returned from survives `kill -9`.

    Args:
        path: The journal file; created if missing.
        config: Everything that changes what is recorded, JSON-ready.

    Raises:
        ConfigMismatchError: The file was begun with another configuration.
        DataError: Another process is writing to it.
        SchemaError: The file is no journal, or it is corrupt.
    """

    def __init__(self, path: str | Path, config: Mapping[str, Any]) -> None:
        self.path = Path(path)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        canonical = json.loads(json.dumps(config, sort_keys=True))
        self._db = sqlite3.connect(self.path, timeout=2.0, isolation_level=None)
        try:
            # In this order: the lock is taken by the first write and held until the process ends.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute("PRAGMA journal_mode=WAL")
            self._db.execute("PRAGMA synchronous=NORMAL")
            self._db.executescript(_SCHEMA)
            stored = self._db.execute("SELECT value FROM meta WHERE key = 'config'").fetchone()
            if stored is None:
                self._db.execute("INSERT INTO meta VALUES ('config', ?)", (json.dumps(canonical, sort_keys=True),))
        except sqlite3.OperationalError as error:
            self._db.close()
            if "locked" in str(error):
                raise DataError(
                    f"another process is recording into {str(self.path)!r}: wait for it, or record to another file"
                ) from None
            raise SchemaError(f"the journal {str(self.path)!r} cannot be opened: {error}") from None
        except sqlite3.DatabaseError as error:
            self._db.close()
            raise SchemaError(
                f"{str(self.path)!r} is no journal of a recording ({error}): move it away, or record to another file"
            ) from None
        if stored is not None and json.loads(stored[0]) != canonical:
            changed = "; ".join(differences(json.loads(stored[0]), canonical))
            self._db.close()
            raise ConfigMismatchError(
                f"the unfinished recording {str(self.path)!r} was begun with another configuration ({changed}): "
                "resume with the old one, or record to another file"
            )

    def put(self, question_id: str, r: int, part: str, payload: Mapping[str, Any]) -> None:
        """Commit one reply; `part` is the component that gave it."""
        self._db.execute(
            "INSERT OR REPLACE INTO replies VALUES (?, ?, ?, ?)", (question_id, r, part, json.dumps(payload))
        )

    def replies(self, question_id: str) -> dict[tuple[int, str], dict[str, Any]]:
        """Return the committed replies of a question, by round and part."""
        rows = self._db.execute("SELECT round, part, payload FROM replies WHERE question_id = ?", (question_id,))
        return {(r, part): json.loads(payload) for r, part, payload in rows}

    def finish(self, question_id: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Commit the finished rows of a question."""
        self._db.execute("INSERT OR REPLACE INTO finished VALUES (?, ?)", (question_id, json.dumps(list(rows))))

    def finished(self) -> dict[str, list[dict[str, Any]]]:
        """Return the finished rows by question."""
        return {q: json.loads(rows) for q, rows in self._db.execute("SELECT question_id, rows FROM finished")}

    def questions(self) -> set[str]:
        """Return every question of which something is here."""
        rows = self._db.execute("SELECT question_id FROM replies UNION SELECT question_id FROM finished")
        return {question_id for (question_id,) in rows}

    def close(self) -> None:
        """Give the file free."""
        self._db.close()

    def delete(self) -> None:
        """Close and remove the file: everything in it stands in the recording."""
        self.close()
        for suffix in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + suffix).unlink(missing_ok=True)
