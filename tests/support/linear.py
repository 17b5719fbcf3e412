"""How work grows with its input, in processor time of this thread: the same on a slow, fast or busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def takes_linear_time(work: Callable[[str], object], text: Callable[[int], str], n: int = 20_000) -> bool:
    """Return whether eight times the text takes about eight times as long; quadratic work takes 64 times as long.

    A busy machine, with its caches taken, may slow one measurement threefold, but not each of many; quadratic work fails all.
    """
    return any(_seconds(work, text(8 * n)) < 24 * max(_seconds(work, text(n)), 1e-3) for _ in range(12))


def _seconds(work: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    work(text)
    return time.thread_time() - began
