"""Tokens that a log counts from a question's beginning: what a round adds is its cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.importers.round_columns import RoundColumns

_ENOUGH = 20
"""The least number of steps from a round to the next that show that a count never falls."""

_AS_MUCH = 0.5
"""The least that rounds add on average, as a share of the first one."""

_WRITTEN, _TOKENS = ".output_tokens", "_tokens"


def running_totals(columns: RoundColumns) -> list[str]:
    """Return the columns of tokens that are running totals: they rise in every step, by about as much as the first round needs.

    What a model writes does neither.  What it reads may rise, as prompts grow, so input tokens are running totals only beside
    output tokens that are.
    """
    names = [name for name in columns.costs if name.endswith(_TOKENS) and _is_total(columns, name)]
    components = {name.removesuffix(_WRITTEN) for name in names if name.endswith(_WRITTEN)}
    return [name for name in names if name.rpartition(".")[0] in components]


def _is_total(columns: RoundColumns, name: str) -> bool:
    values, steps = columns.costs[name], np.flatnonzero(columns.place > 0)
    added = values[steps] - values[steps - 1]
    first = values[columns.starts].mean()
    return len(steps) >= _ENOUGH and bool((added > 0).all()) and bool(added.mean() >= _AS_MUCH * first)


def subtract_totals(columns: RoundColumns, names: Sequence[str]) -> None:
    """Subtract the total of the round before from each running total."""
    steps = columns.place > 0
    for name in names:
        values = columns.costs[name]
        columns.costs[name] = np.where(steps, values - np.roll(values, 1), values)


def totals_note(theirs: Sequence[str]) -> str:
    """Return the note on running totals, by the names of the log."""
    return f"never falling within a question, so read as running totals, of which a round costs what it adds: {', '.join(theirs)}"
