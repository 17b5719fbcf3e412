"""The rounds of questions that loops of their own record, in several processes at a time."""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suffice.common.files import is_url, place
from suffice.common.json_text import load_json
from suffice.errors import ConfigMismatchError, DataError, SchemaError
from suffice.recordings.faults import seal_of, sealed_text, sqlite_faults
from suffice.recordings.group_commit import Writers, writers_of
from suffice.recordings.journal import differences

__all__ = ["JournalContent", "JournalQuestion", "RoundJournal", "SealedError"]

_BUSY_S = 60.0
_BUSY = "other processes are writing to it: try again"
_AGAIN = "copy it again once its writer has closed it (Recorder.close(), or the end of its program)"
_DAMAGED = (
    f"is not a journal of rounds, is damaged, or is a copy that was made while a process wrote to it: {_AGAIN}; if it is no copy, "
    "move it away, or record to another file"
)
_INCOMPLETE = f"has other rows than were committed, as in a copy that was made while a process wrote to it: {_AGAIN}"
_SEALED = "was sealed while this question was open: it is a day since its last round. Record the question again"
_SCHEMA = """
CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS questions (run TEXT PRIMARY KEY, fields TEXT NOT NULL, ending TEXT);
CREATE TABLE IF NOT EXISTS rounds (run TEXT NOT NULL, round INTEGER NOT NULL, row TEXT NOT NULL, PRIMARY KEY (run, round));
"""

_TEXTS = {"questions": ("fields", "ending"), "rounds": ("row",)}
_MARK_BITS = 32


def _tally_schema() -> Iterator[str]:
    """Yield the statements that let sqlite keep the sum of `_mark` over all texts that are committed.

    A copy that was made during a commit is often a valid file of sqlite, with pages from before and after the commit: then the sum is
    not that of the rows that are found.  Triggers keep it, so that a process of an older release does so, too.
    """

    def marks(table: str, row: str = "") -> str:
        return " + ".join(f"coalesce({_mark_in_sql(row + text)}, 0)" for text in _TEXTS[table])

    yield "CREATE TABLE tally (total INTEGER NOT NULL)"
    sums = (f"(SELECT coalesce(sum({marks(table)}), 0) FROM {table})" for table in _TEXTS)  # noqa: S608 - names of ours
    yield f"INSERT INTO tally VALUES ({' + '.join(sums)})"  # noqa: S608 - names of ours
    for table in _TEXTS:
        old, new = f"- ({marks(table, 'old.')})", f"+ {marks(table, 'new.')}"
        for event, change in (("INSERT", new), ("DELETE", old), ("UPDATE", f"{old} {new}")):
            body = f"UPDATE tally SET total = total {change};"  # noqa: S608 - names of ours
            yield f"CREATE TRIGGER {table}_{event.lower()} AFTER {event} ON {table} BEGIN {body} END"


def _mark_in_sql(text: str) -> str:
    letters = " + ".join(f"(unicode(substr({text}, -{place + 1}, 1)) << {7 * place})" for place in range(4))
    return f"{1 << _MARK_BITS} + {letters}"


def _mark(text: str | None) -> int:
    r"""Return a number for a text and its end, where its checksum is; 0 for none.

    >>> _mark("x\n0000000a") - _mark("x\n00000009")
    40
    """
    letters = "" if text is None else text[-4:]
    return bool(letters) * (1 << _MARK_BITS) + sum(ord(letter) << 7 * n for n, letter in enumerate(letters[::-1]))


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalQuestion:
    """One question in a journal.

    Attributes:
        run: Unique among all questions that were ever recorded.
        fields: What is known of it: its cluster, and under `decision` the columns of its decision, once there is one.
        ending: How it ended; None while it goes on, and for good if its process was killed.
        rows: The rows of its rounds, in order.
    """

    run: str
    fields: Mapping[str, Any]
    ending: Mapping[str, Any] | None
    rows: list[dict[str, Any]] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalContent:
    """What is in a journal.

    Attributes:
        metadata: What the recording depends on.
        questions: In the order in which they began.
    """

    metadata: Mapping[str, Any]
    questions: Sequence[JournalQuestion]


class SealedError(DataError):
    """The journal of a part was removed: nothing is written to the part any more."""


