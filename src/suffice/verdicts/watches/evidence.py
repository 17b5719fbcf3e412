"""Evidence about the loss in a log: intervals valid at every look, and an alarm when the loss passes a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suffice.evaluation.statistics import Alarm, ConfidenceSequence, window_sequences
from suffice.evaluation.statistics.restarts import EVEN, share
from suffice.policy.rounds import Floats
from suffice.verdicts.watches.losses import Losses
from suffice.verdicts.watches.requests import Requests

_LIKELY = 0.25
"""Largest mean loss that is expected: a quarter of the answers.  Intervals remain valid beyond it, but are wider."""
_FOUR_OF_FIVE = 0.84
"""The point below which four fifths of a normal distribution lie, in standard deviations."""
_NEVER = 1_000_000_000
"""A number of audits beyond any log, returned if gains hide the rise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWindow:
    """The mean loss of consecutive requests.

    Attributes:
        last: Position of the last request.
        n_audited: Number of requests whose loss is known.
        mean: Mean of the known losses; NaN if there are none.
    """

    first: int
    last: int
    n: int
    n_audited: int
    mean: float
    low: float
    high: float

    @property
    def interval(self) -> tuple[float, float, float]:
        """The mean loss and both ends of its interval."""
        return self.mean, self.low, self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class LossAlarm:
    """Evidence that the loss has passed its bound, see `suffice.evaluation.statistics.Alarm`.

    Attributes:
        e_value: The present evidence against the bound.
        highest: The largest evidence so far.
        rang: Position of the request at which the alarm rang; None while it is silent.
        after: The window of requests since the loss seems to have risen; None while the alarm is silent. This window
            was selected for its large mean, so it has no interval.
    """

    e_value: float
    highest: float
    rang: int | None
    after: LossWindow | None


def sequence_of(losses: Losses, alpha: float) -> ConfidenceSequence:
    """Start the confidence sequence for these losses."""
    largest = losses.largest
    predictions = max(losses.lowest, -_LIKELY), _LIKELY
    return ConfidenceSequence.start(losses.lowest * largest, largest, alpha, predictions=predictions)


def loss_alarm(losses: Losses, bound: float, n: int, *, alpha: float) -> tuple[LossAlarm, Floats]:
    """Run the alarm over all losses; also return the logarithm of the evidence after each loss.

    Args:
        losses: At least one.
        bound: The largest accepted mean loss.
        n: Number of requests in the log.
        alpha: The risk that a false alarm ever rings.
    """
    state, paths = Alarm.start(bound, alpha, low=losses.lowest), []
    for first, last, least_rate in _bets(losses):
        state = replace(state, least_rate=least_rate)
        given = {"audited": losses.audited[first:last], "rates": losses.rates[first:last]}
        paths.append(state.path(losses.loss[first:last], **given))
        state = state.observe(losses.loss[first:last], **given)
    path = np.concatenate(paths)
    rang, after = None, None
    if state.rings:
        at = int(state.rang_at) - 1
        rang = int(losses.places[at])
        # The best estimate of the beginning of the rise: the minimum, before the alarm, of the summed losses above the
        # bound.
        sums = np.cumsum(losses.values - bound)[: at + 1]
        began = int(np.argmin(np.concatenate([[0.0], sums[:-1]])))
        first = int(losses.places[began])
        after = LossWindow(
            first=first,
            last=n - 1,
            n=n - first,
            n_audited=int(losses.known[began:].sum()),
            mean=losses.mean(first),
            low=math.nan,
            high=math.nan,
        )
    evidence = LossAlarm(
        e_value=_e_value(float(state.log_value)), highest=_e_value(float(state.log_highest)), rang=rang, after=after
    )
    return evidence, path


def _bets(losses: Losses) -> list[tuple[int, int, float | None]]:
    """Divide losses into stretches, as (first, last, rate); the rate is the smallest audit rate up to the stretch.

    The rate is None if only audited requests are bet on.

    A stake may depend on earlier requests and on the rate of the request itself, so it changes whenever a rate is the
    smallest so far. Earlier bets stay the same when the log grows, and so does the evidence after them.
    """
    if losses.least_rate is None:
        return [(0, len(losses), None)]
    least = np.minimum.accumulate(losses.rates)
    varies = np.maximum.accumulate(losses.rates) > least
    key = np.where(varies, least, 0.0)
    firsts = [0, *(np.flatnonzero(np.diff(key, prepend=key[0]))).tolist()]
    ends = [*firsts[1:], len(losses)]
    return [
        (first, last, float(least[first]) if varies[first] else None) for first, last in zip(firsts, ends, strict=True)
    ]


def _e_value(logarithm: float) -> float:
    return math.exp(min(logarithm, 700.0))


def whole_log(requests: Requests, losses: Losses, alpha: float) -> LossWindow:
    """Return the loss since the first request; the interval is valid at every look."""
    start = sequence_of(losses, alpha)
    low, high = (start.observe(values) for values in (losses.values, losses.upper_values))
    return _window_of(losses, 0, len(requests) - 1, low, high)


