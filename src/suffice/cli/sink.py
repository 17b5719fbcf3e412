"""Progress reports and errors of commands that run in workers, which have no terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any


@dataclass(slots=True)
class Sink:
    """Stores the latest report of a command.

    Attributes:
        money: Converts costs by component to USD; None without prices.
        is_busy: Whether the command failed because another process holds a file.
    """

    progress: Any = None
    money: Callable[[Any], float] | None = None
    error: str | None = None
    is_busy: bool = False

    def put(self, progress: Any) -> None:
        """Store the progress of a recording."""
        self.progress = progress

    def move(self, done: int, total: int, beside: str = "") -> None:
        """Store the number of finished items and their total."""
        from suffice.loops import Progress

        del beside
        self.progress = Progress(total=total, done=done)

    def report(self) -> ShardReport | None:
        """Return the command's progress; None if it has not reported any."""
        if self.progress is None:
            return None
        costs = dict(self.progress.costs)  # copied, because the command keeps running
        return ShardReport(replace(self.progress, costs=costs), None if self.money is None else self.money(costs))


@dataclass(frozen=True, slots=True)
class ShardReport:
    """The progress of a command; `usd` is the money that it has spent, or None without prices."""

    progress: Any
    usd: float | None


_open: list[Sink] = []


def current_sink() -> Sink | None:
    """Return the sink of the running command; None if it has a terminal, or runs outside a worker."""
    return _open[-1] if _open else None


@contextmanager
def open_sink() -> Iterator[Sink]:
    """Make a command in the `with` block report to a sink; a process runs one command at a time."""
    sink = Sink()
    _open.append(sink)
    try:
        yield sink
    finally:
        _open.remove(sink)
