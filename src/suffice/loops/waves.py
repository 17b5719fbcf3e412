"""Request several rounds at once, while the policy decides on them in the order of the requests.

Short answers often arrive first, so that deciding in the order of arrival would favour them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

from suffice.common.tables import counted
from suffice.loops.course import RoundResult
from suffice.policy.rounds import Cost, Round, total_cost

SURPLUS = "surplus"
"""The component of calls that were requested but not needed."""

_CANCELLED = Cost(calls=1.0, uncached_tokens=math.nan, cached_tokens=math.nan, output_tokens=math.nan)


@dataclass(frozen=True, slots=True)
class Surplus:
    """Samples that were requested in a wave but not needed for the decision, or a stretch of thought beyond the stop.

    Attributes:
        cost: The cost of the samples or thoughts, without waiting time.  If a sample was cancelled, the tokens are NaN,
            since the number of its generated tokens is unknown.  For a stretch of thought, the tokens that had arrived
            are counted.
        samples: Number of these samples.
        cancelled: Number of these samples that were cancelled in flight.
        what: The noun for notes, singular and plural.
    """

    cost: Cost = field(default_factory=Cost)
    samples: int = 0
    cancelled: int = 0
    what: tuple[str, str] = ("sample", "samples")

    def __add__(self, other: Surplus) -> Surplus:
        what = other.what if other.samples else self.what
        return Surplus(self.cost + other.cost, self.samples + other.samples, self.cancelled + other.cancelled, what)

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on the surplus, for readers of the outcome."""
        if not self.samples:
            return ()
        note = f"requested beyond the stop: {counted(self.samples, *self.what)}"
        unknown = ", whose tokens are unknown" if math.isnan(self.cost.tokens) else ""
        return (f"{note}, {self.cancelled:,} cancelled in flight{unknown}" if self.cancelled else note,)


class Wave:
    """The rounds of one question that were requested together."""

    def __init__(self, width: int, last: int, make: Callable[[int], Coroutine[Any, Any, RoundResult]]) -> None:
        self._width, self._last, self._make = width, last, make
        self._tasks: dict[int, asyncio.Task[RoundResult]] = {}
        self._waited = 0.0

    async def result(self, r: int) -> RoundResult:
        """Return round `r`, after requesting its wave if necessary.

        With a wave of one, this method itself never suspends; only the round's own call may.
        """
        if self._width == 1:
            return await self._make(r)
        if r not in self._tasks:
            wave = range(r, min(r + self._width - 1, self._last) + 1)
            self._tasks = {number: asyncio.create_task(self._make(number)) for number in wave}
            self._waited = 0.0
        result = await self._tasks.pop(r)
        return replace(result, observed=self._as_waited(result.observed))

    def _as_waited(self, observed: Round) -> Round:
        """Set a round's seconds to the time by which it prolonged its wave."""
        seconds = total_cost(observed.costs).seconds
        added = max(0.0, seconds - self._waited)
        self._waited = max(self._waited, seconds)
        share = added / seconds if seconds else 0.0
        costs = {name: replace(cost, seconds=share * cost.seconds) for name, cost in observed.costs.items()}
        return replace(observed, costs=costs)

    async def end(self) -> Surplus:
        """Cancel rounds in flight, and return the surplus; a second call returns an empty surplus."""
        tasks, self._tasks = list(self._tasks.values()), {}
        cost, cancelled, arrived = Cost(), 0, 0
        for task in tasks:
            if task.cancel():
                cancelled += 1
                cost = cost + _CANCELLED
        for result in await asyncio.gather(*tasks, return_exceptions=True) if tasks else ():
            if isinstance(result, RoundResult):  # a failed call has no cost, as elsewhere
                arrived += 1
                cost = cost + replace(total_cost(result.observed.costs), seconds=0.0)
        return Surplus(cost, arrived + cancelled, cancelled)
