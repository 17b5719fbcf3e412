"""Tables and progress bars for people, JSON for programs."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
from rich.console import Console, ConsoleOptions, Group, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from suffice.loop.recorder import Progress as Recorded
from suffice.replays import Price
from suffice.rounds import Cost, Decision, Round, total_cost
from suffice.signals import LOOP_COMPONENTS
from suffice.tables import Table as Results
from suffice.tables import figure

__all__ = [
    "console",
    "decision_lines",
    "number",
    "print_json",
    "print_table",
    "print_text",
    "printable",
    "quiet_bars",
    "recording_progress",
    "round_row",
    "rounds_table",
    "table",
]

_WIDE = 200
"""Columns of tables that go to a file or a pipe, where nothing needs to fit a screen."""

_LONG = 400
"""Characters of a draft or critique that a table shows."""

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


def print_table(results: Results) -> None:
    """Print a table of results, and its notes below it."""
    out = Table(box=None, pad_edge=False, header_style="bold")
    for position, column in enumerate(results.columns):
        side: Literal["left", "right"] = "right" if column.numeric else "left"
        out.add_column(column.name, justify=side, no_wrap=position == 0, overflow="fold")
    for row in results.texts():
        out.add_row(*map(Text, row))  # no markup: answers hold brackets
    console.print(Text(results.title, style="italic"))
    console.print(out)
    for note in results.notes:
        console.print(f"note: {note}", markup=False, soft_wrap=True)
    console.print()


@contextmanager
def recording_progress(
    title: str, prices: Mapping[str, Price] | None, *, quiet: bool
) -> Iterator[Callable[[Recorded], None] | None]:
    """Show a bar with questions per second, calls, tokens and money on standard error, if it is a terminal."""
    if quiet or not errors.is_terminal:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, TextColumn("{task.fields[spent]}"), console=errors, transient=True) as progress:
        task = progress.add_task(title, total=None, spent="")

        def tell(state: Recorded) -> None:
            progress.update(task, total=state.total, completed=state.done + state.failed, spent=_spent(state, prices))

        yield tell


def _spent(state: Recorded, prices: Mapping[str, Price] | None) -> str:
    parts = [
        f"{state.questions_per_s:.1f} questions/s",
        f"{state.cost.calls:,.0f} calls",
        f"{number(state.cost.tokens, 0)} tokens",
    ]
    if prices is not None:
        parts.append(f"${number(money(state.costs, prices), 4)}")
    return ", ".join(parts)


def money(costs: Mapping[str, Cost], prices: Mapping[str, Price]) -> float:
    """Return what the priced components cost, USD; NaN where a token count is unknown."""
    spent = 0.0
    for component, price in prices.items():
        cost = costs.get(component, Cost())
        uncached, cached, output = (np.array(n) for n in (cost.uncached_tokens, cost.cached_tokens, cost.output_tokens))
        spent += float(price.of(uncached, cached, output))
    return spent


ROUND_COLUMNS = ("round", "answer", "new evidence or feedback", "signals", "tokens new/cached", "seconds")


def rounds_table(rows: Iterable[Sequence[str]]) -> Group:
    """Return the rounds of one question as a table."""
    return table("", ROUND_COLUMNS, rows, left=4)


def round_row(observed: Round, decision: Decision) -> list[str]:
    """Return one round as a row."""
    signals = ", ".join(f"{name} {number(value)}" for name, value in decision.signals.items())
    own = (observed.costs.get(component) for component in LOOP_COMPONENTS)
    cost = sum((cost for cost in own if cost is not None), start=Cost())
    evidence = observed.passages[-1].title if observed.passages else "(none)"
    return [
        str(observed.index),
        _start(observed.answer or "(none)"),
        evidence if observed.feedback is None else _start(observed.feedback),
        signals,
        f"{number(cost.uncached_tokens, 0)}/{number(cost.cached_tokens, 0)}",
        number(cost.seconds, 3),
    ]


def _start(text: str) -> str:
    """Return a text, or the start of a long one: a draft may fill pages."""
    return text if len(text) <= _LONG else text[:_LONG] + " ..."


def decision_lines(decision: Decision, costs: Mapping[str, Cost]) -> str:
    """Return the answer, the reason and the cost of one question."""
    cost = total_cost(costs)
    calls = ", ".join(f"{spent.calls:.0f} {component}" for component, spent in costs.items())
    why = f"{decision.reason} ({decision.fired})" if decision.fired else str(decision.reason)
    # Indented, so that no line of an answer looks like one of ours.
    answer = "(none)" if decision.answer is None else printable(decision.answer).replace("\n", "\n         ")
    return (
        f"answer   {answer}\n"
        f"stopped  after round {decision.stop_round}, answer of round {decision.answer_round}; reason: {why}\n"
        f"cost     calls: {calls or 'none'}; {number(cost.tokens, 0)} tokens "
        f"({number(cost.cached_tokens, 0)} cached), {number(cost.seconds, 2)} s"
    )
