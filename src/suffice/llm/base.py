"""The seam between loops and models: anything that answers a question from passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from suffice.rounds import Passage, Reply

__all__ = ["Answerer"]


@runtime_checkable
class Answerer(Protocol):
    """A model as the retrieval loop sees it."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What it can give, in the words of `Signal.needs`: `logprobs`, `token_logprobs`, ..."""
        ...

    def verify(self, needs: frozenset[str]) -> None:
        """Make sure, with one short request if it must be, that `capabilities` are kept as far as `needs` goes.

        Raises:
            LogprobsUnavailableError: Log-probabilities are needed and do not come.
            ModelError: The model cannot be reached.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes its replies (model, prompt, parameters, revision), JSON-ready and without secrets."""
        ...

    def answer(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Answer `question` from `passages`, in the order in which they were revealed; none of them = closed book.

        Raises:
            ModelError: The model failed; `retryable` tells whether trying again may help.
        """
        ...

    async def answer_async(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Like `answer`, without blocking the event loop; cancelling the task cancels the request."""
        ...
