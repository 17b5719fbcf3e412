"""One threshold of a policy moved over a range: what each value stops, returns and pays."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from suffice.replay.baselines import Bench, Run, run_policy
from suffice.rounds import Floats, Rounds
from suffice.rules import Threshold
from suffice.rules.thresholds import with_threshold
from suffice.session import Policy, stops

__all__ = ["equivalent_thresholds", "even_thresholds", "sweep"]


def even_thresholds(column: Floats, n: int = 40) -> Floats:
    """Return `n` evenly spaced values between the smallest and the largest defined one (as TASR's repository does).

    >>> import numpy as np
    >>> even_thresholds(np.array([0.0, np.nan, 1.0]), 3).tolist()
    [0.0, 0.5, 1.0]

    Args:
        column: A signal, any shape, NaN where undefined.
        n: How many.

    Returns:
        Shape ``(n,)``; ``(1,)`` if the signal has one value, ``(0,)`` if it is defined nowhere.
    """
    known = column[np.isfinite(column)]
    if known.size == 0:
        return np.empty(0)
    low, high = float(known.min()), float(known.max())
    return np.linspace(low, high, n) if low < high else np.array([low])


def sweep(bench: Bench, policy: Policy, literal: Threshold, values: Iterable[float]) -> list[Run]:
    """Return the run of the policy with each value in the place of the literal's.

    Args:
        bench: The recording.
        policy: What is varied.
        literal: One of the thresholds of its rule.
        values: The values, finite.
    """
    return [
        run_policy(bench, replace(policy, rule=with_threshold(policy.rule, literal, value), name=""))[0]
        for value in map(float, values)
    ]


def equivalent_thresholds(policy: Policy, raw: Rounds, literal: Threshold) -> tuple[float, float]:
    """Return the interval of thresholds that stop every question where the literal's own value does.

    Between two neighbouring values of the signal nothing changes, and a rule's stops move one way as one threshold
    does; so the ends are found by bisection over the values of the signal.  For ``>`` and ``<=`` the lower end belongs
    to the interval and the upper does not, for ``>=`` and ``<`` the other way round.

    Args:
        policy: The policy.
        raw: Raw columns, shape ``(n_questions, n_rounds)``, with answers.
        literal: One of the thresholds of its rule.

    Returns:
        ``(low, high)``; infinite where no value on that side changes a stop.
    """
    view = policy.view(raw)
    column = view[literal.name]
    places = np.unique(column[np.isfinite(column) & view.seen])
    reference = stops(policy, raw).position
    upper_closed = literal.comparison in (">=", "<")

    def same(region: int) -> bool:
        """Whether a threshold between ``places[region - 1]`` and ``places[region]`` stops alike."""
        if upper_closed:
            value = places[region] if region < len(places) else np.nextafter(places[-1], np.inf)
        else:
            value = places[region - 1] if region > 0 else np.nextafter(places[0], -np.inf)
        moved = replace(policy, rule=with_threshold(policy.rule, literal, float(value)))
        return bool(np.array_equal(stops(moved, raw).position, reference))

    if len(places) == 0:
        return -np.inf, np.inf
    here = int(np.searchsorted(places, literal.value, side="left" if upper_closed else "right"))
    first, last = here, here
    low, high = 0, here  # bisection: the first region that stops alike
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if same(middle) else (middle + 1, high)
    first = low
    low, high = here, len(places)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if same(middle) else (low, middle - 1)
    last = low
    return (
        float(places[first - 1]) if first > 0 else -np.inf,
        float(places[last]) if last < len(places) else np.inf,
    )
