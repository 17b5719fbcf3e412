"""Counts of each loss: enough to bound a candidate's mean loss at any time, at any level."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from suffice.errors import SchemaError
from suffice.policy.rounds import Floats
from suffice.verdicts.decisions.wealth import BetSide, stakes_at

_UNIT = 1000
_TINY = 1e-9
_HALVINGS = 20


@dataclass(frozen=True, slots=True)
class LossCounts:
    """The number of times that each loss occurred, in thousandths, by candidate.

    A capital with constant stakes depends on the losses and not on their order, so that these counts give the wealth of a
    bet on any bound.  Losses between thousandths count as the next one that is less favourable to the claim.

    Attributes:
        worst: The largest possible losses of each candidate: a map from thousandths to numbers.
    """

    worst: tuple[Mapping[int, int], ...]
    best: tuple[Mapping[int, int], ...]

    @classmethod
    def of(cls, worst: Floats, best: Floats) -> LossCounts:
        """Count losses.

        Args:
            worst: The largest possible losses, shape ``(n_candidates, n)``, in [-1, 1].
            best: The smallest possible losses, same shape.
        """
        up, down = np.ceil(worst * _UNIT - _TINY), np.floor(best * _UNIT + _TINY)
        return cls(*(tuple(Counter(row.astype(int).tolist()) for row in rows) for rows in (up, down)))

    @classmethod
    def start(cls, n_candidates: int) -> LossCounts:
        """Return counts of nothing."""
        return cls((Counter(),) * n_candidates, (Counter(),) * n_candidates)

    def __add__(self, other: LossCounts) -> LossCounts:
        def added(ours: Sequence[Mapping[int, int]], theirs: Sequence[Mapping[int, int]]) -> tuple[Counter[int], ...]:
            pairs = zip(ours, theirs, strict=True)
            return tuple(
                Counter({key: one.get(key, 0) + two.get(key, 0) for key in {*one, *two}}) for one, two in pairs
            )

        return LossCounts(added(self.worst, other.worst), added(self.best, other.best))

    def most(self, at: int, shares: Floats, level: float) -> float:
        """Return a bound that the mean loss of a candidate does not reach, at a level; 1 if nothing is excluded.

        Args:
            at: The candidate's place among those that are counted.
            shares: The gamblers' shares of the capital.
            level: The probability that this bound is ever too small; 0 excludes nothing.
        """
        return _bound(self.worst[at], "below", shares, level)

    def least(self, at: int, shares: Floats, level: float) -> float:
        """Return a bound that the mean loss of a candidate exceeds, as in `most`; -1 if nothing is excluded."""
        return _bound(self.best[at], "above", shares, level)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            name: [{str(key): row[key] for key in sorted(row)} for row in getattr(self, name)]
            for name in ("worst", "best")
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], n: int, n_losses: int) -> LossCounts:
        """Return the counts that `to_dict` wrote.

        Args:
            data: The values.
            n: Number of candidates that they must be about.
            n_losses: Number of losses that they must count.

        Raises:
            SchemaError: Fields are missing, or the counts contradict these numbers.
        """
        try:
            counts = cls(
                *(tuple({int(key): int(row[key]) for key in row} for row in data[name]) for name in ("worst", "best"))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise SchemaError(f"the losses that a decision file counts do not read: {error!r}") from None
        rows = [*counts.worst, *counts.best]
        fits = all(abs(key) <= _UNIT and number > 0 for row in rows for key, number in row.items())
        if (
            not fits
            or len(counts.worst) != n
            or len(counts.best) != n
            or {sum(row.values()) for row in rows} - {n_losses}
        ):
            raise SchemaError(
                f"a decision file must count {n_losses:,} losses in [-1, 1] of each of {n} candidates; it counts others"
            )
        return counts


def _bound(counts: Mapping[int, int], side: BetSide, shares: Floats, level: float) -> float:
    """Find the bound nearest to the mean whose bet succeeds, by halving; a bet on a bound farther from the mean succeeds, too."""
    losses, numbers = np.array([*counts], dtype=np.float64) / _UNIT, np.array([*counts.values()], dtype=np.float64)
    sign = 1 if side == "below" else -1

    def is_excluded(bound: float) -> bool:
        capital = np.log1p(stakes_at(bound, side)[:, None] * (sign * (bound - losses))) @ numbers
        return bool(np.logaddexp.reduce(capital + np.log(shares)) >= -np.log(level))

    inside, outside = -1.0 * sign, 1.0 * sign
    if level <= 0:
        return outside
    for _ in range(_HALVINGS):
        middle = (inside + outside) / 2
        inside, outside = (inside, middle) if is_excluded(middle) else (middle, outside)
    return outside
