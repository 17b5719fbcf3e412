"""One question's way through the rounds, written once: a live loop and a recording drive the same calls.

A round is a generator: it yields each call that it wants made, gets the reply, and returns the round.  Who drives it
decides how a call is made: now, without blocking, or from a journal that already holds the reply; a live loop leaves
out a call that its policy does not need.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from suffice.errors import AuthenticationFailedError, ModelError
from suffice.rounds import Reply, Round
from suffice.signals import CRITIC

__all__ = ["Call", "Course", "Made", "Rest", "Steps", "drive", "send"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a round wants made.

    Attributes:
        part: The component that replies: `gate`, `generator`, `writer` or `critic`.
        asked: Everything that it is asked, JSON-ready: a committed reply answers nothing else.
        send: Makes the call.
        send_async: Makes it without blocking the event loop.
        without: What was made without this call, where a live loop may do without it; None = it must be made.
        instead: What a live loop takes for the reply if the call fails; None = the failure is the round's.
    """

    part: str
    asked: Sequence[Any]
    send: Callable[[], Reply]
    send_async: Callable[[], Awaitable[Reply]]
    without: Made | None = None
    instead: Reply | None = None


@dataclass(frozen=True, slots=True)
class Rest:
    """What is left of a round whose last call nobody needed yet.

    Attributes:
        call: The call.
        steps: The round, waiting for its reply.
    """

    call: Call
    steps: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A round that was made.

    Attributes:
        observed: The round.
        reply: The reply that holds its answer.
        error: Why a later call of the round failed, where one did; what was paid for before it stands in `observed`.
        rest: What was left out, where something was; `observed` is then the round without it.
    """

    observed: Round
    reply: Reply
    error: ModelError | None = None
    rest: Rest | None = None

    @property
    def is_answered(self) -> bool:
        """Whether the answer is among what was made: a gate's decision alone has none yet, a draft is one."""
        return self.rest is None or self.rest.call.part == CRITIC


Steps = Generator[Call, Reply, Made]
"""The calls of one round; a failing call is raised at its `yield`."""


class Course(Protocol):
    """One question's rounds."""

    async def prepare(self, r: int) -> None:
        """Get what `has` and `calls` need of round `r` without blocking the event loop.

        Raises:
            DataError: As for `has`.
        """
        ...

    def has(self, r: int) -> bool:
        """Tell whether there is a round `r`: evidence runs out, revisions do not.

        Raises:
            DataError: There is neither a pool nor a corpus to take evidence from.
        """
        ...

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        """Make round `r`.

        Args:
            r: The round.
            before: The rounds before it, in order; a round that does not depend on them may be made without.
        """
        ...


async def send(call: Call, *, blocking: bool = False) -> Reply:
    """Make a call of a live loop.

    Args:
        call: The call.
        blocking: Whether the event loop may wait, or there is none: the coroutine then ends without suspending.

    Raises:
        ModelError: It failed, and nothing stands in for its reply.
    """
    try:
        return call.send() if blocking else await call.send_async()
    except ModelError as error:
        if call.instead is None or isinstance(error, AuthenticationFailedError):
            raise
        _LOG.warning("the %s failed, and the loop goes on without it: %s", call.part, error)
        return call.instead


def _always(call: Call) -> bool:
    del call
    return True


async def drive(
    steps: Steps,
    send: Callable[[Call], Awaitable[Reply]] = send,
    *,
    needed: Callable[[Call], bool] = _always,
    first: Call | None = None,
) -> Made:
    """Make a round's calls one after the other.

    Args:
        steps: The round.
        send: How a call is made.
        needed: Asked of each call that may be left out whether to make it.
        first: The call that the round waits for, if it has begun.

    Raises:
        ModelError: A call failed that the round cannot do without.
    """
    try:
        call = first or next(steps)
        while call.without is None or needed(call):
            try:
                reply = await send(call)
            except ModelError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as ended:
        made: Made = ended.value
        return made
    return _left_out(call, steps)


def _left_out(call: Call, steps: Steps) -> Made:
    assert call.without is not None
    return replace(call.without, rest=Rest(call, steps))
