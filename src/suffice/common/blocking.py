"""Run a coroutine from synchronous code, even in a notebook, where an event loop already runs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, TypeVar

_T = TypeVar("_T")


def run_blocking(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine and return its result; if an event loop is already running, run the coroutine in a new thread.

    >>> async def answer():
    ...     return "Oslo"
    >>> async def notebook():
    ...     return run_blocking(answer())
    >>> run_blocking(answer()), asyncio.run(notebook())
    ('Oslo', 'Oslo')
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(coroutine)
    running: Future[tuple[asyncio.AbstractEventLoop, asyncio.Task[Any]]] = Future()

    async def announced() -> _T:
        task = asyncio.current_task()
        assert task is not None
        running.set_result((asyncio.get_running_loop(), task))
        return await coroutine

    with ThreadPoolExecutor(1) as pool:
        result = pool.submit(asyncio.run, announced())
        try:
            return result.result()
        except BaseException:  # a notebook's interrupt reaches only this thread, so stop the other one
            loop, task = running.result()
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(task.cancel)
            raise


def finished(coroutine: Coroutine[Any, Any, _T]) -> _T:
    """Run a coroutine that never suspends, without an event loop, and return its result.

    >>> async def answer():
    ...     return "Oslo"
    >>> finished(answer())
    'Oslo'
    """
    try:
        coroutine.send(None)
    except StopIteration as ended:
        result: _T = ended.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine without an event loop must not suspend, but it did")
