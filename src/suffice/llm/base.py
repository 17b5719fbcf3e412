"""The seams between loops and models: what answers a question from passages, and what decides before any answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from suffice.rounds import Cost, Passage, Reply

__all__ = ["Answerer", "Gate", "Verdict"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What a gate found out about a question before any answer was generated.

    Attributes:
        signals: By name; NaN where undefined. Known at round 0 and at no other.
        cost: What deciding took: the pass over the question and the probe (SEMANTICS, `cost_to_decide`).
        resume: Goes on from that pass into the closed-book answer: a reply whose costs are those of decoding alone
            (`cost_to_answer`). None where the gate's pass cannot be continued; the model is then asked anew.
    """

    signals: Mapping[str, float]
    cost: Cost
    resume: Callable[[], Reply] | None = None


@runtime_checkable
class Gate(Protocol):
    """Decides at round 0, from the question alone, before the model answers."""

    @property
    def name(self) -> str:
        """What reports call it."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """What its verdicts hold, in the words of `Signal.needs`: `p_known`."""
        ...

    @property
    def source(self) -> object:
        """What reads the question.

        A loop goes on from a verdict's pass only where this is the very model that it answers with; another model's
        pass would end in another model's answer.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """Everything that changes its verdicts, JSON-ready and without secrets: what a policy pins."""
        ...

    def decide(self, question: str) -> Verdict:
        """Read the question.

        Raises:
            ModelError: The model that reads it failed.
        """
        ...

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, without blocking the event loop."""
        ...
