"""Compare results of replay as JSON (texts and counts exactly, numbers but for rounding); find equivalent thresholds."""

from __future__ import annotations

import math
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from suffice.evaluation.replay import ReplayResult, replay
from suffice.evaluation.replay.blocks import Source
from suffice.policy.rounds import Rounds
from suffice.policy.rules import Threshold
from suffice.policy.rules.algebra import with_threshold
from suffice.policy.session import Policy, stops

__all__ = ["assert_same_replay", "equivalent_thresholds", "replay_in_blocks"]


def replay_in_blocks(path: str | Path, policies: Any, **how: Any) -> ReplayResult:
    """Replay a recording on disk in blocks, however small it is, in this process."""
    return replay(Source(path), policies, **{"jobs": 1, **how})


def assert_same_replay(one: ReplayResult, other: ReplayResult, *, apart: tuple[str, ...] = ()) -> None:
    """Assert that two results are the same, but for the fields named `apart`."""
    mine, theirs = ({k: v for k, v in result.to_dict().items() if k not in apart} for result in (one, other))
    _assert_same(mine, theirs, "result")


def _assert_same(one: Any, other: Any, place: str) -> None:
    if isinstance(one, dict):
        assert list(one) == list(other) or set(one) == set(other), (place, set(one) ^ set(other))
        for name, value in one.items():
            _assert_same(value, other[name], f"{place}.{name}")
    elif isinstance(one, list | tuple):
        assert len(one) == len(other), (place, one, other)
        for number, (mine, theirs) in enumerate(zip(one, other, strict=True)):
            _assert_same(mine, theirs, f"{place}[{number}]")
    elif isinstance(one, float) and isinstance(other, float):
        assert math.isclose(one, other, rel_tol=1e-9, abs_tol=1e-9), (place, one, other)
    else:
        assert one == other, (place, one, other)


def equivalent_thresholds(policy: Policy, raw: Rounds, literal: Threshold) -> tuple[float, float]:
    """Return the interval of thresholds with the same stops as the threshold's own value.

    Nothing changes between two neighbouring values of the signal, and stops move in one direction with the threshold,
    so the ends are found by bisection over the values of the signal.  For ``>`` and ``<=`` the interval includes its
    lower end and excludes its upper end; for ``>=`` and ``<`` it is the other way round.

    Args:
        policy: The policy.
        raw: Raw columns, shape ``(n_questions, n_rounds)``, with answers.
        literal: One of the thresholds of its rule.

    Returns:
        ``(low, high)``; infinite if no value on that side changes a stop.
    """
    view = policy.view(raw)
    column = view[literal.name]
    places = np.unique(column[np.isfinite(column) & view.seen])
    reference = stops(policy, raw).position
    upper_closed = literal.comparison in (">=", "<")

    def same(region: int) -> bool:
        """Return whether a threshold between ``places[region - 1]`` and ``places[region]`` has the same stops."""
        if upper_closed:
            value = places[region] if region < len(places) else np.nextafter(places[-1], np.inf)
        else:
            value = places[region - 1] if region > 0 else np.nextafter(places[0], -np.inf)
        moved = replace(policy, rule=with_threshold(policy.rule, literal, float(value)))
        return bool(np.array_equal(stops(moved, raw).position, reference))

    if len(places) == 0:
        return -np.inf, np.inf
    # Regions with the same stops are contiguous around the literal's own: find the first of them, and the first after
    # them.
    here = int(np.searchsorted(places, literal.value, side="left" if upper_closed else "right"))
    first = bisect_left(range(here), x=True, key=same)
    last = here + bisect_left(range(here + 1, len(places) + 1), x=True, key=lambda region: not same(region))
    return (
        float(places[first - 1]) if first > 0 else -np.inf,
        float(places[last]) if last < len(places) else np.inf,
    )
