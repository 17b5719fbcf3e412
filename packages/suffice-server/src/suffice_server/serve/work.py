"""Limit the time for comparing answers, so that one client's long answers do not delay other clients."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from suffice.policy.session import Policy
from suffice_server.serve.answers import RefusedError

_CHEAP_S = 0.05
"""Processor time that a request may use before it must wait for its turn, seconds: a hundred usual decisions."""

_FEW_ROUNDS = 100
"""A request with more rounds waits for its turn at once, since every round is measured and decided."""

_PLACES = 16
"""Largest number of requests with long comparisons, running or waiting; half of the server's threads stay free for others."""


class WorkLimit:
    """Runs requests with long comparisons one at a time, each for a limited time.

    The time is checked between rounds, and no process is killed.  This is enough, since one round takes a bounded time:
    `answer_similarity_previous` compares 1,000 characters, an expression is parsed by a process that is killed after five
    seconds, and each vote is counted once.  Running one request at a time costs nothing, since the interpreter runs one thread
    at a time anyway; and all other requests then compete with one such request, not with sixteen.

    Args:
        seconds: Longest time for the comparisons of one request; also the longest wait for the request's turn.
    """

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self._turn, self._places = threading.Lock(), threading.BoundedSemaphore(_PLACES)

    @contextmanager
    def work(self, policy: Policy, n_rounds: int) -> Iterator[Callable[[], None]]:
        """Yield a function to call before each round; if the request has taken long so far, it waits for its turn.

        Work that is expected to take long waits for its turn before this block begins.  To avoid a deadlock, a thread must
        neither begin further work within this block nor wait there for the lock of a session: another thread may hold that
        lock while it waits for its turn.

        Args:
            policy: The policy that compares.
            n_rounds: The number of rounds that are compared.

        Raises:
            RefusedError: The request took too long, or too many other requests wait.
        """
        work = _Work(self.seconds, self._turn, self._places)
        try:
            if n_rounds > _FEW_ROUNDS or compares_long(policy):
                work.wait()
            yield work.check
        finally:
            work.end()


class _Work:
    """The comparisons of one request."""

    def __init__(self, seconds: float, turn: threading.Lock, places: threading.BoundedSemaphore) -> None:
        self._seconds, self._turn, self._places = seconds, turn, places
        self._begun, self._processor = time.monotonic(), time.thread_time()
        self._has_turn = False

    def check(self) -> None:
        if time.monotonic() - self._begun > self._seconds:
            raise RefusedError(
                422,
                f"comparing the answers of this request took more than {self._seconds:g} s, the limit of this server: send shorter "
                "answers or fewer rounds, or raise the setting max-seconds",
            )
        if not self._has_turn and time.thread_time() - self._processor > _CHEAP_S:
            self.wait()

    def wait(self) -> None:
        refused = RefusedError(
            503, "too many other requests have answers that take long to compare: try again", retry_after=1
        )
        if not self._places.acquire(blocking=False):
            raise refused
        began = time.monotonic()
        if not self._turn.acquire(timeout=self._seconds):
            self._places.release()
            raise refused
        self._has_turn = True
        self._begun += time.monotonic() - began  # waiting is not the work of this request

    def end(self) -> None:
        if self._has_turn:
            self._turn.release()
            self._places.release()


def compares_long(policy: Policy) -> bool:
    """Return whether comparing the answers of one round may take more than a few milliseconds under this policy."""
    return policy.normalizer == "math" or "answer_similarity_previous" in policy.raw_signals
