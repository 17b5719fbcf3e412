"""Protocols between loops and models: models that answer from passages, and gates."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from suffice.policy.rounds import Cost, Passage, Reply


@runtime_checkable
class Answerer(Protocol):
    """Protocol of a model that answers from passages, as retrieval loops use it."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the model, as named in `Signal.needs`: `logprobs`, `token_logprobs`, ..."""
        ...

    def verify(self, needs: frozenset[str]) -> None:
        """Check the `needs`, with one short request if necessary.

        Raises:
            LogprobsUnavailableError: Log-probabilities are needed but not available.
            ModelError: The model cannot be reached.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect its replies (model, prompt, parameters, revision), JSON-ready, without secrets."""
        ...

    def answer(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Answer `question` from `passages`, in the order in which they were revealed; without passages, closed book.

        Raises:
            ModelError: The model failed; `retryable` is true if trying again may help.
        """
        ...

    async def answer_async(self, question: str, passages: Sequence[Passage]) -> Reply:
        """Like `answer`, without blocking the event loop; cancelling the task cancels the request."""
        ...


async def answered(model: Answerer, question: str, passages: Sequence[Passage], blocking: bool) -> Reply:
    """Ask a model for an answer; if `blocking`, block the thread instead of suspending."""
    return model.answer(question, passages) if blocking else await model.answer_async(question, passages)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A gate's signals for a question, before an answer is generated.

    Attributes:
        signals: Values by name; NaN where undefined. They exist at round 0 only.
        cost: Cost of the decision (`cost_to_decide`): the model's pass over the question, and then the probe.
        resume: Continues the pass over the question, and returns the closed-book answer.  The answer then costs only its
            decoding (`cost_to_answer`).  None if the pass cannot be continued; the model is then asked again.
    """

    signals: Mapping[str, float]
    cost: Cost
    resume: Callable[[], Reply] | None = None


@runtime_checkable
class Gate(Protocol):
    """Protocol of a gate, which decides at round 0, from the question alone, before the model answers."""

    @property
    def name(self) -> str:
        """Name in reports."""
        ...

    @property
    def capabilities(self) -> frozenset[str]:
        """Capabilities of the verdicts, as named in `Signal.needs`: `p_known`."""
        ...

    @property
    def source(self) -> object:
        """The model that reads the question.

        A loop continues a verdict's forward pass only if this model is also the loop's model.
        """
        ...

    def fingerprint(self) -> Mapping[str, Any]:
        """All settings that affect its verdicts, JSON-ready and without secrets; a policy pins them."""
        ...

    def decide(self, question: str) -> Verdict:
        """Read the question and return the signals.

        Raises:
            ModelError: The model that reads the question failed.
        """
        ...

    async def decide_async(self, question: str) -> Verdict:
        """Like `decide`, without blocking the event loop."""
        ...


def has_attentions(model: object) -> bool:
    """Return whether a model runs in this process, so that its states and attentions can be read."""
    return bool(getattr(model, "runs_here", False))
