"""A model's confidence before it answers, with and without passages, for making preference data (CBDR, eq. 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from suffice.policy.rounds import Floats, Passage
from suffice_gates.models.states import QA, RAG, StateSource
from suffice_gates.probes.probe import Probe


@runtime_checkable
class Confidence(Protocol):
    """Protocol of objects that return a model's confidence, in [0, 1], before it answers; for example from a probe."""

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


class ProbeConfidence:
    """A confidence that a probe reads from a source's states, for the prompts that the probe was tested on.

    Args:
        probe: Maps the state to the probability.
        source: The model.
        allow: Prompts to accept besides the tested ones, on the caller's responsibility: `("rag",)` for a probe fitted
            on questions alone, as in CBDR.  Measure the probe on such prompts and report the result.

    Raises:
        ConfigMismatchError: The probe belongs to another model, layer or prompt.
    """

    def __init__(self, probe: Probe, source: StateSource, *, allow: Sequence[str] = ()) -> None:
        self.probe, self.source, self.allow = probe, source, tuple(allow)
        probe.card.check_prompt(QA, allow=self.allow)
        self._row = probe.card.check_source(source, allow=self.allow)

    def __repr__(self) -> str:
        return f"ProbeConfidence({self.probe!r}, allow={self.allow!r})"

    def fingerprint(self) -> Mapping[str, Any]:
        """Values that identify the probe, and the additionally allowed prompts."""
        return {**self.probe.pin(), "allowed": list(self.allow)}

    def of(self, questions: Sequence[str], passages: Sequence[Sequence[Passage]] | None = None) -> Floats:
        """Return the probability of each prompt, shape ``(n,)``; NaN where the state is undefined; see `Confidence.of`.

        Raises:
            ConfigMismatchError: There are passages, but the probe was neither tested on that prompt nor allowed for it.
            ModelError: The model failed, or a prompt is longer than its context.
        """
        if passages is not None and any(passages):
            self.probe.card.check_prompt(RAG, allow=self.allow)
        return self.probe.predict(self.source.read_batch(questions, passages)[:, self._row])
