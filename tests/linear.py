"""How work grows with its input, in processor time of this thread: the same on a slow, fast or busy machine."""

from __future__ import annotations

import time
from collections.abc import Callable


def takes_linear_time(work: Callable[[str], object], text: Callable[[int], str], n: int = 20_000) -> bool:
    """Return whether eight times the text takes about eight times as long; quadratic work takes 64 times as long."""
    small, large = (min(_seconds(work, text(size)) for _ in range(3)) for size in (n, 8 * n))
    return large < 24 * max(small, 1e-3)


def _seconds(work: Callable[[str], object], text: str) -> float:
    began = time.thread_time()
    work(text)
    return time.thread_time() - began
