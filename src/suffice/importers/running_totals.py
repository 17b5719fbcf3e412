"""Tokens that a log counts from a question's beginning: what a round adds is its cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from suffice.importers.round_columns import RoundColumns
from suffice.policy.rounds import Positions

_ENOUGH = 20
"""The least number of steps from a round to the next that show that a count never falls."""

_WRITTEN, _TOKENS = ".output_tokens", "_tokens"


def running_totals(columns: RoundColumns) -> list[str]:
    """Return the columns of tokens that are running totals.

    What a model writes is not longer in every round than in the round before, in each of many questions.  What it reads may be, since
    prompts grow, so input tokens are running totals only beside output tokens that are.
    """
    steps = np.flatnonzero(columns.place > 0)
    written = [name for name in columns.costs if name.endswith(_WRITTEN) and _rises(columns, name, steps)]
    components = {name.removesuffix(_WRITTEN) for name in written}
    others = [
        name
        for name in columns.costs
        if name.endswith(_TOKENS) and name.rpartition(".")[0] in components and name not in written
    ]
    return [*written, *(name for name in others if _rises(columns, name, steps))]


def _rises(columns: RoundColumns, name: str, steps: Positions) -> bool:
    values = columns.costs[name]
    return len(steps) >= _ENOUGH and bool((values[steps] > values[steps - 1]).all())


def subtract_totals(columns: RoundColumns, names: Sequence[str]) -> None:
    """Subtract the total of the round before from each running total."""
    steps = columns.place > 0
    for name in names:
        values = columns.costs[name]
        columns.costs[name] = np.where(steps, values - np.roll(values, 1), values)


def totals_note(theirs: Sequence[str]) -> str:
    """Return the note on running totals, by the names of the log."""
    return f"never falling within a question, so read as running totals, of which a round costs what it adds: {', '.join(theirs)}"
