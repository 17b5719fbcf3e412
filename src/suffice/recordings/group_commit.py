"""Writes of several threads to one file, committed together: a commit waits for the disk, and the threads wait once."""

from __future__ import annotations

import os
import sqlite3
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from suffice.errors import DataError

__all__ = ["Writers", "writers_of"]


@dataclass(slots=True, eq=False)
class _Write:
    """One write that waits: what it does, and what became of it."""

    statement: Callable[[sqlite3.Connection], Any]
    is_done: bool = False
    error: BaseException | None = None


class Writers:
    """The threads of this process that write to one file.

    Attributes:
        lock: Who has it may open the file to write. Threads wait for it in turn; for the lock of the file, sqlite asks again
            and again with ever longer pauses.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self._adding = threading.Lock()
        self._waiting: list[_Write] = []

    def commit(
        self,
        statement: Callable[[sqlite3.Connection], Any],
        writing: Callable[[], AbstractContextManager[sqlite3.Connection]],
    ) -> None:
        """Run a statement in the next commit, with those of all threads that wait.

        Args:
            statement: Writes to the connection that it is given. If it raises, it alone is undone.
            writing: Yields a connection, and commits at the end of the block.
        """
        write = _Write(statement)
        with self._adding:
            self._waiting.append(write)
        with self.lock:
            if not write.is_done:
                with self._adding:
                    batch, self._waiting = self._waiting, []
                _commit_all(batch, write, writing)
        if write.error is not None:
            raise write.error


def _commit_all(
    batch: list[_Write], own: _Write, writing: Callable[[], AbstractContextManager[sqlite3.Connection]]
) -> None:
    """Commit what waits; an error of the commit itself is that of every write."""
    try:
        with writing() as database:
            for write in batch:
                database.execute("SAVEPOINT one")
                try:
                    write.statement(database)
                except Exception as error:  # noqa: BLE001 - raised in the thread that wrote
                    write.error = error
                    database.execute("ROLLBACK TO one")
                database.execute("RELEASE one")
    except BaseException as error:
        for write in batch:
            is_ours = isinstance(error, Exception) or write is own
            write.error = error if is_ours else DataError("the commit was interrupted, and nothing of it was stored")
        if not isinstance(error, Exception):
            raise
    finally:
        for write in batch:
            write.is_done = True


_WRITERS: WeakValueDictionary[Path, Writers] = WeakValueDictionary()
_LOCKS = [threading.Lock()]


def _forget() -> None:
    """Begin anew in a forked process: its parent's threads, which may have held locks, are not there."""
    _WRITERS.clear()
    _LOCKS[0] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def writers_of(path: Path, known: Writers | None = None) -> Writers:
    """Return the writers of a file in this process; `known` if it is of this process."""
    if known is not None and known.process == os.getpid():
        return known
    with _LOCKS[0]:
        writers = _WRITERS.get(path)
        if writers is None:
            writers = _WRITERS[path] = Writers()
        return writers
