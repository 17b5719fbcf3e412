"""The progress of a recording, and the rounds of one question."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np
from rich.console import Group
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from suffice.cli.console import errors, number, printable, table
from suffice.loop import Progress as Recorded
from suffice.replays import Price
from suffice.rounds import Cost, Decision, Round, total_cost
from suffice.signals import LOOP_COMPONENTS

__all__ = ["decision_lines", "money", "recording_progress", "round_row", "rounds_table"]

_LONG = 400
"""Characters of a draft or critique that a table shows."""


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
