"""The best threshold of each signal alone, chosen on tune questions and locked before the search (TASR section 5.3)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from suffice.errors import DataError
from suffice.evaluation.replay import even_thresholds
from suffice.evaluation.search.data import find_prompt
from suffice.evaluation.search.space import Block, Literal, Space
from suffice.evaluation.statistics import ROUNDING
from suffice.policy.rounds import Floats

N_THRESHOLDS = 40
"""Number of evenly spaced values that are tried for a signal by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Locked:
    """The threshold that was locked for one signal.

    Attributes:
        prompt: The prompt whose rounds were read.
        literal: The literal with its threshold.
        quality: Mean of the metric on tune if the rule is this literal alone.
        calls: Mean calls.
        n_tried: Number of distinct values that were tried.
        within_budget: Whether the calls meet the budget.
    """

    prompt: str
    literal: Literal
    quality: float
    calls: float
    n_tried: int
    within_budget: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ThresholdTrial:
    """A literal without thresholds, and the values to try for it.

    Attributes:
        is_locked: Whether one value is chosen and locked; a grid keeps all values.
    """

    prompt: str
    literal: Literal
    is_locked: bool

    @property
    def alone(self) -> Space:
        """The space of rules that consist of this literal alone."""
        blocks = (Block(form="or", literals=(self.literal,), prompt=self.prompt),)
        return Space(name=self.literal.signal, blocks=blocks)


def open_literals(space: Space, prompts: Sequence[str]) -> list[tuple[str, Literal]]:
    """Return the literals without thresholds, each once, with the prompt whose rounds it reads."""
    named = [block.prompt for block in space.blocks]
    every = (
        (find_prompt(block.prompt, prompts, named), literal) for block in space.blocks for literal in block.literals
    )
    return [*dict.fromkeys((prompt, literal) for prompt, literal in every if not literal.thresholds)]


def threshold_trials(
    space: Space, prompts: Sequence[str], column: Callable[[str, Literal], Floats]
) -> dict[tuple[str, Literal], ThresholdTrial]:
    """Return the values to try for each literal without thresholds.

    Args:
        space: The space.
        prompts: The prompts of the recording.
        column: A function that returns the values that a literal reads on tune questions for a prompt; the smallest
            and the largest value are enough.
    """
    tried = {}
    for prompt, literal in open_literals(space, prompts):
        values = _tried_values(column(prompt, literal), literal)
        whole = replace(literal, thresholds=values, grid=0, low=None)
        tried[prompt, literal] = ThresholdTrial(prompt=prompt, literal=whole, is_locked=not literal.grid)
    return tried


def with_thresholds(
    space: Space,
    prompts: Sequence[str],
    tried: Mapping[tuple[str, Literal], ThresholdTrial],
    means: Iterable[Mapping[str, Floats]],
    budget: float,
) -> tuple[Space, tuple[Locked, ...]]:
    """Fill in all thresholds of a space; also return the locked ones.

    A literal with a grid keeps all values of the grid.  For a literal with neither a grid nor thresholds, 40 evenly
    spaced values are tried, between the signal's smallest and largest value on tune questions.  The value with the best
    quality within the budget is locked; among ties, the one with the fewest calls, then the lowest.  If no value meets
    the budget, the one with the fewest calls is locked, and `Locked.within_budget` is False.

    Args:
        space: The space.
        prompts: The prompts of the recording.
        tried: See `threshold_trials`.
        means: For each literal to be locked, in order, the mean outcomes on tune questions of the rules that consist of
            this literal alone, one for each threshold.
        budget: The largest mean number of calls.
    """
    outcomes = iter(means)
    locked = {key: _best_threshold(item, next(outcomes), budget) for key, item in tried.items() if item.is_locked}
    named = [block.prompt for block in space.blocks]
    literals = []
    for block in space.blocks:
        prompt = find_prompt(block.prompt, prompts, named)
        known = {key: item.literal for key, item in tried.items()} | {key: item.literal for key, item in locked.items()}
        literals.append([known.get((prompt, literal), literal) for literal in block.literals])
    return space.with_literals(literals), tuple(locked.values())


def _tried_values(column: Floats, literal: Literal) -> tuple[float, ...]:
    if not np.isfinite(column).any():
        raise DataError(
            f"the signal {literal.signal!r} has no value on the tune questions, so no threshold can be found: give its "
            "literal thresholds, leave it out, or search the space 'available'"
        )
    known = column if literal.low is None else np.append(column, np.nanmin(column, initial=literal.low))
    return tuple(dict.fromkeys(even_thresholds(known, literal.grid or N_THRESHOLDS).tolist()))


def _best_threshold(tried: ThresholdTrial, means: Mapping[str, Floats], budget: float) -> Locked:
    quality, calls = means["quality"], means["calls"]
    allowed = calls <= budget + ROUNDING
    if (
        allowed.any()
    ):  # means that differ only by rounding count as equal, so that the order of summation does not decide
        allowed &= quality >= quality[allowed].max() - ROUNDING
    within = bool(allowed.any())
    candidates = np.flatnonzero(allowed) if within else np.arange(len(calls))
    best = int(candidates[np.argmin(calls[candidates])])
    return Locked(
        prompt=tried.prompt,
        literal=replace(tried.literal, thresholds=(tried.literal.thresholds[best],)),
        quality=float(quality[best]),
        calls=float(calls[best]),
        n_tried=len(tried.literal.thresholds),
        within_budget=within,
    )
