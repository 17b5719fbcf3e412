"""Each signal's own threshold, found on tune questions before the search and locked (TASR section 5.3)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from suffice.errors import DataError
from suffice.replays import even_thresholds
from suffice.rounds import Floats
from suffice.searches.data import Questions, find_prompt
from suffice.searches.explore import Explorer
from suffice.searches.space import Block, Literal, Space

__all__ = ["N_THRESHOLDS", "Locked", "lock"]

N_THRESHOLDS = 40
"""Evenly spaced values that are tried for a signal by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The threshold that one signal got.

    Attributes:
        prompt: The prompt whose rounds were read.
        literal: With its threshold.
        quality: Mean of the metric on tune if this literal alone stops.
        calls: Mean calls.
        n_tried: Different values that were tried.
        within_budget: Whether the calls meet the budget.
    """

    prompt: str
    literal: Literal
    quality: float
    calls: float
    n_tried: int
    within_budget: bool


def lock(space: Space, tune: Questions, *, budget: float) -> tuple[Space, tuple[Locked, ...]]:
    """Return the space with all thresholds known.

    A literal without thresholds gets, of 40 evenly spaced values between the smallest and the largest on tune, the one
    with the best quality among those within the budget: the one of fewest calls among equals, and then the lowest.
    Where none is within the budget, the one of fewest calls; `Locked.within_budget` says so.  A grid gets its values.

    Args:
        space: A space.
        tune: Tune questions.
        budget: Most mean calls.

    Raises:
        DataError: A signal has no value on tune.
    """
    named = [block.prompt for block in space.blocks]
    locked: dict[tuple[str, Literal], Locked] = {}
    literals = []
    for block in space.blocks:
        prompt = find_prompt(block.prompt, tune.sides, named)
        locked_literals = []
        for literal in block.literals:
            if literal.thresholds:
                locked_literals.append(literal)
                continue
            values = _tried_values(tune.sides[prompt].of(gated=literal.is_gate).view.columns, literal)
            tried = replace(literal, thresholds=values, grid=0, low=None)
            key = (prompt, literal)
            if not literal.grid and key not in locked:
                locked[key] = _best_threshold(tried, tune, prompt, budget)
            locked_literals.append(tried if literal.grid else locked[key].literal)
        literals.append(locked_literals)
    return space.with_literals(literals), tuple(locked.values())


def _tried_values(columns: Mapping[str, Floats], literal: Literal) -> tuple[float, ...]:
    column = columns[literal.signal]
    if not np.isfinite(column).any():
        raise DataError(
            f"the signal {literal.signal!r} has no value on the tune questions, so no threshold can be found: give its "
            "literal thresholds, leave it out, or search the space 'available'"
        )
    known = column if literal.low is None else np.append(column, np.nanmin(column, initial=literal.low))
    return tuple(dict.fromkeys(even_thresholds(known, literal.grid or N_THRESHOLDS).tolist()))


def _best_threshold(literal: Literal, tune: Questions, prompt: str, budget: float) -> Locked:
    alone = Space(name=literal.signal, blocks=(Block(form="or", literals=(literal,), prompt=prompt),))
    means = Explorer(alone, tune).means(np.arange(len(literal.thresholds)))
    quality, calls = means["quality"], means["calls"]
    allowed = calls <= budget
    order = np.lexsort((np.arange(len(calls)), calls, -quality if allowed.any() else calls))
    best = int(order[allowed[order]][0] if allowed.any() else order[0])
    return Locked(
        prompt=prompt,
        literal=replace(literal, thresholds=(literal.thresholds[best],)),
        quality=float(quality[best]),
        calls=float(calls[best]),
        n_tried=len(literal.thresholds),
        within_budget=bool(allowed.any()),
    )