class RoundJournal:
    """A sqlite file beside a recording: each round is there once `put` has returned, also after `kill -9` and power loss.

    Any number of threads and processes may write at a time: each call opens the file, takes its lock, and closes it, so
    nothing is inherited by a fork.  Threads that wait are committed together.  The file is never removed, because another process may be
    about to write to it; that of a part is, by `seal`, and a process that comes too late gets a `SealedError`.

    Args:
        path: The recording; the journal is `path` with ``.rounds`` at its end.
        is_part: Whether the recording is a part of a folder.
    """

    def __init__(self, path: str | Path, *, is_part: bool = False) -> None:
        path = place(path)
        self.path = path.with_name(path.name + ".rounds")
        self._is_part = is_part
        self._writes: list[Callable[[sqlite3.Connection], Any]] | None = None
        self._known_writers: Writers | None = None

    @contextmanager
    def together(self) -> Iterator[RoundJournal]:
        """Yield a journal that keeps what the block writes, and commit it at once; nothing of it if the block raises."""
        journal, writes = copy(self), list[Callable[[sqlite3.Connection], Any]]()
        journal._writes = writes  # noqa: SLF001 - another self
        yield journal
        self._commit(lambda database: [write(database) for write in writes])

    def check(self, metadata: Mapping[str, Any]) -> None:
        """Write what the recording depends on, or compare it with what the file has.

        Args:
            metadata: JSON-ready values that all processes must agree on.

        Raises:
            ConfigMismatchError: The file was begun with others.
            SchemaError: It is not such a journal, or it is damaged.
        """
        with self._writing(create=True) as database:
            stored = self._metadata(database)
            if stored is None:
                text = json.dumps(metadata, sort_keys=True)
                database.execute("INSERT INTO meta VALUES ('metadata', ?)", (sealed_text(text, "metadata"),))
        changed = [] if stored is None else differences(stored, json.loads(json.dumps(metadata)))
        if changed:
            raise ConfigMismatchError(
                f"rounds are being recorded to {str(self.path)!r} with another configuration ({'; '.join(changed)}): record "
                "to another file"
            )

    def begin(self, run: str, fields: Mapping[str, Any]) -> None:
        """Commit that a question has begun."""
        stored = (run, sealed_text(json.dumps(fields), run))
        self._commit(lambda database: database.execute("INSERT INTO questions VALUES (?, ?, NULL)", stored))

    def put(self, run: str, r: int, row: Mapping[str, Any]) -> None:
        """Commit one round.

        Raises:
            DataError: The disk is full, or not writable, or the round is there already.
        """
        stored = (run, r, sealed_text(json.dumps(row), run, r))

        def write(database: sqlite3.Connection) -> None:
            if not database.execute("INSERT OR IGNORE INTO rounds VALUES (?, ?, ?)", stored).rowcount:
                raise DataError(f"round {r} of this question was recorded already: two runs go on from one state")

        self._commit(write)

    def n_rounds(self, run: str) -> int | None:
        """Return how many rounds of a question are in the file; None if it is not there, or has ended."""
        with self._writing() as database:
            is_open = database.execute("SELECT 1 FROM questions WHERE run = ? AND ending IS NULL", (run,)).fetchone()
            n = database.execute("SELECT count(*) FROM rounds WHERE run = ?", (run,)).fetchone()[0]
            return None if is_open is None else int(n)

    def decide(self, run: str, columns: Mapping[str, Any]) -> None:
        """Commit what was decided on a question, which may go on."""
        self._commit(lambda database: self._decide(database, run, columns))

    def end(self, run: str, ending: Mapping[str, Any], columns: Mapping[str, Any] | None = None) -> None:
        """Commit how a question ended, and what was decided on it."""
        text = sealed_text(json.dumps(ending), run, "ending")

        def write(database: sqlite3.Connection) -> None:
            if columns:
                self._decide(database, run, columns)
            database.execute("UPDATE questions SET ending = ? WHERE run = ?", (text, run))

        self._commit(write)

    def _decide(self, database: sqlite3.Connection, run: str, columns: Mapping[str, Any]) -> None:
        (stored,) = database.execute("SELECT fields FROM questions WHERE run = ?", (run,)).fetchone()
        text = json.dumps({**self._decoded(stored, run), "decision": dict(columns)})
        database.execute("UPDATE questions SET fields = ? WHERE run = ?", (sealed_text(text, run), run))

    def content(self) -> JournalContent | None:
        """Return everything in the file; None if there is no file.

        Raises:
            SchemaError: The file is damaged.
        """
        if not self.path.exists():
            return None
        if is_url(self.path):
            return self._uploaded_content()
        try:
            with self._faults(), closing(self._connection(create=False)) as database:
                database.execute("BEGIN")
                is_new = database.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
                return JournalContent(metadata={}, questions=[]) if is_new else self._all(database)
        except DataError:
            if self.path.exists():
                raise
            return None  # it was removed meanwhile

    def _uploaded_content(self) -> JournalContent | None:
        """Return everything in a file at a URL: sqlite reads files of this machine only."""
        with tempfile.TemporaryDirectory(prefix="suffice-") as folder:
            journal = copy(self)
            journal.path = Path(folder, self.path.name)
            journal.path.write_bytes(self.path.read_bytes())
            return journal.content()

    @contextmanager
    def emptying(self, *, unfinished: bool = False) -> Iterator[JournalContent]:
        """Yield everything, and remove the questions that have ended unless the body raises; others wait meanwhile.

        Args:
            unfinished: Whether to remove all others, too.

        Raises:
            SchemaError: The file is damaged.
        """
        if not self.path.exists():
            yield JournalContent(metadata={}, questions=[])
            return
        with self._writing(sealed=True) as database:
            content = self._all(database)
            yield content
            ended = [(question.run,) for question in content.questions if unfinished or question.ending is not None]
            database.executemany("DELETE FROM rounds WHERE run = ?", ended)
            database.executemany("DELETE FROM questions WHERE run = ?", ended)

    def seal(self) -> bool:
        """Remove the journal of a part if no question is in it; return whether it is gone."""
        if not self.path.exists():
            return True
        with suppress(SealedError), self._writing(sealed=True) as database:
            if database.execute("SELECT 1 FROM questions LIMIT 1").fetchone():
                return False
            # Who has opened the file and waits for its lock must not write to what is about to be removed.
            database.execute("INSERT OR IGNORE INTO meta VALUES ('sealed', '')")
        with suppress(PermissionError):  # Windows does not remove open files
            self.path.unlink(missing_ok=True)
        return True

    def _metadata(self, database: sqlite3.Connection) -> dict[str, Any] | None:
        stored = database.execute("SELECT value FROM meta WHERE key = 'metadata'").fetchone()
        return None if stored is None else self._decoded(stored[0], "metadata")

    def _all(self, database: sqlite3.Connection) -> JournalContent:
        by_run: dict[str, JournalQuestion] = {}
        total = 0
        for run, fields, ending in database.execute("SELECT run, fields, ending FROM questions ORDER BY rowid"):
            known = None if ending is None else self._decoded(ending, run, "ending")
            by_run[run] = JournalQuestion(run=run, fields=self._decoded(fields, run), ending=known)
            total += _mark(fields) + _mark(ending)
        for run, r, row in database.execute("SELECT run, round, row FROM rounds ORDER BY run, round"):
            if run not in by_run:
                raise SchemaError(f"{str(self.path)!r} {_INCOMPLETE}")
            by_run[run].rows.append(self._decoded(row, run, r))
            total += _mark(row)
        # Journals of older releases have none.
        if _has_tally(database) and database.execute("SELECT total FROM tally").fetchall() != [(total,)]:
            raise SchemaError(f"{str(self.path)!r} {_INCOMPLETE}")
        return JournalContent(metadata=self._metadata(database) or {}, questions=[*by_run.values()])

    def _commit(self, write: Callable[[sqlite3.Connection], Any]) -> None:
        """Write in a commit that the threads of this process share, or later, see `together`."""
        if self._writes is not None:
            self._writes.append(write)
        else:
            self._writers().commit(write, self._writing)

    def _writers(self) -> Writers:
        self._known_writers = writers_of(self.path, self._known_writers)
        return self._known_writers

    @contextmanager
    def _writing(self, *, create: bool = False, sealed: bool = False) -> Iterator[sqlite3.Connection]:
        """Yield a connection with the lock of the file; commit unless the body raises.

        Args:
            create: Whether to create the journal of a part.
            sealed: Whether a sealed one is opened, too.
        """
        try:
            with self._writers().lock, self._faults():
                self.path.parent.mkdir(parents=True, exist_ok=True)
                with closing(self._connection(create=create or not self._is_part)) as database:
                    database.execute("BEGIN IMMEDIATE")
                    for statement in filter(str.strip, _SCHEMA.split(";")):
                        database.execute(statement)
                    if not _has_tally(database):
                        for statement in _tally_schema():
                            database.execute(statement)
                    if not sealed and database.execute("SELECT 1 FROM meta WHERE key = 'sealed'").fetchone():
                        raise SealedError(f"{str(self.path)!r} {_SEALED}")
                    yield database
                    database.execute("COMMIT")
        except DataError as error:
            if self._is_part and not isinstance(error, SealedError) and not self.path.exists():
                raise SealedError(f"{str(self.path)!r} {_SEALED}") from None
            raise

    def _connection(self, *, create: bool = True) -> sqlite3.Connection:
        place = f"{self.path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
        database = sqlite3.connect(place, timeout=_BUSY_S, isolation_level=None, uri=True)
        # A commit survives power loss: the file and the folder, from which sqlite's own journal is removed, are synced.
        database.execute("PRAGMA synchronous=EXTRA")
        return database

    def _faults(self) -> Any:
        return sqlite_faults(self.path, locked=_BUSY, damaged=_DAMAGED)

    def _decoded(self, stored: str, *key: Any) -> dict[str, Any]:
        """Return the value of a row after checking its checksum."""
        text, _, seal = stored.partition("\n")
        try:
            value = load_json(text) if seal == seal_of(text, *key) else None
        except ValueError:
            value = None
        if not isinstance(value, dict):
            raise SchemaError(f"{str(self.path)!r} {_DAMAGED}")
        return value


def _has_tally(database: sqlite3.Connection) -> bool:
    return database.execute("SELECT 1 FROM sqlite_master WHERE name = 'tally'").fetchone() is not None
