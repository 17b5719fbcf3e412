"""Limits on requests to endpoints: per minute, tokens per minute, and concurrent requests."""

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
    """Wait for some seconds; if `blocking`, block the thread instead of suspending."""
    if blocking:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop then
    else:
        await asyncio.sleep(seconds)


class Pace(Protocol):
    """Protocol of a schedule for requests.

    One object may serve several processes, for instance as an actor of a cluster.
    """

    def reserve(self, tokens: float = 0.0) -> float:
        """Reserve the next free time for one request, and return the seconds until then.

        The caller may send its request then, later, or not at all; a time is never assigned twice.

        Args:
            tokens: The expected number of tokens of the request.
        """
        ...


class EvenPace:
    """Spreads requests evenly, so that no minute has more requests or tokens than the limits.

    >>> pace = EvenPace(requests_per_minute=120, clock=lambda: 0.0)
    >>> pace.reserve(), pace.reserve(), pace.reserve()
    (0.0, 0.5, 1.0)

    Args:
        requests_per_minute: The largest number of requests per minute; None = no limit.
        tokens_per_minute: The largest number of tokens per minute; None = no limit.
        clock: Returns the time in seconds, from any origin.
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
        """Reserve the next free time, and return the seconds until then; see `Pace`."""
        with self._lock:
            now = self._clock()
            moment = max(now, self._free_at)
            self._free_at = moment + max(self._per_request_s, self._per_token_s * tokens)
            return moment - now


@dataclass(frozen=True, kw_only=True, eq=False)
class RequestLimits:
    """Limits on the requests to endpoints; models that share one object share the limits.

    Every HTTP request counts, also a retry.  Tokens are estimated before a request, from its length and `max_tokens`.  If
    the reported number differs, later requests wait longer or shorter.  The time that a request waits for its turn is not
    part of its recorded seconds.

    Attributes:
        requests_per_minute: The largest number of requests per minute, spread evenly; None = no limit.
        tokens_per_minute: The largest number of tokens per minute, in prompts and replies; None = no limit.
        max_in_flight: The largest number of concurrent requests; None = no limit.
        pace: A schedule that several processes share, instead of the two rates; None = use the rates.

    Raises:
        DataError: A limit is not a whole number of at least 1, or both a rate and a pace are given.
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
        """Return the part of these limits for one of `n` processes; the parts of all processes add up to the limits.

        A pace is not divided, since all processes use the same pace.

        >>> [RequestLimits(max_in_flight=5, requests_per_minute=60).share(i, 2).max_in_flight for i in (1, 2)]
        [3, 2]

        Args:
            index: The number of the process, from 1.
            n: The number of processes.
            pace: A schedule that all processes use; the two rates are then not divided but left out.

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
        """Wait, in order of arrival, until one more request may be sent; return a ticket, to give to `leave` afterwards.

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
        """Give a ticket back, so that the next request may be sent."""
        if self._slots is not None and ticket is not None:
            self._slots.give_back(ticket)

    async def turn(self, tokens: float, *, blocking: bool) -> None:
        """Wait until one more request may be sent.

        Args:
            tokens: The expected number of tokens of the request.
            blocking: Whether to block the thread instead of suspending.
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
        """Replace the expected tokens of a reply by the reported ones, unless these are unknown (NaN)."""
        if not math.isnan(reported):
            self._owed.add(reported - expected)


class _Owed:
    """The tokens that replies took beyond the expected number; later requests compensate for them."""

    def __init__(self) -> None:
        self._lock, self._tokens, self._noted = threading.Lock(), 0.0, False

    def note_large(self, tokens: float, limit: int) -> None:
        """Warn once that a request is expected to take more tokens than a minute allows."""
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
        """Return the tokens that a request reserves: its expected tokens plus those that are still owed."""
        with self._lock:
            reserved = max(0.0, expected + self._tokens)
            self._tokens += expected - reserved
            return reserved


class _Slots:
    """A fixed number of tickets, given to threads and tasks in order of arrival."""

    def __init__(self, most: int) -> None:
        self._lock, self._free = threading.Lock(), most
        self._waiting: deque[Future[None]] = deque()

    def ask(self) -> Future[None]:
        """Return a ticket, a future that is done once the ticket may be used."""
        ticket: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                ticket.set_result(None)
            else:
                self._waiting.append(ticket)
        return ticket

    def give_back(self, ticket: Future[None]) -> None:
        """Take a ticket back; if its turn had come, give the turn to the next ticket in line.

        The ticket may be a used one, or that of a task that was cancelled before or after its turn.
        """
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
    """Make commands within this block use only a share of the limits in their options.

    Args:
        part: Returns the part of this process: ``lambda limits: limits.share(2, 8)``, or limits with a shared pace.
    """
    token = _PART_OF_LIMITS.set(part)
    try:
        yield
    finally:
        _PART_OF_LIMITS.reset(token)


def limits_here(limits: RequestLimits) -> RequestLimits:
    """Return the share of limits that this process may use; without `sharing_limits`, the limits unchanged."""
    part = _PART_OF_LIMITS.get()
    return limits if part is None else part(limits)