def loss_windows(requests: Requests, losses: Losses, *, window: int, alpha: float) -> list[LossWindow]:
    """Return the loss of each window of requests.

    The windows share `alpha`, see `suffice.evaluation.statistics.window_sequences`.
    """
    firsts = np.arange(0, len(requests), window)
    lengths = np.diff(np.searchsorted(losses.places, [*firsts, len(requests)])).tolist()
    lows, highs = (
        window_sequences(values, lengths, sequence_of(losses, alpha)) for values in (losses.values, losses.upper_values)
    )
    lasts = [*(firsts[1:] - 1).tolist(), len(requests) - 1]
    return [_window_of(losses, *place) for place in zip(firsts.tolist(), lasts, lows, highs, strict=True)]


def _window_of(
    losses: Losses, first: int, last: int, lower: ConfidenceSequence, upper: ConfidenceSequence
) -> LossWindow:
    """Return a window; the lower end of its interval is computed from the smallest possible losses, the upper end from the largest."""
    low, high = (float(np.clip(end, losses.lowest, 1.0)) for end in (lower.low_end, upper.high_end))
    n_known = int((losses.known & (losses.places >= first) & (losses.places <= last)).sum())
    mean = losses.mean(
        first, last
    )  # NaN without a known loss, although with varying rates requests that were not audited count as 0
    return LossWindow(first=first, last=last, n=last - first + 1, n_audited=n_known, mean=mean, low=low, high=high)


def audits_to_notice(losses: Losses, bound: float, *, alpha: float, rise: float) -> tuple[int, int | None]:
    """Return two numbers of audits on which it depends whether a rise of the loss is noticed.

    The first is the number of audits that a log needs to notice a rise.  The second is the number of latest audits
    within which a rise would have been noticed in this log; None if the log has too few audits.

    The alarm needs longer for a rise that begins late in a log. So a log has enough audits if a rise that began
    `audits_needed` audits ago would have been noticed by now; the number of audits since deployment does not decide
    this alone.
    """

    def needed(before: int) -> int:
        return audits_needed(bound, losses.lowest, alpha=alpha, rise=rise, gained=losses.gained, before=before)

    enough = needed(0)
    while (more := needed(enough)) > enough:
        enough = more
    latest = needed(losses.n_audited)
    return enough, latest if latest <= losses.n_audited else None


def audits_needed(
    bound: float, lowest: float, *, alpha: float, rise: float, gained: float = 0.0, before: int = 0
) -> int:
    """Return the number of audits after which a loss that exceeds the bound by `rise` is noticed in four of five cases.

    It assumes losses of -1, 0 and 1, the best of the alarm's stakes, bets that begin with the rise or soon after it,
    and a capital whose logarithm is about normal.  In simulations the alarm rang by then in 83 to 98 % of runs. Gains
    offset losses and so hide them: votes often have so many gains that a rise of two points needs two and a half times
    as many audits.

    >>> audits_needed(0.05, 0.0, alpha=0.05, rise=0.05), audits_needed(0.05, 0.0, alpha=0.05, rise=0.05, before=20_000)
    (487, 1017)
    >>> audits_needed(0.02, -1.0, alpha=0.05, rise=0.02), audits_needed(0.02, -1.0, alpha=0.05, rise=0.02, gained=0.023)
    (1094, 2702)

    Args:
        bound: The largest accepted mean loss.
        lowest: The smallest possible loss, 0 or -1.
        alpha: The risk of a false alarm.
        rise: The amount by which the loss exceeds the bound.
        gained: The share of questions whose metric rises.
        before: Audits before the rise.
    """
    gained = max(min(gained, (1 - bound - rise) / 2), 0.0)
    p = min(bound + rise + gained, 1.0)
    stakes = Alarm.start(bound, alpha, low=lowest).stakes
    chances = np.array([[p], [1 - p - gained], [gained]])
    smallest = np.log1p(-stakes * (1 + bound)) if gained else np.zeros(len(stakes))
    logs = np.stack([np.log1p(stakes * (1 - bound)), np.log1p(-stakes * bound), smallest])
    growth = (chances * logs).sum(axis=0)
    spread = np.sqrt(np.maximum((chances * logs**2).sum(axis=0) - growth**2, 0.0))
    grows = growth > 0
    growth, spread = growth[grows], spread[grows]
    if not len(growth):
        return _NEVER
    # The gain needed by a gambler who begins with the rise; those who begin up to 1 / growth bets later contribute too.
    price = math.log(len(stakes) / alpha) - math.log(float(share(before + 1, EVEN))) + np.log(np.minimum(growth, 1.0))
    price = np.maximum(price, 1.0)
    roots = (_FOUR_OF_FIVE * spread + np.sqrt((_FOUR_OF_FIVE * spread) ** 2 + 4 * growth * price)) / (2 * growth)
    return math.ceil(min(float((roots**2).min()), _NEVER))
