"""The console: sentences and tables for people, JSON for programs; printed text cannot control the terminal.

A command in a worker has no terminal: its progress and errors go to a `Sink`.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from suffice.common.tables import Table, figure

_WIDE = 200
"""The width of tables that go to a file or a pipe, which need not fit a screen."""

_GAP = 2
"""Blanks between two columns."""

_TEXT_WIDTH = 28
"""The width to which a column of text may shrink."""

_DELETE = 0x7F

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")
"""Control characters, except line feed and tab; those that reorder a line; and characters that a terminal cannot show."""


def printable(text: str) -> str:
    r"""Replace each control character by a visible sign, since a model's reply may contain control characters.

    >>> printable("a\x1b[2Jb\r\n\tc")
    'a␛[2Jb\n\tc'
    """
    return _CONTROL.sub(_sign, text.replace("\r\n", "\n"))


def _sign(control: re.Match[str]) -> str:
    code = ord(control[0])
    if 0x2000 < code < 0x20FF:  # noqa: PLR2004 - the block of the reordering characters
        return f"<U+{code:04X}>"
    return chr(0x2400 + code) if code < ord(" ") else "\u2421" if code == _DELETE else "\ufffd"


class Terminal(Console):
    """A console that makes text printable, so that text cannot move the cursor, set a title or clear the screen."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Return the segments to print, with their text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = Terminal(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
errors = Terminal(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE)


def say(text: str, *, bold: bool = False) -> None:
    """Print a sentence to standard output on one line; brackets in it are not read as markup."""
    console.print(text, style="bold" if bold else None, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a sentence to standard error."""
    errors.print(text, markup=False, soft_wrap=True)


def quiet_bars() -> None:
    """Hide the progress bars of transformers and of hub downloads if standard error is not a terminal.

    Call this before importing these libraries.
    """
    if not errors.is_terminal:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def print_json(data: Any) -> None:
    """Print strict JSON to standard output, with control characters escaped as JSON allows."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2)
    sys.stdout.write(_CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text) + "\n")


def print_text(text: str) -> None:
    """Print a text to standard output, unchanged except for control characters."""
    sys.stdout.write(printable(text))


def number(value: float | None, digits: int = 2) -> str:
    """Format a number for a sentence; a dash if it is undefined.

    >>> number(0.256), number(float("nan")), number(1234567.0, 0)
    ('0.26', '-', '1,234,567')
    """
    return "-" if value is None else figure(value, f",.{digits}f")


def table_view(table: Table, fit: int | None = None) -> Grid:
    """Convert a table, without its title and notes, to a table of the library `rich`.

    Args:
        table: The table.
        fit: The width of the table; headings and texts may wrap, numbers stay on one line.  The table must fit (see `fits`).
    """
    grid = Grid(box=None, pad_edge=False, header_style="bold")
    widths: list[int | None] = [None] * len(table.columns)
    if fit is not None:  # spare width goes to the first columns that need it
        ranges = _width_ranges(table)
        spare = fit - _GAP * (len(ranges) - 1) - sum(least for least, _ in ranges)
        for place, (least, whole) in enumerate(ranges):
            widths[place] = taken = min(whole, least + spare)
            spare -= taken - least
    for column, width in zip(table.columns, widths, strict=True):
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        grid.add_column(Text(column.name), justify=side, width=width, overflow="fold")
    for row in table.texts():
        grid.add_row(*map(Text, row))  # plain text, not markup, since answers may contain brackets
    return grid


def fits(table: Table, width: int) -> bool:
    """Return True if a table fits into a width when its headings and texts may wrap and its numbers may not."""
    return sum(least for least, _ in _width_ranges(table)) + _GAP * (len(table.columns) - 1) <= width


def _width_ranges(table: Table) -> list[tuple[int, int]]:
    """Return the minimum width of each column, and its width without wrapping."""
    ranges = []
    for column, *cells in zip(table.columns, *table.texts(), strict=True):
        longest = max((cell_len(line) for cell in cells for line in cell.splitlines()), default=0)
        words = max(map(cell_len, column.name.split()), default=0)
        least = max(words, longest if column.numeric else min(longest, _TEXT_WIDTH))
        ranges.append((least, max(longest, cell_len(column.name))))
    return ranges


def print_table(table: Table, to: Terminal | None = None) -> None:
    """Print a whole table, with its notes below the table, to the console `to`; by default to standard output."""
    to = console if to is None else to
    if table.title:
        to.print(Text(table.title, style="italic"))
    to.print(table_view(table, to.width if fits(table, to.width) else None))
    for note in table.notes:
        to.print(f"note: {note}", markup=False, soft_wrap=True)
    to.print()


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[..., None] | None]:
    """Show a progress bar on standard error; yield a function that moves it, or None if standard error is not a terminal.

    In a cluster's worker, the bar is shown by the driver instead.

    Yields:
        A function that takes the number of finished items, the total, and a text beside the bar.
    """
    sink = current_sink()
    if sink is not None:
        yield sink.move
        return
    if quiet or not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[beside]}"), console=errors, transient=True) as bars:
        task = bars.add_task(title, total=None, beside="")
        yield lambda done, total, beside="": bars.update(task, completed=done, total=total, beside=beside)


@contextmanager
def status(title: str, *, quiet: bool = False) -> Iterator[Callable[[str], None]]:
    """Show a spinner on standard error if it is a terminal; yield a function that updates its text."""
    if quiet or not errors.is_terminal:
        yield lambda _: None
        return
    with errors.status(title) as line:
        yield lambda step: line.update(f"{title}: {step}")


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
        """Return the command's progress; None if the command has not reported progress yet."""
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
    """Return the sink of the running command; None if the command has a terminal, or runs outside a worker."""
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
