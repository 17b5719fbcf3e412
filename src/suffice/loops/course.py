"""The calls of a question's rounds, defined once for both live loops and recordings.

A round is a generator, which yields each call, receives the reply, and returns the round.  The caller of the generator
makes the call, with or without blocking, or takes the reply from a journal.  A live loop omits calls that its policy
does not need.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from suffice.errors import AuthenticationFailedError, DataError, ModelError
from suffice.policy.rounds import Passage, Reply, Round
from suffice.policy.session import Policy
from suffice.policy.signals import CRITIC, TRIAL


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A call that a round needs.

    Attributes:
        part: The component that replies: `gate`, `generator`, `writer` or `critic`.
        asked: The JSON-ready content of the request, which identifies its committed reply.
        send: Makes the call.  With the argument True it blocks the thread instead of suspending.
        without: The round's result if a live loop omits this call; None if the call is required.
        instead: The reply that a live loop uses if the call fails; None if a failed call fails the round.
        brought: Returns the replies that arrived together with this call's reply, by the later round to which each belongs.
        beside: Starts work for the next round while a live loop waits for the reply; None if there is no such work.
    """

    part: str
    asked: Sequence[Any]
    send: Callable[[bool], Awaitable[Reply]]
    without: RoundResult | None = None
    instead: Reply | None = None
    brought: Callable[[], Mapping[int, Reply]] = dict
    beside: Callable[[], object] | None = None


@dataclass(frozen=True, slots=True)
class PendingCall:
    """The last call of a round, which was not needed so far, and the generator that still waits for the reply."""

    call: Call
    steps: Steps


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundResult:
    """The result of the calls of a round.

    Attributes:
        error: The failure of a later call, if any; `observed` contains the earlier, paid replies.
        rest: The omitted call, if any; `observed` then lacks the result of this call.
    """

    observed: Round
    error: ModelError | None = None
    rest: PendingCall | None = None

    @property
    def is_answered(self) -> bool:
        """True if the round has its answer.

        A draft is an answer even without its critique.  A gate's decision alone is not an answer.
        """
        return self.rest is None or self.rest.call.part == CRITIC

    @property
    def is_answered_or_trial(self) -> bool:
        """True if the round can be measured.

        This is so if the round has its answer, or is a checkpoint that only lacks its trial answer.
        """
        return self.is_answered or (self.rest is not None and self.rest.call.part == TRIAL)


Steps = Generator[Call, Reply, RoundResult]
"""The calls of one round; the error of a failed call is raised at its `yield`."""


class Course(Protocol):
    """Protocol of one question's rounds."""

    async def prepare(self, r: int) -> None:
        """Prepare `has` and `calls` for round `r` without blocking the event loop."""
        ...

    def has(self, r: int) -> bool:
        """Return whether round `r` exists; a question has no further round once its evidence is exhausted."""
        ...

    def calls(self, r: int, before: Sequence[Round]) -> Steps:
        """Return the calls of round `r`; if they depend on the earlier rounds, `before` contains these in order."""
        ...


async def send(call: Call, *, blocking: bool = False) -> Reply:
    """Make a call of a live loop; if `blocking`, the coroutine blocks the thread and never suspends.

    Raises:
        ModelError: The call failed, and it has no substitute reply.
    """
    try:
        return await call.send(blocking)
    except ModelError as error:
        if call.instead is None or isinstance(error, AuthenticationFailedError):
            raise
        logging.getLogger(__name__).warning("the %s failed, and the loop continues without it: %s", call.part, error)
        return call.instead


class ContextCourse:
    """The common part of courses whose rounds all see the same contexts, up to the policy's `max_rounds`."""

    def __init__(self, question: str, passages: Sequence[Passage], max_rounds: int) -> None:
        self.question, self.passages, self._max_rounds = question, _checked_contexts(passages), max_rounds

    async def prepare(self, r: int) -> None:
        """Do nothing, since the evidence is already known."""

    def has(self, r: int) -> bool:
        """Return whether round `r` is one of the policy's rounds."""
        return r <= self._max_rounds


def check_first_round(policy: Policy, what: str) -> None:
    """Raise unless the policy starts at round 1, because these loops have no round 0."""
    if policy.start_round != 1:
        raise DataError(
            f"{what} count from round 1, but the policy starts at round {policy.start_round!r}: set start_round=1"
        )


def _checked_contexts(passages: Sequence[Passage]) -> tuple[Passage, ...]:
    wrong = next((item for item in passages if not isinstance(item, Passage)), None)
    if wrong is not None:
        raise DataError(
            f"the contexts must be a list of Passage, but one is {wrong!r:.80}: "
            'wrap a text as Passage(passage_id="1", title="", text=...)'
        )
    return tuple(passages)


def _always(call: Call) -> bool:
    del call
    return True


async def drive(
    steps: Steps,
    send: Callable[[Call], Awaitable[Reply]] = send,
    *,
    needed: Callable[[Call], bool] = _always,
    first: Call | None = None,
) -> RoundResult:
    """Make the calls of a round in order, except those that may be omitted and are not `needed`.

    If the generator `steps` has already been started, `first` is the call that it waits for.
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
        result: RoundResult = ended.value
        return result
    return _left_out(call, steps)


def _left_out(call: Call, steps: Steps) -> RoundResult:
    assert call.without is not None
    return replace(call.without, rest=PendingCall(call, steps))
