"""Compare results of replay as JSON: texts and counts exactly, numbers but for the rounding of sums in another order."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from suffice.evaluation.replay import ReplayResult, replay
from suffice.evaluation.replay.blocks import Source

__all__ = ["assert_same_replay", "replay_in_blocks"]


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
