"""An alarm that can run forever: bets that a mean loss has passed its bound, with new bets after every audit.

The function `share` divides a total of 1 into infinitely many parts.  Each of these bets, and each window or look, gets
one part.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from suffice.errors import DataError
from suffice.policy.rounds import Floats, Mask


def share(number: npt.ArrayLike, even: float = 1.0) -> Floats:
    """Return the share of the k-th part, k = 1, 2, ...; all shares add up to 1.

    The share falls like ``1 / (k log(k)**2)``, which is almost the slowest decrease with a finite sum: the logarithm of
    the 100,000th share is -16.6, and the logarithm of 1 / 100,000 is -11.5.

    >>> share([1, 2, 3]).round(4).tolist()
    [0.4094, 0.1141, 0.0574]

    Args:
        number: The number k, any shape.
        even: Approximate number of first parts with nearly equal shares.
    """
    k = np.asarray(number, dtype=np.float64)
    # share_left(k) - share_left(k + 1), without cancellation
    shares: Floats = np.log1p(1 / (even + k - 1)) * share_left(k, even) * share_left(k + 1, even)
    return shares


def share_left(number: npt.ArrayLike, even: float = 1.0) -> Floats:
    """Return the share of the k-th part and all later ones, ``1 / (1 + log(1 + (k - 1) / even))``.

    >>> share_left([1, 2]).round(4).tolist()
    [1.0, 0.5906]
    """
    shares: Floats = 1 / (1 + np.log1p((np.asarray(number, dtype=np.float64) - 1) / even))
    return shares


_STAKES_EACH = 10
EVEN = 100
"""Number of first starting points with about equal shares; no change can be noticed after fewer audits anyway."""
_NEAR_RUIN = 0.99
"""Largest stake, as a share of the stake at which the smallest possible loss would take the whole capital."""
_SMALL_EXCESS = 0.005
"""Excess of the loss over the bound, half a point, for which the smallest stake is about right."""
_VALUES_AT_ONCE = 1 << 19
"""A bound on memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The evidence against "every question's expected loss, given all before it, is at most epsilon".

    Gamblers bet that audited losses are larger than epsilon.  A gambler with stake k multiplies the capital by
    ``1 + k (loss - epsilon)`` at each bet; the stake is at most ``1 / (epsilon - low)``, so no capital becomes negative.
    If the hypothesis is true, each capital is a non-negative supermartingale.  New gamblers begin at every bet, since a
    rule can start to fail at any time, and older gamblers would first have to win back the capital that they lost in good
    times.  All gamblers who begin at bet j together own `share(j, EVEN)`, divided evenly over the stakes; gamblers
    who have not begun keep their share.  Shares sum to 1, so the total capital is a non-negative supermartingale that
    starts at 1: it ever reaches 1 / alpha with probability at most alpha, however long it runs (Ville's inequality).
    Sums over starting points are the detectors of Shin, Ramdas and Rinaldo 2023, "E-detectors"; with weights that sum
    to 1, the probability of any false alarm is bounded over an infinite run.

    The price of many starting points is the logarithm of 1 / share: 6 after 100 audits, 16 after 100,000.  A late
    change therefore takes somewhat longer than an early one, by the logarithm of the age; a single gambler would need
    longer in proportion to the age.

    *Which losses.*  Let L be a question's loss, A be 1 if it is audited and else 0, and pi the rate of audits.  If the
    rate does not depend on the question (it may change over time), bets are made only on audited questions.  The draw
    tells nothing about the loss, so ``E[1 + k A (L - epsilon)] = 1 + k pi E[L - epsilon] <= 1``.  If the rate depends on
    the question, the audited questions are a biased sample.  Then give the smallest rate, `least_rate`: a bet on
    ``Z = A L / pi`` with stake ``least_rate * k`` is made on every question.  Its factor ``1 + k least_rate (Z - epsilon)``
    has the same bound, and an unaudited question costs a little.  This second form is valid in either case, but slower
    where most rates are larger than the smallest.  Before using a smaller rate, lower `least_rate` in the present alarm,
    ``dataclasses.replace(alarm, least_rate=...)``: a stake may depend on the past, and the capital that was won stays.

    *Repeated questions.*  If audits are drawn by the question's id, all repetitions of a question are audited or none;
    their losses are then known beforehand, so the hypothesis would be false without any change.  Count each question
    once, at its first request; the hypothesis is then about new questions.  If the draw is by request, each may count.

    *Order.*  Give observations in the order of the questions, not in the order in which losses become known, since
    complaints arrive first.  Wait for each loss until a deadline.  After the deadline, an audit that has not ended counts
    as 1, and an audit without a label as the smallest possible loss: evidence grows with every loss, so later labels
    cannot reduce it.

    >>> import numpy as np
    >>> alarm = Alarm.start(0.02).observe(np.zeros(2000))
    >>> alarm.rings.item(), round(float(alarm.log_value), 2)
    (False, -0.91)
    >>> alarm = alarm.observe(np.tile([0.0, 0.0, 1.0, 0.0], 30))
    >>> alarm.rings.item(), int(alarm.rang_at)
    (True, 2075)

    Attributes:
        epsilon: The bound, in (0, 1).
        alpha: Probability that a false alarm ever rings.
        low: The smallest possible loss: -1 for `net`, 0 for `harm`, which allows larger stakes.
        least_rate: The smallest rate at which any question is audited; None if bets are made only on audited questions.
        log_capital: Logarithm of the capital of gamblers who have begun, for each stake, shape ``(*shape, n_stakes)``.
        begun: Number of starting points so far, `shape`.
        due: Whether further gamblers begin at the next bet, `shape`.
        n: Number of observations so far.
        log_value: Logarithm of the whole value, `shape`.
        log_highest: Logarithm of the highest value so far, at least 0, `shape`.
        rang_at: The observation, counted from 1, after which the alarm rang first; 0 while it is silent.  `shape`.
    """

    epsilon: float
    alpha: float
    low: float
    least_rate: float | None
    log_capital: Floats
    begun: npt.NDArray[np.int64]
    due: Mask
    n: int
    log_value: Floats
    log_highest: Floats
    rang_at: npt.NDArray[np.int64]

    @classmethod
    def start(
        cls,
        epsilon: float,
        alpha: float = 0.05,
        *,
        low: float = -1.0,
        least_rate: float | None = None,
        shape: tuple[int, ...] = (),
    ) -> Alarm:
        """Return the state before the first question.

        Args:
            epsilon: The bound of the certificate, in (0, 1).
            alpha: Probability that a false alarm ever rings, in (0, 1).
            low: The smallest possible loss, -1 or 0.
            least_rate: If rates depend on the question: the smallest rate that will ever be used, in (0, 1].
            shape: Shape of many parallel runs, for simulations.

        Raises:
            DataError: A number lies outside its range.
        """
        if not 0 < epsilon < 1:
            raise DataError(f"epsilon must lie between 0 and 1, both excluded, not {epsilon!r}: 0.02 is two points")
        if not 0 < alpha < 1:
            raise DataError(f"alpha must lie between 0 and 1, both excluded, not {alpha!r}")
        if not -1 <= low <= 0:
            raise DataError(f"the smallest loss must be -1 (net) or 0 (harm), or between them, not {low!r}")
        if least_rate is not None and not 0 < least_rate <= 1:
            raise DataError(f"the smallest rate of audits must lie in (0, 1], not {least_rate!r}")
        return cls(
            epsilon=epsilon,
            alpha=alpha,
            low=low,
            least_rate=least_rate,
            log_capital=np.full((*shape, _STAKES_EACH), -np.inf),
            begun=np.zeros(shape, dtype=np.int64),
            due=np.ones(shape, dtype=bool),
            n=0,
            log_value=np.zeros(shape),
            log_highest=np.zeros(shape),
            rang_at=np.zeros(shape, dtype=np.int64),
        )

    @property
    def stakes(self) -> Floats:
        """The stakes, per unit of loss, in ascending order."""
        stakes: Floats = np.geomspace(
            _SMALL_EXCESS / (self.epsilon - self.low / 2), _NEAR_RUIN / (self.epsilon - self.low), _STAKES_EACH
        )
        return stakes

    @property
    def rings(self) -> Mask:
        """True once the alarm has rung, `shape`; it never resets."""
        rings: Mask = np.asarray(self.rang_at > 0)
        return rings

    def observe(
        self, losses: npt.ArrayLike, *, audited: npt.ArrayLike | None = None, rates: npt.ArrayLike | None = None
    ) -> Alarm:
        """Return the state after further questions.

        Args:
            losses: Shape ``(*shape, n)``, in the order of the questions.  NaN for an audited question is a lost audit,
                which counts as 1.  Values for other questions are ignored.
            audited: Mask of the questions that were drawn, shape of `losses`; None = all.
            rates: The probability of each draw, shape of `losses` or one for all; needed with `least_rate`, otherwise ignored.

        Raises:
            DataError: A loss or a rate outside its range, or no rates where they are needed.
        """
        return self._bet(losses, audited, rates)[0]

    def path(
        self, losses: npt.ArrayLike, *, audited: npt.ArrayLike | None = None, rates: npt.ArrayLike | None = None
    ) -> Floats:
        """Return `log_value` after each further question, shape of `losses`, for a plot; arguments as in `observe`."""
        return self._bet(losses, audited, rates, with_path=True)[1]

    def _bet(
        self,
        losses: npt.ArrayLike,
        audited: npt.ArrayLike | None,
        rates: npt.ArrayLike | None,
        *,
        with_path: bool = False,
    ) -> tuple[Alarm, Floats]:
        gains, drawn = self._gains(losses, audited, rates)
        n, number = self.n, gains.shape[-1]
        capital, begun, due = self.log_capital, self.begun, self.due
        value, highest, rang_at = self.log_value, self.log_highest, self.rang_at
        block = max(1, _VALUES_AT_ONCE // max(capital.size, 1))
        parts = []
        for first in range(0, number, block):
            gain, draw = gains[..., first : first + block], drawn[..., first : first + block]
            starts = draw if self.least_rate is None else np.concatenate([due[..., None], draw[..., :-1]], axis=-1)
            places = begun[..., None] + np.cumsum(starts, axis=-1)
            entries = np.where(starts, np.log(share(np.maximum(places, 1), EVEN)), -np.inf)
            left = np.log(share_left(places + 1, EVEN))
            # One axis for the stakes. Sums over starting points are relative to the capital of a gambler who began with
            # the block.
            growth = np.cumsum(np.log1p(self.stakes[:, None] * gain[..., None, :]), axis=-1)
            before = np.concatenate([np.zeros((*growth.shape[:-1], 1)), growth[..., :-1]], axis=-1)
            sums = np.concatenate([capital[..., None], entries[..., None, :] - before], axis=-1)
            owned = np.logaddexp.accumulate(sums, axis=-1)[..., 1:] + growth
            top = np.maximum(owned.max(axis=-2), left)
            path = top + np.log(np.exp(owned - top[..., None, :]).mean(axis=-2) + np.exp(left - top))
            reached = path >= -math.log(self.alpha)
            rang_at = np.where((rang_at == 0) & reached.any(axis=-1), n + first + 1 + reached.argmax(axis=-1), rang_at)
            capital, begun, value = owned[..., -1], places[..., -1], path[..., -1]
            due = due if self.least_rate is None else draw[..., -1]
            highest = np.maximum(highest, path.max(axis=-1))
            if with_path:
                parts.append(path)
        alarm = replace(
            self,
            log_capital=capital,
            begun=begun,
            due=due,
            n=n + number,
            log_value=value,
            log_highest=highest,
            rang_at=rang_at,
        )
        return alarm, np.concatenate(parts, axis=-1) if parts else np.zeros(gains.shape)

    def _gains(
        self, losses: npt.ArrayLike, audited: npt.ArrayLike | None, rates: npt.ArrayLike | None
    ) -> tuple[Floats, Mask]:
        """Return the gain of a stake of 1 on each question, and a mask of the audited ones."""
        given = np.asarray(losses, dtype=np.float64)
        drawn = np.ones(given.shape, dtype=bool) if audited is None else np.asarray(audited, dtype=bool)
        loss = np.where(drawn, np.where(np.isnan(given), 1.0, given), 0.0)
        if not ((loss >= self.low) & (loss <= 1)).all():
            raise DataError(f"losses must lie in [{self.low:g}, 1]; those of audits that got lost are NaN, and count 1")
        if self.least_rate is None:
            return np.where(drawn, loss - self.epsilon, 0.0), drawn
        if rates is None:
            raise DataError("rates that depend on the question need rates=..., the probability of each draw")
        rate = np.broadcast_to(np.asarray(rates, dtype=np.float64), given.shape)
        if not ((rate >= self.least_rate) & (rate <= 1)).all():
            raise DataError(f"rates of audits must lie in [{self.least_rate:g}, 1], from the declared smallest one on")
        return self.least_rate * (loss / rate - self.epsilon), drawn
