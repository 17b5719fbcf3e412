"""How sure the loss of a log is: intervals that hold at every look, and the alarm when it passes a bound."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from suffice.rounds import Floats
from suffice.statistics import Alarm, ConfidenceSequence, window_sequences
from suffice.watches.losses import Losses
from suffice.watches.requests import Requests

__all__ = ["LossAlarm", "LossWindow", "audits_needed", "loss_alarm", "loss_windows", "sequence_of", "whole_log"]

_STAKES = 199
_SMALLEST = 1e-4
_LARGEST_STAKE = 0.99
_LIKELY = 0.25
"""Mean losses beyond this are not expected: a quarter of the answers.  Intervals hold there, too, and are wider."""
_MIXED = 50.0
"""What an alarm pays for not knowing when the loss rises, nor by how much: about this many times the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LossWindow:
    """The mean loss of a run of requests.

    Attributes:
        first: The place of the first request.
        last: That of the last one.
        n: Requests.
        n_audited: Those of them whose loss is known.
        mean: Their mean loss, NaN where none is.
        low: Lower end of its interval.
        high: Upper end.
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
        """The mean with both ends."""
        return self.mean, self.low, self.high


@dataclass(frozen=True, slots=True, kw_only=True)
class LossAlarm:
    """Evidence that the loss has passed its bound, see `suffice.statistics.Alarm`.

    Attributes:
        e_value: Evidence now.
        highest: The largest so far.
        rang: The place of the request at which the alarm rang; None while it is silent.
        after: The requests since the loss seems to have risen; None while the alarm is silent.  Its mean is chosen because it
            is large, so it has no interval.
    """

    e_value: float
    highest: float
    rang: int | None
    after: LossWindow | None


def sequence_of(losses: Losses, alpha: float) -> ConfidenceSequence:
    """Return a confidence sequence before the first of these losses."""
    largest = losses.largest
    predictions = max(losses.lowest, -_LIKELY), _LIKELY
    return ConfidenceSequence.start(losses.lowest * largest, largest, alpha, predictions=predictions)


def loss_alarm(losses: Losses, bound: float, n: int, *, alpha: float) -> tuple[LossAlarm, Floats]:
    """Return the alarm of all losses, and the logarithm of the evidence after each.

    Args:
        losses: At least one.
        bound: The largest accepted mean loss.
        n: Requests of the log.
        alpha: The risk of a false alarm, ever.
    """
    state, paths = Alarm.start(bound, alpha, low=losses.lowest), []
    for first, last, least_rate in _bets(losses):
        state = replace(state, least_rate=least_rate)
        given = {"audited": losses.known[first:last], "rates": losses.rates[first:last]}
        paths.append(state.path(losses.loss[first:last], **given))
        state = state.observe(losses.loss[first:last], **given)
    path = np.concatenate(paths)
    rang, after = None, None
    if state.rings:
        at = int(state.rang_at) - 1
        rang = int(losses.places[at])
        # Where the sum of losses above the bound was lowest before the alarm, the rise began, as far as one sees.
        sums = np.cumsum(losses.values - bound)[: at + 1]
        began = int(np.argmin(np.concatenate([[0.0], sums[:-1]])))
        values = losses.values[began:]
        first = int(losses.places[began])
        after = LossWindow(
            first=first,
            last=n - 1,
            n=n - first,
            n_audited=int(losses.known[began:].sum()),
            mean=float(values.mean()),
            low=math.nan,
            high=math.nan,
        )
    evidence = LossAlarm(
        e_value=_e_value(float(state.log_value)), highest=_e_value(float(state.log_highest)), rang=rang, after=after
    )
    return evidence, path


def _bets(losses: Losses) -> list[tuple[int, int, float | None]]:
    """Return the stretches of losses on which one least rate is bet, and that rate; None where audited requests alone bet.

    A stake may depend on what came before, and on the rate of the request itself.  So it changes where a rate is the smallest so far, and
    not for what was bet before: the evidence of a log that has grown begins with the evidence of the log as it was.
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
    return _window_of(losses, 0, len(requests) - 1, sequence_of(losses, alpha).observe(losses.values))


def loss_windows(requests: Requests, losses: Losses, *, window: int, alpha: float) -> list[LossWindow]:
    """Return the loss of each window of requests; the windows share alpha, see `suffice.statistics.window_sequences`."""
    firsts = np.arange(0, len(requests), window)
    places = np.searchsorted(losses.places, [*firsts, len(requests)])
    states = window_sequences(losses.values, np.diff(places).tolist(), sequence_of(losses, alpha))
    lasts = [*(firsts[1:] - 1).tolist(), len(requests) - 1]
    return [_window_of(losses, *place) for place in zip(firsts.tolist(), lasts, states, strict=True)]


def _window_of(losses: Losses, first: int, last: int, state: ConfidenceSequence) -> LossWindow:
    low, high = (float(np.clip(end, losses.lowest, 1.0)) for end in (state.low_end, state.high_end))
    known = losses.known & (losses.places >= first) & (losses.places <= last)
    n, n_known = last - first + 1, int(known.sum())
    mean = (
        float(state.mean) if n_known else math.nan
    )  # not 0, which requests that were not audited count where rates vary
    return LossWindow(first=first, last=last, n=n, n_audited=n_known, mean=mean, low=low, high=high)


def audits_needed(bound: float, lowest: float, *, alpha: float, rise: float, gained: float = 0.0) -> int:
    """Return about how many audits an alarm needs to notice that the loss is that much above its bound.

    Losses of -1, 0 and 1 are bet on with the best constant stake.  Gains that make up for losses hide them: with as many as in
    ordinary votes a rise of two points takes three times the audits.

    >>> audits_needed(0.05, 0.0, alpha=0.05, rise=0.05)
    335
    >>> audits_needed(0.02, -1.0, alpha=0.05, rise=0.02), audits_needed(0.02, -1.0, alpha=0.05, rise=0.02, gained=0.023)
    (873, 2817)

    Args:
        bound: The largest accepted mean loss.
        lowest: The smallest possible loss, 0 or -1.
        alpha: The risk of a false alarm.
        rise: By how much the loss passes the bound.
        gained: The share of questions that gain.
    """
    gained = max(min(gained, (1 - bound - rise) / 2), 0.0)
    p = min(bound + rise + gained, 1.0)
    stakes = _LARGEST_STAKE / (bound - lowest) * np.geomspace(_SMALLEST, 1.0, _STAKES)
    with np.errstate(divide="ignore"):
        growth = p * np.log1p(stakes * (1 - bound)) + (1 - p - gained) * np.log1p(-stakes * bound)
        growth += gained * np.log1p(np.maximum(-stakes * (1 + bound), -_LARGEST_STAKE)) if gained else 0.0
    return math.ceil(math.log(_MIXED / alpha) / float(growth.max()))
