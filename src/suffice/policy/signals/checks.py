"""Signals of loops with a check: how much of a draft is still wrong, and whether that falls."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise

from suffice.policy.rounds import Round
from suffice.policy.signals.definitions import EVERY_ROUND, declare, register_signal

CHECKER = "checker"
"""The capability of a loop that checks each answer."""

_COUNT = (0.0, math.inf)
_SMOOTHING = 0.5
"""The weight of the latest ratio: an exponential mean over a window of 3."""
_FROM_NOTHING = 2.05
"""The ratio of an error to none before it."""

declare(
    "check_error",
    "What a check still finds, such as failing tests; 0 = nothing is left to mend.",
    "count",
    _COUNT,
    CHECKER,
    component="",
)


@register_signal(
    "ratio",
    _COUNT,
    component="",
    source="LoopGain 0.1 (2026)",
    lookback=EVERY_ROUND,
    on_demand=True,
    reads={"signals.check_error"},
)
def error_gain(rounds: Sequence[Round]) -> float:
    """Smoothed ratio of check_error to that of the round before.

    Below 1 a loop converges, above 1 it diverges.  NaN in the first round, and after a round whose error is unknown.

    >>> [error_gain([Round(index=i, signals={"check_error": e}) for i, e in enumerate(errors, 1)]) for errors in ([4, 1], [4, 1, 2])]
    [0.25, 1.125]
    """
    errors = [observed.signals.get("check_error", math.nan) for observed in rounds]
    smoothed = math.nan
    for before, now in pairwise(errors):
        ratio = now / before if before else (0.0 if now == 0 else _FROM_NOTHING)
        smoothed = ratio if math.isnan(smoothed) else _SMOOTHING * ratio + (1 - _SMOOTHING) * smoothed
        if math.isnan(now):
            smoothed = math.nan
    return smoothed
