"""Batches of prompts of similar length, halved if memory runs out."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from suffice.errors import ModelError

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
Ids = Sequence[Sequence[int]]
_Output = TypeVar("_Output")


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error reports a lack of memory on the device or machine.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")), is_out_of_memory(ValueError("no"))
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


class Batches:
    """Runs prompts in batches.

    Args:
        name: Name of the model in messages.
        size: Largest number of prompts in a batch; permanently halved when memory runs out.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def run(self, ids: Ids, work: Callable[[Ids], _Output]) -> Iterator[tuple[list[int], _Output]]:
        """Yield the rows of each batch and the result of `work` on their prompts, the longest prompts first.

        Similar lengths share a batch, which saves padding; starting with the longest shows a lack of memory at once.

        Args:
            ids: The tokens of each prompt.
            work: Processes the prompts of one batch.

        Raises:
            ModelError: Memory does not suffice for a single prompt.
        """
        pending = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        while pending:
            rows = pending[: self.size]
            failure = None
            try:
                result = work([ids[row] for row in rows])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failure = f"{type(error).__name__}: {error!s:.200}"
            if failure is None:
                yield rows, result
                pending = pending[len(rows) :]
                continue
            # Outside the handler, where the traceback no longer keeps the tensors of the failed batch alive.
            release_memory()
            if len(rows) == 1:
                raise ModelError(
                    f"memory does not suffice for {self.name!r} and one prompt of {len(ids[rows[0]])} tokens ({failure}). "
                    "Use fewer or shorter passages, or load it with dtype='bfloat16' or on another device"
                )
            self.size = len(rows) // 2

    def one(self, ids: Sequence[int], work: Callable[[Ids], _Output]) -> _Output:
        """Run one prompt.

        Raises:
            ModelError: Memory does not suffice.
        """
        ((_, result),) = self.run([ids], work)
        return result


def release_memory() -> None:
    """Make the allocator of the device return its cached memory."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
