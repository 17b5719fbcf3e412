"""Extrapolate costs from measured units, and add up costs of which some may be unknown."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from suffice.policy.rounds import Floats
from suffice_papers.experiments.variance import NOT_KNOWN


def extrapolate(values: Floats, left: int, level: float) -> Any:
    """Estimate the sum over further questions, with the prediction interval of a normal sample.

    The result is (value, low, high).

    >>> import numpy as np
    >>> extrapolate(np.array([2.0, 4.0]), 10, 0.95)[0]
    30.0

    Args:
        values: Costs of the recorded questions, shape ``(n_questions,)``, not negative; NaN where unknown.
        left: Number of further questions.
        level: Coverage of the interval.

    Returns:
        The value with low and high, which are NaN if only one cost is known; `NOT_KNOWN` if no cost is known.
    """
    import numpy as np
    from scipy.stats import t

    n = len(values)
    if left == 0:
        return 0.0, 0.0, 0.0
    if not n or np.isnan(values).any():
        return NOT_KNOWN
    mean, half = left * float(values.mean()), math.nan
    if n > 1:  # the spread of the further questions, and the error of the mean of the recorded ones
        half = float(t.ppf((1 + level) / 2, n - 1)) * math.sqrt(float(values.var(ddof=1)) * (left + left**2 / n))
    low = mean - half
    return mean, low if low > 0 or math.isnan(low) else 0.0, mean + half


def total_of(parts: Sequence[Any]) -> Any:
    """Add costs: the ends of intervals are added separately, and an unknown cost makes the sum a lower bound.

    >>> total_of([1, 2]), total_of([1, NOT_KNOWN]), total_of([(2.0, 1.0, 3.0), 1])
    (3, (1.0, inf), (3.0, 2.0, 4.0))

    Args:
        parts: Numbers, intervals `(value, low, high)`, lower bounds `(low, inf)`, or `NOT_KNOWN`.
    """
    known = [part for part in parts if part != NOT_KNOWN]
    if not known:
        return NOT_KNOWN
    if not any(isinstance(part, tuple) for part in known) and len(known) == len(parts):
        return sum(known)
    bounds = [part for part in known if isinstance(part, tuple) and len(part) == 2]  # noqa: PLR2004 - low and high
    whole = [part if isinstance(part, tuple) else (part, part, part) for part in known if part not in bounds]
    sums = tuple(float(sum(ends)) for ends in zip(*whole, strict=True)) or (0.0, 0.0, 0.0)
    if len(known) == len(parts) and not bounds:
        return sums
    return sums[0] + sum(low for low, _ in bounds), math.inf
