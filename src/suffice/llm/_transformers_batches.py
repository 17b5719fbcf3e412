"""Many prompts, some at a time: batches of like length, halved where memory does not suffice."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from suffice.errors import ModelError

__all__ = ["Batches", "is_out_of_memory"]

_OUT_OF_MEMORY = ("out of memory", "can't allocate memory", "not enough memory")
Ids = Sequence[Sequence[int]]
Made = TypeVar("Made")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that the memory of the device, or of the machine, was not enough.

    >>> is_out_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")), is_out_of_memory(ValueError("no"))
    (True, False)
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _OUT_OF_MEMORY)


class Batches:
    """Runs prompts in batches.

    Args:
        name: What messages call the model.
        size: Most prompts of one batch; halved when memory runs out, and it stays so.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name, self.size = name, size

    def run(self, ids: Ids, work: Callable[[Ids], Made]) -> Iterator[tuple[list[int], Made]]:
        """Yield the rows of each batch and what `work` made of their prompts, the longest prompts first.

        Like lengths go together, so that little is padded; and where memory does not suffice, that shows at once.

        Args:
            ids: The prompts' tokens.
            work: From the prompts of one batch to whatever they give.

        Raises:
            ModelError: Memory does not even suffice for one prompt.
        """
        waiting = sorted(range(len(ids)), key=lambda row: -len(ids[row]))
        while waiting:
            rows = waiting[: self.size]
            failure = None
            try:
                made = work([ids[row] for row in rows])
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                failure = f"{type(error).__name__}: {error!s:.200}"
            if failure is None:
                yield rows, made
                waiting = waiting[len(rows) :]
                continue
            # Out here, where the error's traceback no longer holds the tensors that were too much.
            _give_memory_back()
            if len(rows) == 1:
                raise ModelError(
                    f"memory does not suffice for {self.name!r} and one prompt of {len(ids[rows[0]])} tokens ({failure}). "
                    "Give fewer or shorter passages, or load it with dtype='bfloat16' or on another device"
                )
            self.size = len(rows) // 2

    def one(self, ids: Sequence[int], work: Callable[[Ids], Made]) -> Made:
        """Run one prompt.

        Raises:
            ModelError: Memory does not suffice.
        """
        ((_, made),) = self.run([ids], work)
        return made


def _give_memory_back() -> None:
    """Let the device's allocator return what it keeps."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
