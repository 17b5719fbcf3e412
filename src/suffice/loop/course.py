"""One question's way through the rounds, written once: a live loop and a recording drive the same calls.

A round is a generator: it yields each call that it wants made, gets the reply, and returns the round.  Who drives it
decides how a call is made: now, without blocking, or from a journal that already holds the reply.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from suffice.errors import ModelError
from suffice.rounds import Reply, Round

__all__ = ["Call", "Course", "Made", "Steps", "drive", "drive_async"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a round wants made.

    Attributes:
        part: The component that replies: `generator`, `writer` or `critic`.
        asked: Everything that it is asked, JSON-ready: a committed reply answers nothing else.
        send: Makes the call.
        send_async: Makes it without blocking the event loop.
    """

    part: str
    asked: Sequence[Any]
    send: Callable[[], Reply]
    send_async: Callable[[], Awaitable[Reply]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """A round that was made.

    Attributes:
        observed: The round.
        reply: The reply that holds its answer.
        error: Why a later call of the round failed, where one did; what was paid for before it stands in `observed`.
    """

    observed: Round
    reply: Reply
    error: ModelError | None = None


Steps = Generator[Call, Reply, Made]
"""The calls of one round; a failing call is raised at its `yield`."""


class Course(Protocol):
    """One question's rounds."""

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


def drive(steps: Steps) -> Made:
    """Make a round's calls one after the other.

    Raises:
        ModelError: A call failed that the round cannot do without.
    """
    try:
        call = next(steps)
        while True:
            try:
                reply = call.send()
            except ModelError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as ended:
        made: Made = ended.value
        return made


async def drive_async(steps: Steps, send: Callable[[Call], Awaitable[Reply]]) -> Made:
    """Make a round's calls one after the other, without blocking the event loop.

    Args:
        steps: The round.
        send: How a call is made.

    Raises:
        ModelError: A call failed that the round cannot do without.
    """
    try:
        call = next(steps)
        while True:
            try:
                reply = await send(call)
            except ModelError as error:
                call = steps.throw(error)
            else:
                call = steps.send(reply)
    except StopIteration as ended:
        made: Made = ended.value
        return made
