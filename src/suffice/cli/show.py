"""Show the progress of a recording, and the rounds of one question."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

from suffice.cli.console import current_sink, number, printable, progress_bar, warn
from suffice.common.tables import Column, counted
from suffice.evaluation.replay import Price
from suffice.loops import BatchProgress, Progress as Recorded
from suffice.policy.rounds import Cost, Decision, Round, total_cost
from suffice.policy.signals import LOOP_COMPONENTS


@contextmanager
def recording_progress(
    title: str, prices: Mapping[str, Price] | None, *, quiet: bool
) -> Iterator[Callable[[Recorded | BatchProgress], None] | None]:
    """Show a progress bar with questions per second, calls, tokens and money, if standard error is a terminal.

    The bar also shows batches.  Without a terminal, a note is printed when a batch ends, since a batch may take a day.
    """
    ended = -1

    def show(state: Recorded | BatchProgress) -> None:
        nonlocal ended
        if isinstance(state, Recorded):
            if sink is not None:
                sink.put(state)
            elif move is not None:
                usd = None if prices is None else money(state.costs, prices)
                move(state.done + state.failed, state.total, spent_so_far(state, usd))
            return
        beside = f"{state.ended:,} of {counted(state.batches, 'batch', 'batches')} ended"
        if move is not None:
            move(state.done, state.requests, f"requests, {beside}")
        elif state.ended != ended and not quiet:
            warn(f"note: {beside}; {state.done:,} of {state.requests:,} requests in the others are answered")
        ended = state.ended

    sink = current_sink()
    if sink is not None:  # in the worker of a cluster
        sink.money = None if prices is None else partial(money, prices=prices)
    with progress_bar(title, quiet=quiet) as move:
        yield show


def spent_so_far(state: Recorded, usd: float | None) -> str:
    """Return the speed and the cost so far, in words."""
    parts = [f"{state.questions_per_s:.1f} questions/s"]
    if state.costs:
        parts += [f"{state.cost.calls:,.0f} calls", f"{number(state.cost.tokens, 0)} tokens"]
    if usd is not None:
        parts.append(f"${number(usd, 4)}")
    return ", ".join(parts)


def money(costs: Mapping[str, Cost], prices: Mapping[str, Price]) -> float:
    """Return the cost of the priced components in USD; NaN if a number of tokens is unknown."""
    spent = 0.0
    for component, price in prices.items():
        spent += price.of_cost(costs.get(component, Cost()))
    return spent


ROUND_COLUMNS = (
    *map(Column, ("round", "answer", "new evidence or feedback", "signals")),
    Column("tokens new/cached"),
    Column("seconds", ".3f"),
)


def round_row(observed: Round, decision: Decision, most: int) -> tuple[Any, ...]:
    """Return one round as a row of a table; drafts and critiques are cut to `most` characters."""
    signals = ", ".join(f"{name} {number(value)}" for name, value in decision.signals.items())
    own = (observed.costs.get(component) for component in LOOP_COMPONENTS)
    cost = sum((cost for cost in own if cost is not None), start=Cost())
    evidence = observed.passages[-1].title if observed.passages else "(none)"
    answer, beside = observed.answer or "(none)", evidence if observed.feedback is None else observed.feedback
    return (
        str(observed.index),
        *(text if len(text) <= most else text[:most] + " ..." for text in (answer, beside)),
        signals,
        f"{number(cost.uncached_tokens, 0)}/{number(cost.cached_tokens, 0)}",
        cost.seconds,
    )


def decision_lines(decision: Decision, costs: Mapping[str, Cost]) -> str:
    """Format the answer, the reason and the cost of one question."""
    cost = total_cost(costs)
    calls = ", ".join(f"{spent.calls:.3g} {component}" for component, spent in costs.items())
    why = f"{decision.reason} ({decision.fired})" if decision.fired else str(decision.reason)
    # Indent the answer, so that none of its lines looks like a line of this program.
    answer = "(none)" if decision.answer is None else printable(decision.answer).replace("\n", "\n         ")
    return (
        f"answer   {answer}\n"
        f"stopped  after round {decision.stop_round}, answer of round {decision.answer_round}; reason: {why}\n"
        f"cost     calls: {calls or 'none'}; {number(cost.tokens, 0)} tokens "
        f"({number(cost.cached_tokens, 0)} cached), {number(cost.seconds, 2)} s"
    )
