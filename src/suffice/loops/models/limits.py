"""Limits on requests to endpoints: how many a minute, how many tokens a minute, and how many at once."""

from __future__ import annotations

import asyncio
import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

from suffice.errors import DataError

_LIMITS_LOG = logging.getLogger(__name__)
_MINUTE_S = 60.0


async def pause(seconds: float, *, blocking: bool) -> None:
    """Wait so long; if blocking, without ever suspending."""
    if blocking:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop then
    else:
        await asyncio.sleep(seconds)


class Pace(Protocol):
    """Says when requests may be sent.  One object may serve several processes, for instance as an actor of a cluster."""

    def reserve(self, tokens: float = 0.0) -> float:
        """Reserve the next free moment for one request, and return in how many seconds it comes.

        The caller sends its request then or later, or not at all; a moment is never given twice.

        Args:
            tokens: How many tokens the request is expected to take.
        """
        ...


class EvenPace:
    """Spreads requests evenly, so that no minute has more of them, or of their tokens, than the limit.

    >>> pace = EvenPace(requests_per_minute=120, clock=lambda: 0.0)
    >>> pace.reserve(), pace.reserve(), pace.reserve()
    (0.0, 0.5, 1.0)

    Args:
        requests_per_minute: Most requests in a minute; None = no limit.
        tokens_per_minute: Most tokens in a minute; None = no limit.
        clock: Seconds from any start.
    """

    def __init__(
        self,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request_s = 0.0 if requests_per_minute is None else _MINUTE_S / requests_per_minute
        self._per_token_s = 0.0 if tokens_per_minute is None else _MINUTE_S / tokens_per_minute
        self._clock, self._lock, self._free_at = clock, threading.Lock(), -math.inf

    def reserve(self, tokens: float = 0.0) -> float:
        """Return the seconds until the next free moment, which is taken now; see `Pace`."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._free_at)
            self._free_at = moment + max(self._per_request_s, self._per_token_s * tokens)
            return moment - now


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestLimits:
    """Limits on the requests to endpoints; models that are given the same object share them.

    Every HTTP request counts, also a retry.  Tokens are estimated before a request, from its length and `max_tokens`,
    and what the replies report is settled with later requests.  The time that a request waits for its turn is not part of
    its recorded seconds.

    Attributes:
        requests_per_minute: Most requests in a minute, spread evenly; None = no limit.
        tokens_per_minute: Most tokens in a minute, of prompts and replies; None = no limit.
        max_in_flight: Most requests at once; None = no limit.
        pace: Says when requests may be sent, in place of the two rates: what several processes share.

    Raises:
        DataError: A limit is not a whole number of at least 1, or there are rates and a pace.
    """

    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    max_in_flight: int | None = None
    pace: Pace | None = None

    def __post_init__(self) -> None:
        for name, value in self._numbers.items():
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise DataError(f"{name} must be a whole number of at least 1, or None; got {value!r}")
        if self.pace is not None and (self.requests_per_minute or self.tokens_per_minute):
            raise DataError("a pace has its own rates: leave out requests_per_minute and tokens_per_minute")

    @property
    def _numbers(self) -> dict[str, int | None]:
        return {name: getattr(self, name) for name in ("requests_per_minute", "tokens_per_minute", "max_in_flight")}

    def share(self, index: int, n: int, *, pace: Pace | None = None) -> RequestLimits:
        """Return the part of one of `n` processes; the parts add up to this limit, and a pace is shared as it is.

        >>> [RequestLimits(max_in_flight=5, requests_per_minute=60).share(i, 2).max_in_flight for i in (1, 2)]
        [3, 2]

        Args:
            index: Which process, from 1.
            n: How many processes there are.
            pace: What all of them share in place of parts of the rates.

        Raises:
            DataError: A limit is smaller than the number of processes.
        """
        if not 1 <= index <= n:
            raise DataError(f"a process has an index from 1 to {n}, got {index!r}")
        parts: dict[str, Any] = {}
        rates = ("requests_per_minute", "tokens_per_minute")
        for name, value in self._numbers.items():
            if pace is not None and name in rates:
                parts[name] = None
                continue
            if value is not None and value < n:
                raise DataError(f"{name} is {value} for {n} processes, and each needs at least 1: raise it")
            parts[name] = None if value is None else value // n + (index <= value % n)
        return replace(self, **parts, pace=pace or self.pace)

    @cached_property
    def _slots(self) -> _Slots | None:
        return None if self.max_in_flight is None else _Slots(self.max_in_flight)

    @cached_property
    def _own_pace(self) -> EvenPace | None:
        if self.requests_per_minute is None and self.tokens_per_minute is None:
            return None
        return EvenPace(self.requests_per_minute, self.tokens_per_minute)

    @cached_property
    def _owed(self) -> _Owed:
        return _Owed()

    async def enter(self, *, blocking: bool) -> Future[None] | None:
        """Wait until another request may be in flight, in order of arrival, and return what `leave` takes.

        Args:
            blocking: Whether to block the thread instead of suspending.
        """
        if self._slots is None:
            return None
        ticket = self._slots.ask()
        try:
            if blocking:
                ticket.result()
            else:
                await asyncio.wrap_future(ticket)
        except BaseException:
            self._slots.give_back(ticket)
            raise
        return ticket

    def leave(self, ticket: Future[None] | None) -> None:
        """Let the next request be in flight."""
        if self._slots is not None and ticket is not None:
            self._slots.give_back(ticket)

    async def turn(self, tokens: float, *, blocking: bool) -> None:
        """Wait until one more request may be sent; if blocking, without ever suspending.

        Args:
            tokens: How many tokens it is expected to take.
            blocking: Whether to block the thread.
        """
        pace = self.pace or self._own_pace
        if pace is None:
            return
        if self.tokens_per_minute is not None and tokens > self.tokens_per_minute:
            self._owed.note_large(tokens, self.tokens_per_minute)
        expected = self._owed.take(tokens)
        if blocking or self.pace is None:
            wait = pace.reserve(expected)
        else:  # it may be in another process
            wait = await asyncio.to_thread(pace.reserve, expected)
        await pause(wait, blocking=blocking)

    def settle(self, expected: float, reported: float) -> None:
        """Take the tokens that a reply reports, in place of those that were expected; NaN = unknown."""
        if not math.isnan(reported):
            self._owed.add(reported - expected)


class _Owed:
    """Tokens that replies took beyond what was expected, until later requests have paid for them."""

    def __init__(self) -> None:
        self._lock, self._tokens, self._noted = threading.Lock(), 0.0, False

    def note_large(self, tokens: float, limit: int) -> None:
        """Warn once that a request is expected to take more than a minute's tokens."""
        with self._lock:
            is_first, self._noted = not self._noted, True
        if is_first:
            _LIMITS_LOG.warning(
                "a request is expected to take about %.0f tokens, and tokens_per_minute (--set tokens-per-minute=...) is %d: the next one "
                "waits for about %.0f minutes",
                tokens,
                limit,
                tokens / limit,
            )

    def add(self, tokens: float) -> None:
        with self._lock:
            self._tokens += tokens

    def take(self, expected: float) -> float:
        """Return what a request reserves: what it is expected to take, and what is owed."""
        with self._lock:
            reserved = max(0.0, expected + self._tokens)
            self._tokens += expected - reserved
            return reserved


class _Slots:
    """So many tickets at once, to threads and tasks in order of arrival."""

    def __init__(self, most: int) -> None:
        self._lock, self._free = threading.Lock(), most
        self._waiting: deque[Future[None]] = deque()

    def ask(self) -> Future[None]:
        """Return a ticket, which is done once it may be used."""
        ticket: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                ticket.set_result(None)
            else:
                self._waiting.append(ticket)
        return ticket

    def give_back(self, ticket: Future[None]) -> None:
        """Take a ticket back, whether it was used, or its task was cancelled before or after its turn came."""
        with self._lock:
            if ticket.cancel() or ticket.cancelled():  # its turn had not come
                return
            while self._waiting:
                following = self._waiting.popleft()
                if following.set_running_or_notify_cancel():
                    following.set_result(None)
                    return
            self._free += 1


_PART_OF_LIMITS: ContextVar[Callable[[RequestLimits], RequestLimits] | None] = ContextVar(
    "suffice_limits_part", default=None
)


@contextmanager
def sharing_limits(part: Callable[[RequestLimits], RequestLimits]) -> Iterator[None]:
    """Make commands that run within this block use a part of the limits that their options name.

    Args:
        part: Returns the part of this process: ``lambda limits: limits.share(2, 8)``, or limits with a shared pace.
    """
    token = _PART_OF_LIMITS.set(part)
    try:
        yield
    finally:
        _PART_OF_LIMITS.reset(token)


def limits_here(limits: RequestLimits) -> RequestLimits:
    """Return the part of limits that this process may use; without `sharing_limits`, all of it."""
    part = _PART_OF_LIMITS.get()
    return limits if part is None else part(limits)
