"""A queue that answers prompts of concurrent callers in common batches."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field

from suffice.loops.models._wire import Completion
from suffice_gates.models._transformers_batches import Batches, Ids

_WAIT_S = 0.02
"""Longest wait for as many prompts as the last batch had, seconds; a pass of a large model takes much longer."""

Answer = Callable[[Ids, Callable[[], bool]], Sequence[Completion]]
"""Answers the prompts of one batch; it may stop once the given function returns True, since all callers have then cancelled."""


@dataclass(eq=False, slots=True)
class _Waiting:
    """A prompt in the queue, with the future of its caller."""

    ids: Sequence[int]
    reply: Future[Completion] = field(default_factory=Future)
    is_left: bool = False


class PromptQueue:
    """Collects prompts from any thread or event loop, and answers them in batches, one batch at a time.

    The replies equal those of single prompts up to rounding in the model's precision. While a batch runs, new prompts
    wait for the next one. A thread runs the batches while there are any.

    Args:
        batches: Divides prompts into batches, which are halved if memory runs out.
        answer: Answers the prompts of one batch.
    """

    def __init__(self, batches: Batches, answer: Answer) -> None:
        self._batches, self._answer = batches, answer
        self._waiting: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._is_running = False
        self._expected = 1  # the size of the last batch: callers often send their next prompt after a reply

    async def completion(self, ids: Sequence[int]) -> Completion:
        """Return the completion of a prompt; the generation of a batch ends early if all its callers cancel.

        Raises:
            ModelError: Memory does not suffice for this prompt alone.
        """
        waiting = _Waiting(ids)
        with self._changed:
            self._waiting.append(waiting)
            self._changed.notify()
            if not self._is_running:
                self._is_running = True
                threading.Thread(target=self._run, name="suffice-batches", daemon=True).start()
        try:
            return await asyncio.wrap_future(waiting.reply)
        except asyncio.CancelledError:
            waiting.is_left = True
            raise

    def _run(self) -> None:
        while batch := self._next():
            self._finish(batch)

    def _next(self) -> list[_Waiting]:
        """Return the prompts of the next batch; if no prompt waits, return an empty list, and the thread ends."""
        with self._changed:
            enough = min(self._expected, self._batches.size)
            self._changed.wait_for(lambda: len(self._waiting) >= enough, timeout=_WAIT_S)
            batch = [self._waiting.popleft() for _ in range(min(len(self._waiting), self._batches.size))]
            self._is_running = bool(batch)
            self._expected = max(1, len(batch))
            return batch

    def _finish(self, batch: Sequence[_Waiting]) -> None:
        """Answer a batch; if it fails, retry the unanswered prompts one by one, so that one failure affects no other."""
        pending = [item for item in batch if not item.is_left]
        try:
            replies = self._batches.run([item.ids for item in pending], lambda ids: self._answer(ids, _left(pending)))
            for rows, answered in replies:
                for row, reply in zip(rows, answered, strict=True):
                    _resolve(pending[row], reply)
        except BaseException as error:  # noqa: BLE001 - it belongs to those who wait
            unanswered = [item for item in pending if not item.reply.done()]
            if len(unanswered) == 1:
                _resolve(unanswered[0], error)
            else:
                for item in unanswered:
                    self._finish([item])


def _left(batch: Sequence[_Waiting]) -> Callable[[], bool]:
    return lambda: all(item.is_left for item in batch)


def _resolve(item: _Waiting, result: Completion | BaseException) -> None:
    if not item.reply.set_running_or_notify_cancel():
        return
    if isinstance(result, BaseException):
        item.reply.set_exception(result)
    else:
        item.reply.set_result(result)
