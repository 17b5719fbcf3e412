"""An alarm beside the evidence of a trial: it rings if a tested candidate now seems to lose too much.

Small losses in the past do not delay the alarm.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from suffice.errors import SchemaError
from suffice.evaluation.statistics import Alarm
from suffice.policy.rounds import Floats, Mask

_FLOATS = ("log_capital", "log_value", "log_highest")
"""Arrays of the alarm that are stored; how many gamblers have begun is the number of losses, since each loss is known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftAlarm:
    """Bets that the losses of the tested candidates have risen above a bound; arrays have shape ``(n_tested,)``.

    The evidence of a trial reacts slowly to a change: if the first 3,000 questions lose nothing and all later ones lose
    5 points, the overall mean reaches 2 points only after 2,000 of the later ones.  These bets begin anew at each
    question, see `suffice.evaluation.statistics.Alarm`: as long as each question's expected loss is within the bound,
    the probability that a candidate's alarm ever rings is at most the trial's risk.

    Attributes:
        alarm: The bets on the smallest possible losses.
        excess: Sum of the losses above the bound.
        least: The smallest value of `excess` before the alarm rang, at most 0.
        began: Number of losses when `excess` was smallest: the best estimate of when the loss rose above the bound.
    """

    alarm: Alarm
    excess: Floats
    least: Floats
    began: npt.NDArray[np.int64]

    @classmethod
    def start(cls, bound: float, alpha: float, n_tested: int) -> DriftAlarm:
        """Return the state before the first question.

        Args:
            bound: The largest accepted loss, in (0, 1).
            alpha: The risk for each candidate that a false alarm ever rings.
            n_tested: Number of tested candidates.
        """
        zeros, none = np.zeros(n_tested), np.zeros(n_tested, dtype=np.int64)
        return cls(alarm=Alarm.start(bound, alpha, shape=(n_tested,)), excess=zeros, least=zeros, began=none)

    @property
    def n(self) -> int:
        """Number of losses so far."""
        return self.alarm.n

    @property
    def rings(self) -> Mask:
        """True once the alarm of a candidate has rung; it never resets."""
        return self.alarm.rings

    @property
    def since(self) -> Floats:
        """The mean loss since `began`; NaN if no loss has come since."""
        with np.errstate(invalid="ignore"):
            means: Floats = self.alarm.epsilon + (self.excess - self.least) / (self.n - self.began)
        return means

    def observe(self, losses: Floats) -> DriftAlarm:
        """Return the state after further losses.

        Args:
            losses: The smallest possible losses, shape ``(n_tested, n)``, in [-1, 1], in the order of bets.
        """
        alarm = self.alarm.observe(losses)
        sums = self.excess[:, None] + np.cumsum(losses - alarm.epsilon, axis=-1)
        number = self.n + 1 + np.arange(losses.shape[-1])
        # The rise began before the loss that rang the alarm, so it cannot begin at that loss or later.
        before = ~alarm.rings[:, None] | (number < alarm.rang_at[:, None])
        sums_before = np.concatenate([self.least[:, None], np.where(before, sums, np.inf)], axis=-1)
        places = sums_before.argmin(axis=-1)  # the first of equal ones
        least = np.take_along_axis(sums_before, places[:, None], axis=-1)[:, 0]
        began = np.where(places > 0, self.n + places, self.began)
        excess = sums[:, -1] if losses.shape[-1] else self.excess
        return replace(self, alarm=alarm, excess=excess, least=least, began=began)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-ready values of a state after at least one loss."""
        return {
            "n": self.n,
            **{name: getattr(self.alarm, name).tolist() for name in (*_FLOATS, "rang_at")},
            **{name: getattr(self, name).tolist() for name in ("excess", "least", "began")},
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any] | None, bound: float, alpha: float, n_tested: int) -> DriftAlarm | None:
        """Return the state that `to_dict` wrote; None if no state was stored.

        Args:
            data: The stored values; None = no state was stored.
            bound: See `start`.
            alpha: See `start`.
            n_tested: See `start`.

        Raises:
            SchemaError: Fields are missing, have wrong shapes, or are undefined.
        """
        if data is None:
            return None
        start = cls.start(bound, alpha, n_tested)

        def stored(name: str, like: npt.NDArray[Any]) -> npt.NDArray[Any]:
            values = np.asarray(data[name], dtype=like.dtype)
            if not like.size and not values.size:  # no candidate is tested, and an empty list has no second axis
                return like
            if values.shape != like.shape or not np.isfinite(values).all():
                raise SchemaError(f"the alarm of a decision file has another shape, or is undefined: {name}")
            return values

        try:
            n, state = int(data["n"]), start.alarm
            of_alarm: dict[str, Any] = {name: stored(name, getattr(state, name)) for name in (*_FLOATS, "rang_at")}
            alarm = replace(state, n=n, begun=np.full(n_tested, n), **of_alarm)
            return cls(
                alarm=alarm, **{name: stored(name, getattr(start, name)) for name in ("excess", "least", "began")}
            )
        except (KeyError, TypeError, ValueError) as error:
            raise SchemaError(f"the alarm of a decision file does not read: {error!r}") from None
