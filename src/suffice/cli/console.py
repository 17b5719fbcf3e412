"""The console: sentences and tables for people, JSON for programs; nothing that is printed can steer the terminal."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from suffice.tables import Table as Results
from suffice.tables import figure

__all__ = [
    "console",
    "errors",
    "number",
    "present",
    "print_json",
    "print_table",
    "print_text",
    "printable",
    "progress_bar",
    "quiet_bars",
    "say",
    "table",
    "warn",
]

_WIDE = 200
"""Columns of tables that go to a file or a pipe, where nothing needs to fit a screen."""

_SCREEN = 100
"""Columns of a result that is shown on one screen."""

_ROWS = 24
"""Rows of the table on that screen."""

_NOTES = 6
"""Notes on that screen beside those that must be there."""

_NEEDED = re.compile(r"selected here|censored|missing|undefined|unknown|failed|left out|dropped|WARNING", re.IGNORECASE)
"""Notes without which a figure would mislead."""

_DELETE = 0x7F

_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
"""What a terminal takes for orders, line feed and tab aside, and what it cannot show."""


def printable(text: str) -> str:
    r"""Return a text with a visible sign for each control character: a model's reply may hold some.

    >>> printable("a\x1b[2Jb\r\n\tc")
    'a␛[2Jb\n\tc'
    """
    return _CONTROL.sub(_sign, text.replace("\r\n", "\n"))


def _sign(control: re.Match[str]) -> str:
    code = ord(control[0])
    return chr(0x2400 + code) if code < ord(" ") else "\u2421" if code == _DELETE else "\ufffd"


class Terminal(Console):
    """A console on which no text can move the cursor, set a title or clear the screen; styles of our own can."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        """Return the segments of what is printed, text made printable."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text), segment.style)


console = Terminal(highlight=False, width=None if sys.stdout.isatty() else _WIDE)
errors = Terminal(stderr=True, highlight=False, width=None if sys.stderr.isatty() else _WIDE)


def say(text: str, *, bold: bool = False) -> None:
    """Print a sentence to standard output: brackets in it are no markup, and its line is not broken."""
    console.print(text, style="bold" if bold else None, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    """Print a sentence to standard error."""
    errors.print(text, markup=False, soft_wrap=True)


def quiet_bars() -> None:
    """Keep the bars of transformers and of hub downloads out of files and pipes; call it before either is imported."""
    if not errors.is_terminal:
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


def print_json(data: Any) -> None:
    """Print strict JSON to standard output; control characters are escaped in it, as JSON allows."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, indent=2)
    sys.stdout.write(_CONTROL.sub(lambda control: f"\\u{ord(control[0]):04x}", text) + "\n")


def print_text(text: str) -> None:
    """Print a text as it is, but for control characters, to standard output."""
    sys.stdout.write(printable(text))


def number(value: float | None, digits: int = 2) -> str:
    """Return a number for a table; a dash where it is undefined.

    >>> number(0.256), number(float("nan")), number(1234567.0, 0)
    ('0.26', '-', '1,234,567')
    """
    return "-" if value is None else figure(value, f",.{digits}f")


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], *, left: int = 1) -> Group:
    """Return a plain table under its title; the first `left` columns are text, the others numbers."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for position, name in enumerate(columns):
        out.add_column(name, justify="left" if position < left else "right", no_wrap=position == 0, overflow="fold")
    for row in rows:
        out.add_row(*(Text(cell) for cell in row))  # no markup: answers hold brackets
    return Group(*([Text(title, style="italic")] if title else []), out)


def print_table(results: Results, *, width: int | None = None) -> None:
    """Print a table of results, and its notes below it, at most so many columns wide."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    rows, wide = results.texts(), min(width or console.width, console.width)
    short = all(2 * len(row[0]) <= wide for row in rows)  # a longer name would leave the figures no room
    for position, column in enumerate(results.columns):
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        out.add_column(column.name, justify=side, no_wrap=position == 0 and short, overflow="fold")
    for row in rows:
        out.add_row(*map(Text, row))  # no markup: answers hold brackets
    console.print(Text(results.title, style="italic"))
    console.print(out, width=wide)
    for note in results.notes:
        say(f"note: {note}")
    console.print()


def present(
    sentences: Sequence[str], tables: Sequence[Results], notes: Sequence[str] = (), *, details: bool, then: str = ""
) -> None:
    """Print a result on one screen: a sentence, a table, what must be known, and what comes next.

    Args:
        sentences: What the result says; the first is shown.
        tables: Its tables; the first is shown.
        notes: What a reader must know. Notes that differ in their beginning alone are shown once.
        details: Print everything instead.
        then: The next command.
    """
    if details:
        for one in tables:
            print_table(one)
        for text in (*sentences, *(f"note: {note}" for note in notes)):
            say(text)
        return
    for text in sentences[:1]:
        say(text)
    for one in tables[:1]:
        print_table(replace(one, rows=one.rows[:_ROWS], notes=()), width=_SCREEN)
    lines = _alike([*(note for one in tables for note in one.notes), *notes])
    needed = [line for line in lines if _NEEDED.search(line)]
    others = [line for line in lines if line not in needed]
    for line in (*needed, *others[:_NOTES]):
        say(f"note: {line}")
    rows = max(0, len(tables[0].rows) - _ROWS) if tables else 0
    hidden = {"rows": rows, "tables": len(tables[1:]), "notes": len(others[_NOTES:])}
    if any(hidden.values()):
        say(f"--details prints the rest: {', '.join(f'{n} more {what}' for what, n in hidden.items() if n)}")
    if then:
        say(f"next: {then}")


def _alike(notes: Iterable[str]) -> list[str]:
    """Return notes, each first sentence once: what comes before a colon, and numbers, may differ.

    >>> _alike(["tasr: only 1 pair differs", "margin: only 2 pairs differ", "full: only 1 pair differs"])
    ['tasr: only 1 pair differs (also: full)', 'margin: only 2 pairs differ']
    """
    heads: dict[str, list[str]] = {}
    for note in dict.fromkeys(notes):
        head, colon, tail = note.partition(". ")[0].partition(": ")
        heads.setdefault(tail if colon else head, []).append(head if colon else "")
    return [
        (f"{head}: {tail}" if head else tail) + (f" (also: {'; '.join(more)})" if any(more) else "")
        for tail, (head, *more) in heads.items()
    ]


@contextmanager
def progress_bar(title: str, *, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """Yield what moves a bar on standard error to so many of so many; None where that is not a terminal."""
    if quiet or not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=errors, transient=True) as bars:
        task = bars.add_task(title, total=None)
        yield lambda done, total: bars.update(task, completed=done, total=total)
