"""Make each distinct request to a judge once, several at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from suffice.errors import AuthenticationFailedError, ModelError

_K = TypeVar("_K", bound=Hashable)
_V = TypeVar("_V")


@dataclass(slots=True)
class Replies(Generic[_K, _V]):
    """The outcome of requests: replies and failures by key.

    Attributes:
        retryable: Messages of failed calls that may succeed later.
        refused: Errors of calls that cannot succeed, by key.
    """

    answers: dict[_K, _V] = field(default_factory=dict)
    retryable: list[str] = field(default_factory=list)
    refused: dict[_K, ModelError] = field(default_factory=dict)


async def ask_each(
    requests: Mapping[_K, Callable[[], Awaitable[_V]]],
    *,
    concurrency: int,
    on_progress: Callable[[int, int], None] | None = None,
) -> Replies[_K, _V]:
    """Make every request once.

    Raises:
        ModelError: The endpoint refused the credentials.
    """
    replies: Replies[_K, _V] = Replies()
    in_flight = asyncio.Semaphore(concurrency)

    async def ask(key: _K, request: Callable[[], Awaitable[_V]]) -> None:
        async with in_flight:
            try:
                replies.answers[key] = await request()
            except AuthenticationFailedError:
                raise
            except ModelError as error:
                if error.retryable:
                    replies.retryable.append(str(error))
                else:
                    replies.refused[key] = error
        if on_progress is not None:
            done = len(replies.answers) + len(replies.retryable) + len(replies.refused)
            on_progress(done, len(requests))

    try:
        async with asyncio.TaskGroup() as group:
            for key, request in requests.items():
                group.create_task(ask(key, request))
    except ExceptionGroup as raised:
        raise raised.exceptions[0] from None
    return replies
