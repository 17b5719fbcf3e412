"""Writes of several threads to one file, committed together: a commit waits for the disk, and the threads wait once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

from suffice.errors import DataError

__all__ = ["Write", "Writers", "writers_of"]


@dataclass(slots=True, eq=False)
class Write:
    """One write that waits.

    Attributes:
        value: Its content.
        error: The reason why it was refused; None if it was not.
        turn: Set once the write was committed or refused, or its thread is to commit what waits.
        leads: Whether its thread is to commit what waits.
    """

    value: Any
    error: BaseException | None = None
    turn: threading.Event = field(default_factory=threading.Event)
    leads: bool = False


class Writers:
    """The threads of this process that write to one file.

    One of them leads: it commits its own write with all that wait, and hands the lead to a thread whose write came meanwhile. So
    nobody waits for a sync that began after the one with their own write.

    Attributes:
        lock: Whoever has it may open the file to write. Threads wait for it in turn; for the lock of the file, a process asks again
            and again with ever longer pauses.
        known: What the last of them knew of the file; None if nothing.
    """

    def __init__(self) -> None:
        self.process = os.getpid()
        self.lock = threading.RLock()
        self.known: Any = None
        self._adding = threading.Lock()
        self._waiting: list[Write] = []
        self._is_led = False

    def commit(self, value: Any, commit_all: Callable[[Sequence[Write]], None]) -> None:
        """Commit a value, with those of all threads that wait.

        Args:
            value: The content of the write.
            commit_all: Commits writes at once. It gives an error to each one that it refuses; if it raises, none is stored.
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
                if write in self._waiting:  # its thread was interrupted
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
    """Commit what waits; an error of the commit itself is that of every write."""
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
