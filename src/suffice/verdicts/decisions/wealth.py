"""Betting against bounds on the mean loss: evidence that is valid after every question."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from suffice.errors import DataError, SchemaError
from suffice.policy.rounds import Floats
from suffice.verdicts.losses import two_digits

N_STAKES = 12
_LARGEST = 0.99
"""Share of the stake that a single worst loss would ruin."""
_SMALLEST = 0.01
"""The smallest stake, as a share of the largest: enough for losses that vary most and bounds below one point."""
_PARTS = np.geomspace(_SMALLEST, 1.0, N_STAKES)
_BLOCK = 4096  # losses processed at once; bounds memory
FOUR_OF_FIVE = 0.841621
"""The quantile of a normal distribution below which four fifths of it lie."""
_MOST_LOSSES = 1_000_000
_UNIT = 1000
"""The parts of a loss of 1 in which losses are counted."""
_TINY = 1e-9
_HALVINGS = 20

BetSide = Literal["below", "above"]
_REHEARSED = 0.7
"""Share of the capital that is divided by the bets on tune questions; the rest guards against tune questions that mislead."""

Prior = Literal["tune", "by stake", "even"]
"""How the gamblers share the capital at the start: by bets on tune questions, or as files of older versions do."""

_POWERS: Mapping[str, float] = {"tune": 0.6, "by stake": 1.0, "even": 0.0}
"""The power of the stakes that the shares are in proportion to, before any tune question; by prior."""


def stakes_at(bound: float, side: BetSide) -> Floats:
    """Return the share of the remaining capital that each gambler stakes per unit of loss, for a bound in (-1, 1)."""
    worst = 1 - bound if side == "below" else 1 + bound  # the most that a bet can lose
    stakes: Floats = _LARGEST / worst * _PARTS
    return stakes


@dataclass(frozen=True, slots=True, kw_only=True)
class Wealth:
    """The capital of gamblers who bet that the mean of losses in [-1, 1] lies below a bound, or above it.

    Each gambler starts with a share of a capital of 1, and stakes a constant share of the remaining capital on every
    loss; the wealth is the sum over all gamblers.  If the mean loss is not on the side that the gamblers bet on, the
    capital of each gambler is a non-negative supermartingale. So is the sum of all capitals, for any shares that are
    fixed beforehand. Then the probability that the sum ever reaches 1 / alpha is at most alpha (Ville's inequality;
    Waudby-Smith and Ramdas 2024, "Estimating means of bounded random variables by betting", section 4).  "Ever" means
    that you may look after each loss, and add more losses later.  A mixture of constant stakes works for any number of
    losses and any variance, so it has no parameter to choose.

    The shares are in proportion to the stakes to the power 0.6, because most changes of a loop lose little.  Tune
    questions, on which nobody bets, improve the shares: 70 % of the capital is divided in proportion to the capital
    that each gambler would have after betting on the tune questions (Bayes' rule; Cover 1991, "Universal portfolios").
    The other 30 % are divided by the stakes alone.

    >>> import numpy as np
    >>> wealth = Wealth.start(0.02, "below", 1).bet(np.zeros((1, 400)))
    >>> bool(wealth.log_highest[0] > np.log(20)), wealth.n
    (True, 400)

    Attributes:
        bound: The bound on the mean loss, in (0, 1).
        side: `below` to show that the mean loss is smaller than the bound, `above` to show that it is larger.
        log_capital: Logarithm of each gambler's capital relative to its start, shape ``(n_candidates, n_stakes)``.
        log_highest: Logarithm of the highest wealth so far, at least 0, shape ``(n_candidates,)``.
        squares: Sum of the squared changes of the logarithm of each capital, shape of `log_capital`.
        shares: Each gambler's share of the capital at the start, shape of `log_capital`; those of a candidate add up to
            1. They never change, because the error bound would break if they changed after some losses while the
            highest wealth is kept.
        n: Number of losses of each candidate so far.
        prior: The name of the method that determined the shares.
    """

    bound: float
    side: BetSide
    log_capital: Floats
    log_highest: Floats
    squares: Floats
    shares: Floats
    n: int = 0
    prior: Prior = "tune"

    @classmethod
    def start(cls, bound: float, side: BetSide, n_candidates: int, tune: Floats | None = None) -> Wealth:
        """Return the wealth before the first loss.

        Args:
            bound: See the class.
            side: See the class.
            n_candidates: Number of candidates.
            tune: Losses of tune questions, shape ``(n_candidates, n)``, in [-1, 1]; none of these questions may be bet
                on later. None = no tune questions.

        Raises:
            DataError: The bound lies outside (0, 1), or a loss outside [-1, 1].
        """
        start = cls._with_shares_of("tune", bound, side, n_candidates)
        if tune is None:
            return start
        grown = start.bet(tune).log_capital
        learned = start.shares * np.exp(grown - grown.max(axis=-1, keepdims=True))
        learned /= learned.sum(axis=-1, keepdims=True)
        return replace(start, shares=_REHEARSED * learned + (1 - _REHEARSED) * start.shares)

    @classmethod
    def _with_shares_of(cls, prior: Prior, bound: float, side: BetSide, n_candidates: int) -> Wealth:
        if not 0 < bound < 1:
            raise DataError(
                f"the largest loss must lie between 0 and 1, both excluded, not {bound!r}: 0.02 is two points"
            )
        zeros, shares = np.zeros((n_candidates, N_STAKES)), stakes_at(bound, side) ** _POWERS[prior]
        return cls(
            bound=bound,
            side=side,
            log_capital=zeros,
            log_highest=zeros[:, 0],
            squares=zeros,
            shares=np.broadcast_to(shares / shares.sum(), zeros.shape),
            prior=prior,
        )

    def begun_anew(self) -> Wealth:
        """Return the wealth before the first loss, with the same gamblers and shares."""
        nothing = np.zeros_like(self.log_capital)
        return replace(self, log_capital=nothing, log_highest=nothing[:, 0], squares=nothing, n=0)

    def of(self, place: int) -> Wealth:
        """Return the wealth of one candidate."""
        rows = {name: getattr(self, name)[[place]] for name in ("log_capital", "log_highest", "shares", "squares")}
        return replace(self, **rows)

    @property
    def stakes(self) -> Floats:
        """The share that each gambler stakes, per unit of loss."""
        return stakes_at(self.bound, self.side)

    def bet(self, losses: Floats) -> Wealth:
        """Return the wealth after further losses.

        Args:
            losses: Shape ``(n_candidates, n)``, in [-1, 1], in an order that does not depend on the losses.

        Raises:
            DataError: A loss is undefined or outside [-1, 1].
        """
        if not (np.abs(losses) <= 1).all():  # also where undefined
            raise DataError("losses must lie in [-1, 1] and be defined: what is unknown counts at its worst")
        gains = self.bound - losses if self.side == "below" else losses - self.bound
        capital, highest, squares = self.log_capital, self.log_highest, self.squares
        stakes = stakes_at(self.bound, self.side)
        for first in range(0, losses.shape[-1], _BLOCK):
            block = gains[:, first : first + _BLOCK]
            # The gamblers have an axis of their own; they are summed after every loss, because the wealth may be
            # highest after any.
            growth = np.log1p(stakes[:, None] * block[:, None, :])
            squares = squares + (growth**2).sum(axis=-1)
            paths = capital[:, :, None] + np.cumsum(growth, axis=-1)
            shared = paths + np.log(self.shares)[:, :, None]
            top = shared.max(axis=1)
            wealth = top + np.log(np.exp(shared - top[:, None, :]).sum(axis=1))
            capital, highest = paths[:, :, -1], np.maximum(highest, wealth.max(axis=-1))
        n = self.n + losses.shape[-1]
        return replace(self, log_capital=capital, log_highest=highest, squares=squares, n=n)

    def more_losses(self, alpha: float, place: int, z: float = FOUR_OF_FIVE) -> int | None:
        """Estimate how many further losses would make the bet on a candidate succeed, by default in four of five cases.

        If losses stay distributed as they were, the logarithm of the capital of a constant stake is about normal, with
        known mean and variance. The estimate uses the stake that needs the fewest losses. A small sample often lacks
        the rare large losses, so the estimate adds one loss of the least favourable size.

        Args:
            alpha: The risk of a false proof.
            place: The candidate.
            z: The quantile of a normal distribution that sets the share of cases; 0 means one of two cases.

        Returns:
            The number. None if there are no losses yet, if more than a million losses would be needed, or if the mean
            with the added loss is on the wrong side of the bound, so that no number is enough.
        """
        if not self.n:
            return None
        worse = self.of(place).bet(np.array([[1.0 if self.side == "below" else -1.0]]))
        mean = worse.log_capital[0] / worse.n
        spread = np.sqrt(np.maximum(worse.squares[0] / worse.n - mean**2, 0.0))
        # Assume that one gambler alone must reach the required wealth.
        lacking = -np.log(alpha) - np.log(worse.shares[0]) - worse.log_capital[0]
        with np.errstate(divide="ignore", invalid="ignore"):
            root = (z * spread + np.sqrt((z * spread) ** 2 + 4 * mean * np.maximum(lacking, 0))) / (2 * mean)
        number = float(np.where(mean > 0, root**2, np.inf).min())
        return None if number > _MOST_LOSSES else two_digits(math.ceil(number))

    def shown(self, alpha: float) -> np.typing.NDArray[np.bool_]:
        """Return a mask of the candidates whose wealth has reached 1 / alpha, shape ``(n_candidates,)``."""
        reached: np.typing.NDArray[np.bool_] = self.log_highest >= -np.log(alpha)
        return reached

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values."""
        return {
            "bound": self.bound,
            "side": self.side,
            "n": self.n,
            "log_capital": self.log_capital.tolist(),
            "log_highest": self.log_highest.tolist(),
            "squares": self.squares.tolist(),
            "prior": self.prior,
            **({"shares": self.shares.tolist()} if self.prior == "tune" else {}),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Wealth:
        """Return the wealth that `to_dict` wrote.

        Raises:
            SchemaError: Fields are missing, or their shapes contradict each other.
        """
        prior = data.get("prior", "even")  # old files, from before there were several priors, name none
        if data.get("side") not in ("below", "above") or prior not in _POWERS:
            raise SchemaError(
                f"the evidence of a decision file has side {data.get('side')!r} and prior {prior!r}; allowed: below, above; "
                f"{', '.join(_POWERS)}"
            )
        try:
            start = cls._with_shares_of(prior, float(data["bound"]), data["side"], len(data["log_highest"]))
            shape = start.shares.shape
            wealth = replace(
                start,
                log_capital=np.asarray(data["log_capital"], dtype=np.float64).reshape(shape),
                log_highest=np.asarray(data["log_highest"], dtype=np.float64),
                squares=np.asarray(data["squares"], dtype=np.float64).reshape(shape),
                shares=np.asarray(data["shares"], dtype=np.float64).reshape(shape) if prior == "tune" else start.shares,
                n=int(data["n"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"the evidence of a decision file does not read: {error!r}") from None
        if not all(np.isfinite(array).all() for array in (wealth.log_capital, wealth.log_highest, wealth.squares)):
            raise SchemaError("the evidence of a decision file has undefined wealth")
        if not (wealth.shares > 0).all() or not np.allclose(wealth.shares.sum(axis=-1), 1, rtol=0, atol=1e-9):
            raise SchemaError("the evidence of a decision file has shares of the capital that do not add up to 1")
        return wealth


@dataclass(frozen=True, slots=True)
class LossCounts:
    """The number of times that each loss occurred, by candidate; losses are rounded to thousandths.

    With constant stakes, the capital does not depend on the order of the losses, so these counts determine the wealth
    of a bet on any bound.  A loss between two thousandths is rounded to the one that is less favourable to the claim.

    Attributes:
        worst: For each candidate, a map from the largest possible loss in thousandths to its number of questions.
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
        found = [[np.unique(row, return_counts=True) for row in rows.astype(int)] for rows in (up, down)]
        return cls(
            *(
                tuple(dict(zip(losses.tolist(), numbers.tolist(), strict=True)) for losses, numbers in rows)
                for rows in found
            )
        )

    def __add__(self, other: LossCounts) -> LossCounts:
        pairs = (zip(self.worst, other.worst, strict=True), zip(self.best, other.best, strict=True))
        return LossCounts(
            *(
                tuple({key: one.get(key, 0) + two.get(key, 0) for key in sorted({*one, *two})} for one, two in both)
                for both in pairs
            )
        )

    def bound(self, at: int, side: BetSide, shares: Floats, level: float) -> float:
        """Return the bound nearest to a candidate's mean loss among the bounds that a bet excludes.

        If the bet excludes no bound, return -1 or 1.

        Bets on bounds farther from the mean succeed, too, so the bound can be found by bisection.

        Args:
            at: The candidate's position in `worst`.
            side: `below` for a bound that the mean loss does not reach, `above` for one that it exceeds.
            shares: The gamblers' shares of the capital.
            level: The probability that the bound is ever wrong; 0 excludes nothing.
        """
        counts, sign = (self.worst[at], 1.0) if side == "below" else (self.best[at], -1.0)
        losses, numbers = np.array([*counts], dtype=np.float64) / _UNIT, np.array([*counts.values()], dtype=np.float64)
        inside, outside = -sign, sign
        for _ in range(_HALVINGS if level > 0 else 0):
            middle = (inside + outside) / 2
            capital = np.log1p(stakes_at(middle, side)[:, None] * (sign * (middle - losses))) @ numbers
            is_excluded = np.logaddexp.reduce(capital + np.log(shares)) >= -np.log(level)
            inside, outside = (inside, middle) if is_excluded else (middle, outside)
        return outside

    @classmethod
    def from_dict(cls, data: Mapping[str, Any], n: int, n_losses: int) -> LossCounts:
        """Return the counts from the values in a decision file.

        Args:
            data: The values.
            n: The required number of candidates.
            n_losses: The required number of losses of each candidate.

        Raises:
            SchemaError: Fields are missing, or the counts contradict `n` or `n_losses`.
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


def bound_by_labels(max_loss: float, noise: float) -> float:
    """Return the mean loss that labels show on average if the true mean loss is `max_loss`.

    If a share `noise` of the labels is wrong at random, a question with a true loss of 1 shows a loss of 1 by its label
    in ``1 - noise`` of the cases, and a loss of -1 in the rest.

    >>> bound_by_labels(0.02, 0.0), round(bound_by_labels(0.02, 0.1), 9)
    (0.02, 0.016)
    """
    return max_loss * (1 - 2 * noise)
