"""Signs in the answers themselves that they follow one another, and are not independent samples in any order."""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from suffice.policy.rounds import Floats

_LEAST = 3
_SURE = 3.0
"""Standard errors of a sign from which on it is one; of samples, one log in a hundred has that."""


@dataclass(slots=True)
class OrderSigns:
    """Three signs that would be 0 on average if the answers of a question were exchangeable.

    They are the agreement of neighbours less that of all pairs, the agreement of the last two answers less that of the first two,
    and the score of the last answer less that of the first.

    Attributes:
        sums: The number, the sum and the sum of squares of each sign over questions.
    """

    sums: list[list[float]] = field(default_factory=lambda: [[0.0, 0.0, 0.0] for _ in range(3)])

    def add(self, keys: Sequence[Hashable], scores: Floats | None) -> None:
        """Count the answers of a question, and their scores."""
        if len(keys) >= _LEAST:
            same = [keys[i] == keys[i - 1] for i in range(1, len(keys))]
            pairs = sum(n * (n - 1) for n in map(keys.count, {*keys})) / (len(keys) * (len(keys) - 1))
            self._count(0, sum(same) / len(same) - pairs)
            self._count(1, float(same[-1]) - float(same[0]))
        if scores is not None and len(scores) > 1:
            self._count(2, float(scores[-1] - scores[0]))

    def _count(self, sign: int, value: float) -> None:
        if not math.isnan(value):
            for power in range(3):
                self.sums[sign][power] += value**power

    @property
    def are_clear(self) -> bool:
        """True if at least one sign is too far from 0 for exchangeable answers."""
        return any(_is_clear(*own) for own in self.sums)


def _is_clear(n: float, total: float, squares: float) -> bool:
    spread = n * squares - total**2
    return n > 1 and total**2 * (n - 1) > _SURE**2 * spread
