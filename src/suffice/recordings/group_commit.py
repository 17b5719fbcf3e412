"""Commit writes of several threads to one file together, so that all of them wait for the disk only once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from suffice.errors import DataError


@dataclass(slots=True, eq=False)
class Write:
    """A write that waits to be committed.

    Attributes:
        error: The reason why the write was rejected; None if it was not rejected.
        turn: An event that is set when the write is committed or rejected, or when the write's thread must commit all
            waiting writes.
        leads: Whether the write's thread must commit all waiting writes.
    """

    value: Any
    error: BaseException | None = None
    turn: threading.Event = field(default_factory=threading.Event)
    leads: bool = False


class Writers:
    """The threads of this process that write to one file.

    One thread leads: it commits its own write and all waiting writes, then hands the lead to a thread whose write came
    meanwhile. So a thread waits only until the sync that includes its own write.

    Attributes:
        lock: Held while a thread has the file open for writing. Threads of a process queue for this lock, whereas
            processes poll for the lock of the file, with ever longer pauses.
        known: The content of the file as the last writer knew it; None before the first write.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.known: Any = None
        self._adding = threading.Lock()
        self._waiting: list[Write] = []
        self._is_led = False

    def commit(self, value: Any, commit_all: Callable[[Sequence[Write]], None]) -> None:
        """Commit a value together with the values of all waiting threads.

        Args:
            value: The content of the write.
            commit_all: A function that commits several writes. It sets the error of each write that it refuses; if it
                raises, no write is stored.
        """
        write = Write(value)
        with self._adding:
            self._waiting.append(write)
            write.leads = not self._is_led
            self._is_led = True
        batch: list[Write] = []
        try:
            if not write.leads:
                write.turn.wait()
            if write.leads:
                with self.lock:
                    with self._adding:
                        batch, self._waiting = self._waiting, []
                    _commit(batch, write, commit_all)
        finally:
            with self._adding:
                if write in self._waiting:  # this thread was interrupted before its turn
                    self._waiting.remove(write)
                if write.leads:
                    self._is_led = bool(self._waiting)
                    for following in self._waiting[:1]:
                        following.leads = True
                        following.turn.set()
            for done in batch:
                done.turn.set()
        if write.error is not None:
            raise write.error


def _commit(batch: Sequence[Write], own: Write, commit_all: Callable[[Sequence[Write]], None]) -> None:
    """Commit waiting writes; if the commit as a whole fails, its error becomes the error of every write."""
    try:
        commit_all(batch)
    except BaseException as error:
        for write in batch:
            is_ours = isinstance(error, Exception) or write is own
            write.error = error if is_ours else DataError("the commit was interrupted, and nothing of it was stored")
        if not isinstance(error, Exception):
            raise


_WRITERS: WeakValueDictionary[Path, Writers] = WeakValueDictionary()
_LOCKS = [threading.Lock()]


def _forget() -> None:
    """Reset all state in a forked process, because the parent's threads and lock holders do not exist there."""
    _WRITERS.clear()
    _LOCKS[0] = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def writers_of(path: Path, known: Writers | None = None) -> Writers:
    """Return the writers of a file in this process.

    They are `known`, unless `known` is None or was inherited through a fork.
    """
    if known is not None and known.process == os.getpid():
        return known
    with _LOCKS[0]:
        writers = _WRITERS.get(path)
        if writers is None:
            writers = _WRITERS[path] = Writers()
        return writers
