"""Tests of "the mean loss is below a bound": those that may be looked at after every question, and those for one planned number.

Where the literature has means in [0, 1], losses in [-1, 1] become x = (1 - loss) / 2, and the bound (1 - bound) / 2, which the
mean of x exceeds.  "WSR" is Waudby-Smith and Ramdas (2024), "Estimating means of bounded random variables by betting".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from scipy import stats

from benchmarks.power.populations import LEVEL
from suffice.evaluation.statistics import net_p_value
from suffice.policy.rounds import Floats
from suffice.verdicts.decisions import Wealth

_NEVER = 10**9
_SHARE = 0.8
_BLOCK = 64
_CAP = 0.99  # our cap of a stake, as a share of the ruinous one
_PUBLISHED_CAP = 0.5  # the cap of WSR and of confseq

Times = Any
"""The number of questions after which each run is a proof, shape ``(n_runs,)``; a very large one if it never is."""


def number_of(times: Times) -> int | None:
    """Return the number of questions that is enough in four of five runs; None if none of those drawn is."""
    number = int(np.sort(times)[int(np.ceil(_SHARE * len(times))) - 1])
    return None if number == _NEVER else number


def times_of(log_wealth: Floats) -> Times:
    """Return when the logarithm of a wealth, shape ``(n_runs, n)``, first reaches that of 1 / LEVEL."""
    reached = log_wealth >= -np.log(LEVEL)
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, _NEVER)


def constant(losses: Floats, bound: float, stake: float) -> Times:
    """Bet a constant stake."""
    return times_of(np.cumsum(np.log1p(stake * (bound - losses)), axis=1))


def mixture(losses: Floats, bound: float, tune: Floats | None, prior: str) -> Times:
    """Bet as `decide` does, with the product's own code, or with the shares of an older release.

    It ends once four of five runs are proofs; the others then count as never.
    """
    wealth = Wealth.start(bound, "below", len(losses), tune)
    if prior != "tune":
        weights = wealth.stakes if prior == "by stake" else np.ones_like(wealth.stakes)
        wealth = replace(wealth, shares=np.broadcast_to(weights / weights.sum(), wealth.shares.shape))
    times = np.full(len(losses), _NEVER)
    for first in range(0, losses.shape[1], _BLOCK):
        after = wealth.bet(losses[:, first : first + _BLOCK])
        new = np.flatnonzero(after.shown(LEVEL) & (times == _NEVER))
        step = _rows(wealth, new)
        for place in range(first, min(first + _BLOCK, losses.shape[1]) if len(new) else first):
            step = step.bet(losses[new, place : place + 1])
            times[new] = np.where(step.shown(LEVEL) & (times[new] == _NEVER), place + 1, times[new])
        wealth = after
        if (times < _NEVER).mean() >= _SHARE:
            break
    return times


def _rows(wealth: Wealth, rows: Any) -> Wealth:
    names = ("log_capital", "log_highest", "squares", "shares")
    return replace(wealth, **{name: getattr(wealth, name)[rows] for name in names})


def _moments(x: Floats) -> tuple[Floats, Floats]:
    """Return the mean and the variance before each value, shrunk towards 1/2 and 1/4 as if one value had come before."""
    count = np.arange(1, x.shape[1] + 1) + 1
    means = (0.5 + np.cumsum(x, axis=1)) / count
    variances = (0.25 + np.cumsum((x - means) ** 2, axis=1)) / count
    return _shifted(means, 0.5), _shifted(variances, 0.25)


def _shifted(values: Floats, first: float) -> Floats:
    return np.concatenate([np.full((len(values), 1), first), values[:, :-1]], axis=1)


def _rescaled(losses: Floats, bound: float) -> tuple[Floats, float]:
    return (1 - losses) / 2, (1 - bound) / 2


def agrapa_stakes(x: Floats, m: float, cap: float) -> Floats:
    """Return the stakes of aGRAPA (WSR, section B.3) for a mean of `x`, shape ``(n_runs, n)``, above `m`."""
    means, variances = _moments(x)
    return np.clip((means - m) / (variances + (means - m) ** 2), 0, cap / m)


def predictable_stakes(x: Floats, m: float, cap: float, level: float) -> Floats:
    """Return the predictable plug-in stakes of empirical Bernstein type (WSR, equation 15), capped."""
    t = np.arange(1, x.shape[1] + 1)
    return np.minimum(np.sqrt(2 * np.log(1 / level) / (t * np.log(1 + t) * _moments(x)[1])), cap / m)


def log_capital(x: Floats, m: float, stakes: Floats) -> Floats:
    """Return the logarithm of the capital after each value."""
    return np.cumsum(np.log1p(stakes * (x - m)), axis=1)


def agrapa(losses: Floats, bound: float, cap: float = _CAP) -> Times:
    """Bet by aGRAPA, with our cap, which helps it where little varies."""
    x, m = _rescaled(losses, bound)
    return times_of(log_capital(x, m, agrapa_stakes(x, m, cap)))


def one_sided(losses: Floats, bound: float) -> Times:
    """Bet the predictable plug-in stakes of WSR on one side, with our cap."""
    x, m = _rescaled(losses, bound)
    return times_of(log_capital(x, m, predictable_stakes(x, m, _CAP, LEVEL)))


def hedged(losses: Floats, bound: float) -> Times:
    """Bet the hedged capital as published: half of the capital on each side, stakes up to half of the ruinous one."""
    x, m = _rescaled(losses, bound)
    return times_of(log_capital(x, m, predictable_stakes(x, m, _PUBLISHED_CAP, LEVEL / 2)) - np.log(2))


def bernstein_bound(x: Floats, level: float = LEVEL) -> Floats:
    """Return the lower confidence sequence of the mean by predictable plug-in empirical Bernstein (WSR, theorem 2)."""
    t = np.arange(1, x.shape[1] + 1)
    stakes = predictable_stakes(x, 1.0, _PUBLISHED_CAP, level)
    before = _shifted(np.cumsum(x, axis=1) / t, 0.0)
    spent = np.cumsum((x - before) ** 2 * (-np.log1p(-stakes) - stakes), axis=1)
    return (np.cumsum(stakes * x, axis=1) - np.log(1 / level) - spent) / np.cumsum(stakes, axis=1)


def bernstein(losses: Floats, bound: float) -> Times:
    """Prove by the empirical-Bernstein confidence sequence."""
    x, m = _rescaled(losses, bound)
    reached = bernstein_bound(x) > m
    return np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, _NEVER)


def planned_betting(losses: Floats, bound: float) -> Any:
    """Return which runs are a proof by betting with a planned number, the test of `certify`."""
    return net_p_value(losses, bound, level=LEVEL) <= LEVEL


def maurer_pontil(losses: Floats, bound: float) -> Any:
    """Return which runs are a proof by the empirical Bernstein bound of Maurer and Pontil (2009)."""
    n, x, m = losses.shape[1], *_rescaled(losses, bound)
    error = np.sqrt(2 * x.var(axis=1, ddof=1) * np.log(2 / LEVEL) / n) + 7 * np.log(2 / LEVEL) / (3 * (n - 1))
    return x.mean(axis=1) - error > m


def clopper_pearson(losses: Floats, bound: float) -> Any:
    """Return which runs are a proof by the exact binomial test, for losses of 0 or 1 alone."""
    return stats.binom.cdf(np.rint(losses.sum(axis=1)), losses.shape[1], bound) <= LEVEL


def paired_t(losses: Floats, bound: float) -> Any:
    """Return which runs are "a proof" by Student's t, which holds for large n only."""
    n = losses.shape[1]
    error = losses.std(axis=1, ddof=1) / np.sqrt(n)
    return losses.mean(axis=1) + stats.t.ppf(1 - LEVEL, n - 1) * error < bound


def planned_number(test: Callable[[Floats, float], Any], losses: Floats, bound: float, least: int = 5) -> int | None:
    """Return the number of questions, at least `least`, at which a planned test succeeds in four of five runs."""
    low, high = least - 1, losses.shape[1]

    def enough(n: int) -> bool:
        return bool(test(losses[:, :n], bound).mean() >= _SHARE)

    if not enough(high):
        return None
    if enough(least):
        return least
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high
