"""A model's confidence before it answers, with and without passages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from suffice.rounds import Floats, Passage

__all__ = ["Confidence"]


@runtime_checkable
class Confidence(Protocol):
    """How sure a model is of its answer before it answers: a probe on its states, or any other value in [0, 1]."""

    def fingerprint(self) -> Mapping[str, Any]:
        """Return JSON-ready values that identify the model and how its confidence is read."""
        ...

    def of(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> Floats:
        """Return the confidence of each prompt, shape ``(n,)``, in [0, 1]; NaN where it is undefined.

        Args:
            questions: One prompt is built for each.
            passages: The passages of each question; None for the prompt without passages.

        Raises:
            ModelError: The model failed, or a prompt is longer than its context.
        """
        ...
